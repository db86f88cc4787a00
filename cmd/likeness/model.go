package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank/model"
)

func newModelCommand(a *app) *cobra.Command {
	return newGroup("model", "Show and import models", newModelShowCommand(a), newModelImportCommand(a))
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
		m, err := model.Open(args[0])
		if err != nil {
			return err
		}
		d := m.Describe()
		return a.print(*out, d, func(w io.Writer) error { return printModel(w, d) })
	}
	return cmd
}

func newModelImportCommand(a *app) *cobra.Command {
	var name string
	var force bool
	cmd := &cobra.Command{
		Use:   "import FROM TO",
		Short: "Write a model directory as one native file",
		Long: `Reads a directory with model.safetensors, config.json and, where there are
learned probes, distilled.safetensors, under the names that RAILS gives its
tensors, checks it, and writes one native file. The version stays: it is the
digest of what decides a score.`,
		Example: "  likeness model import examples/models/banking77-mol banking77.safetensors",
		Args:    cobra.ExactArgs(2),
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the model; empty keeps it")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if there is one")
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, err := importModel(args[0], args[1], name, force)
		if err != nil {
			return err
		}
		d := m.Describe()
		return a.print(*out, d, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "wrote %s: model %s, version %s\n", args[1], d.Name, d.Version)
			return err
		})
	}
	return cmd
}

func importModel(from, to, name string, force bool) (*model.Model, error) {
	if _, err := os.Lstat(to); err == nil && !force {
		return nil, fmt.Errorf("%s exists; replace it with --force", to)
	}
	m, err := model.Open(from)
	if err != nil {
		return nil, err
	}
	if name != "" {
		m.Name = name
	}
	return m, model.Write(to, m)
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
	for _, row := range [][2]string{
		{"name", d.Name}, {"version", d.Version}, {"kind", string(d.Kind)},
		{"query dimension", fmt.Sprint(d.QueryDim)}, {"item dimension", fmt.Sprint(d.ItemDim)},
		{"feature row", fmt.Sprintf("%d numbers, %d bytes an item", d.Features, 4*d.Features)},
		{"components", fmt.Sprintf("%d of the query, %d of the item", d.Pairs[0], d.Pairs[1])},
		{"unit vectors", yesNo(d.Normalise)}, {"user ids", yesNo(d.UserIDs)},
		{"one inner product", yesNo(d.OneProbe)}, {"greatest score", bound},
		{"learned probes", probes}, {"parameters", fmt.Sprint(d.Parameters)},
	} {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	_, _ = fmt.Fprintln(t, "\ntensors")
	for _, tensor := range d.Tensors {
		_, _ = fmt.Fprintf(t, "  %s\t%v\n", tensor.Name, tensor.Shape)
	}
	if len(d.Provenance) > 0 {
		_, _ = fmt.Fprintln(t, "\nprovenance")
	}
	for _, key := range sortedKeys(d.Provenance) {
		_, _ = fmt.Fprintf(t, "  %s\t%s\n", key, d.Provenance[key])
	}
	return t.Flush()
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
