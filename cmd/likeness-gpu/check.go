//go:build cuda

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/plugin/device"
)

// errParity: the device's answers are not the CPU's.
var errParity = errors.New("the device does not agree with the CPU")

// checked is the JSON report of `likeness-gpu check`.
type checked struct {
	Version string          `json:"version"`
	Device  gpu.Facts       `json:"device"`
	Cases   []parity.Result `json:"cases"`
	Failed  int             `json:"failed"`
}

func newCheck(stdout, stderr io.Writer) *cobra.Command {
	var (
		machine machineFlags
		o       parity.Options
		output  string
		golden  string
	)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the device with the CPU",
		Long: `check prints what the device is and compares its answers with the CPU's plain Go
kernels: every kind of similarity in odd sizes, and a MoL of every shape that has
kernels of its own and of one that has none, of random weights and rows, some of which
are not finite; then the golden cases, whose scores come from reference
implementations. It compares the upper bound of every row with the CPU's score, too:
"room used" is the greatest share of a bound's room that an error takes. The exit code is 1 if a case failed.`,
		Example: `  likeness-gpu check
  likeness-gpu check --rows 100000 --queries 100 --output json
  likeness-gpu check --golden testdata/golden`,
		Args: cobra.NoArgs,
	}
	machine.add(cmd)
	cmd.Flags().IntVar(&o.Rows, "rows", 20000, "rows of a table")
	cmd.Flags().IntVar(&o.Queries, "queries", 20, "queries of a case")
	cmd.Flags().IntVar(&o.K, "k", 10, "rows of an answer")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "of what is made up")
	cmd.Flags().StringVar(&golden, "golden", "", "folder of the golden cases; empty: testdata/golden, here or beside the program's folder; none: without them")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "what to print: text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if output != "text" && output != "json" || o.Rows < 10 || o.Queries < 1 || o.K < 1 {
			return fmt.Errorf("--output is %q, want text or json; --rows is 10 at least, --queries and --k are 1", output)
		}
		subjects, err := subjectsOf(golden, o)
		if err != nil {
			return err
		}
		d, err := machine.open(slog.New(slog.NewTextHandler(stderr, nil)))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		o.Bounds = func(ctx context.Context, v device.Version, s *parity.Subject) (int, float64, error) {
			b, err := d.CheckBounds(ctx, v, s.Rows, s.Queries)
			return b.Pairs, b.Room, err
		}
		c := checked{Version: build().Version, Device: d.Facts()}
		err = parity.Check(cmd.Context(), d, subjects, o, func(r parity.Result) {
			c.Cases = append(c.Cases, r)
			_, _ = fmt.Fprintf(stderr, "case %d of %d: %s\n", len(c.Cases), len(subjects), r.Case)
			if r.Failed != "" {
				c.Failed++
			}
		})
		if err = errors.Join(err, c.print(stdout, output)); err == nil && c.Failed > 0 {
			err = fmt.Errorf("%w: %d of %d cases failed", errParity, c.Failed, len(c.Cases))
		}
		return err
	}
	return cmd
}

// subjectsOf returns the models that a check compares.
func subjectsOf(golden string, o parity.Options) ([]parity.Subject, error) {
	shapes := []parity.Shape{{PairsQuery: 3, PairsItem: 5, Dim: 7, Hidden: 9}}
	for _, s := range kernels.Shapes() {
		shapes = append(shapes, parity.Shape(s))
	}
	slices.SortFunc(shapes, func(a, b parity.Shape) int { return strings.Compare(a.String(), b.String()) })
	subjects, err := parity.Random(shapes, o)
	if err != nil || golden == "none" {
		return subjects, err
	}
	cases, err := parity.Golden(goldenFolder(golden))
	if err != nil {
		return nil, err
	}
	for i := range cases {
		cases[i].Queries = cases[i].Queries[:min(o.Queries, len(cases[i].Queries))]
	}
	return append(subjects, cases...), nil
}

// goldenFolder is where the golden cases are: what was said, or here, or where a bundle
// has them.
func goldenFolder(said string) string {
	here := filepath.Join("testdata", "golden")
	if said != "" {
		return said
	}
	if _, err := os.Stat(here); err == nil {
		return here
	}
	if program, err := os.Executable(); err == nil {
		return filepath.Join(filepath.Dir(filepath.Dir(program)), here)
	}
	return here
}

func (c *checked) print(w io.Writer, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(c)
	}
	f := c.Device
	_, _ = fmt.Fprintf(w, "%s, capability %s, %d multiprocessors, driver %s, %d of %d MiB free\n\n",
		f.Name, f.Capability, f.Processors, f.Driver, f.Free>>20, f.Memory>>20)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "case\trows\tqueries\tsame order\terror\tat most\tgolden error\tbounds\troom used\t")
	for _, r := range c.Cases {
		golden, bounds, failed := "", "\t", ""
		if r.Bounds > 0 {
			bounds = fmt.Sprintf("%d\t%.3f", r.Bounds, r.BoundsRoom)
		}
		if r.Golden {
			golden = fmt.Sprintf("%.2g", r.GoldenError)
		}
		if r.Failed != "" {
			failed = "FAILED: " + r.Failed
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.2g\t%.2g\t%s\t%s\t%s\n", r.Case, r.Rows, r.Queries, r.Same, r.Error, r.Epsilon, golden, bounds, failed)
	}
	return t.Flush()
}
