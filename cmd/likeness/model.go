package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/rbe"
)

func newModelCommand(a *app) *cobra.Command {
	return newGroup("model", "Show, check, compare, import and write models; put them in service and take them out",
		newModelShowCommand(a), newModelVerifyCommand(a), newModelDiffCommand(a), newModelImportCommand(a), newModelDotCommand(a), newModelLateCommand(a),
		newModelActivateCommand(a), newModelRollbackCommand(a), newModelListCommand(a), newModelGCCommand(a))
}

func newModelShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show PATH",
		Short: "Show what a model file or directory holds",
		Example: `  likeness model show examples/models/banking77-mol
  likeness model show products.safetensors --output json`,
		Args: cobra.ExactArgs(1),
	}
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, err := openModelFile(args[0])
		if err != nil {
			return err
		}
		d := m.Describe()
		return a.print(*out, d, func(w io.Writer) error { return printModel(w, d) })
	}
	return cmd
}

// openModelFile opens a model. A missing or invalid file counts as wrong usage.
func openModelFile(path string) (*model.Model, error) {
	m, err := model.Open(path)
	return m, badModel(err)
}

// badModel turns the error for a missing or invalid model into wrong usage.
func badModel(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, model.ErrFile) {
		return usageError{err}
	}
	return err
}

func newModelVerifyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify PATH",
		Short: "Check that a model file is whole and scores as it did",
		Long: `Checks the SHA-256 and the shapes, that every number is finite, and that this machine
computes the scores that are stored in the file, if there are any. Exit code 1: a check
failed; 2: the file cannot be read.`,
		Example: `  likeness model verify products.safetensors
  likeness model verify products.safetensors --output json`,
		Args: cobra.ExactArgs(1),
	}
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		v, err := model.Verify(args[0])
		if errors.Is(err, fs.ErrNotExist) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		return a.print(*out, v, func(w io.Writer) error { return printVerification(w, v) })
	}
	return cmd
}

func printVerification(w io.Writer, v *model.Verification) error {
	digest := "agrees"
	if !v.Digest {
		digest = "none: a directory; import it to have one"
	}
	scores := fmt.Sprintf("as in the file, within %.1e", v.MaxError)
	if !v.Scores {
		scores = "not in the file"
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "model\t%s (%s)\nversion\t%s\nsha256\t%s\ntensors\t%d, all %d numbers finite\nscores\t%s\n",
		v.Name, v.Kind, v.Version, digest, len(v.Tensors), v.Parameters, scores)
	return t.Flush()
}

// errDiffer ends `model diff` with exit code 1, as errors of diff(1) do.
var errDiffer = errors.New("the models differ")

func newModelDiffCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two models: configuration, tensors, provenance",
		Long: `The exit code is 0 if both models have the same version and therefore score alike, 1 if
not, and 2 if a model cannot be read.`,
		Example: "  likeness model diff today.safetensors yesterday.safetensors",
		Args:    cobra.ExactArgs(2),
	}
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		first, err := openModelFile(args[0])
		if err != nil {
			return err
		}
		second, err := openModelFile(args[1])
		if err != nil {
			return err
		}
		d := model.Diff(first, second)
		if err := a.print(*out, d, func(w io.Writer) error { return printDifference(w, d) }); err != nil || d.SameVersion {
			return err
		}
		return errDiffer
	}
	return cmd
}

func printDifference(w io.Writer, d *model.Difference) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "\ta\tb\nname\t%s\t%s\nkind\t%s\t%s\nversion\t%s\t%s\n",
		d.A.Name, d.B.Name, d.A.Kind, d.B.Kind, d.A.Version, d.B.Version)
	for _, c := range d.Config {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", c.Key, orNone(c.A), orNone(c.B))
	}
	for _, x := range d.Tensors {
		if x.Elements == 0 {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", x.Name, shapeText(x.ShapeA), shapeText(x.ShapeB))
			continue
		}
		_, _ = fmt.Fprintf(t, "%s\t%d of %d numbers differ\tby %.3g at most\n", x.Name, x.Changed, x.Elements, x.MaxAbs)
	}
	for _, c := range d.Provenance {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", c.Key, orNone(shorten(c.A)), orNone(shorten(c.B)))
	}
	if d.SameVersion {
		_, _ = fmt.Fprintln(t, "\none version: they score alike")
	}
	return t.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func shapeText(shape []int) string {
	if shape == nil {
		return "-"
	}
	return fmt.Sprint(shape)
}

// shorten cuts long provenance values, such as a fit's report, for tables.
func shorten(text string) string {
	const most = 100
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

func printModel(w io.Writer, d model.Description) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	bound := "not known"
	if d.MaxScore != nil {
		bound = fmt.Sprintf("%g", *d.MaxScore)
	}
	probes := strings.Join(d.Probes, ", ")
	if probes == "" {
		probes = "none"
	}
	learned := "none"
	if d.Companion > 0 {
		learned = fmt.Sprintf("%d numbers an item", d.Companion)
	}
	for _, row := range [][2]string{
		{"name", d.Name}, {"version", d.Version}, {"kind", string(d.Kind)},
		{"query dimension", fmt.Sprint(d.QueryDim)}, {"item dimension", fmt.Sprint(d.ItemDim)},
		{"feature row", fmt.Sprintf("%d numbers, %d bytes an item", d.Features, 4*d.Features)},
		{"components", fmt.Sprintf("%d of the query, %d of the item", d.Pairs[0], d.Pairs[1])},
		{"unit vectors", yesNo(d.Normalise)}, {"user ids", yesNo(d.UserIDs)},
		{"one inner product", yesNo(d.OneProbe)}, {"greatest score", bound},
		{"learned probes", probes}, {"learned companion", learned}, {"parameters", fmt.Sprint(d.Parameters)},
	} {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	_, _ = fmt.Fprintln(t, "\ntensors")
	for _, tensor := range d.Tensors {
		_, _ = fmt.Fprintf(t, "  %s\t%v\n", tensor.Name, tensor.Shape)
	}
	printSupports(t, d)
	if len(d.Provenance) > 0 {
		_, _ = fmt.Fprintln(t, "\nprovenance")
	}
	for _, key := range sortedKeys(d.Provenance) {
		_, _ = fmt.Fprintf(t, "  %s\t%s\n", key, shorten(d.Provenance[key]))
	}
	return t.Flush()
}

// printSupports prints the support items and queries of a relevance-based model, the first few of
// each. --output json lists all.
func printSupports(w io.Writer, d model.Description) {
	const most = 10
	var c rbe.Config
	if d.Kind != rerank.KindRBE || json.Unmarshal(d.Config, &c) != nil {
		return
	}
	_, _ = fmt.Fprintf(w, "\nsupport items\t%d\n", len(c.SupportItems))
	for _, id := range c.SupportItems[:min(most, len(c.SupportItems))] {
		_, _ = fmt.Fprintf(w, "  %s\n", id)
	}
	_, _ = fmt.Fprintf(w, "\nsupport queries\t%d\n", len(c.SupportQueries))
	for i, id := range c.SupportQueries[:min(most, len(c.SupportQueries))] {
		text := "content not known"
		if len(c.Questions) > 0 {
			text = c.Questions[i].Text
		}
		_, _ = fmt.Fprintf(w, "  %s\t%s\n", id, shorten(text))
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
