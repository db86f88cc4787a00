package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/bench"
)

const benchScanLong = `Scans a table for the exact top K. Reports the time of one pass as a share of the
processor's peak or the memory's bandwidth, whichever limits it; both are measured
between the passes.

Items are random. With --model they are the rows of --vectors, repeated with a random
change of a tenth of their length, so that bounds work as on a real collection.
scored_share is the share of items that no bound ruled out.`

// benchScanFlags are the flags of bench scan.
type benchScanFlags struct {
	bench.Scanning
	kind, format, kernel    string
	model, vectors, queries string
}

func newBenchScanCommand(a *app) *cobra.Command {
	f := &benchScanFlags{}
	cmd := &cobra.Command{
		Use:   "scan",
		Short: "Measure exact scans of a resident table, as a share of the machine's limit",
		Long:  benchScanLong,
		Example: `  likeness bench scan --items 100000 --shape 8x4x64 --hidden 128 --threads 1 --output json
  likeness bench scan --kind dot --shape 256 --items 1000000 --threads 2
  likeness bench scan --model examples/models/banking77-questions-mol --vectors examples/data/banking77/items_vectors.npy --queries examples/data/banking77/test_vectors.npy`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		if err := f.open(); err != nil {
			return err
		}
		result, err := bench.RunScan(cmd.Context(), f.Scanning)
		if errors.Is(err, bench.ErrShape) {
			return usagef("--shape: %w", err)
		}
		if err != nil {
			return err
		}
		return a.print(*out, result, func(w io.Writer) error { return printScans(w, result) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *benchScanFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", "mol", "kind of similarity: mol, bilinear, maxsim or dot")
	flags.StringVar(&f.Shape, "shape", "8x4x64", "mol: query x item components x dimension; maxsim: vectors x dimension; others: dimension")
	flags.IntVar(&f.Hidden, "hidden", 128, "width of the gates of mol")
	flags.BoolVar(&f.QueryOnly, "query-only", false, "the gates of mol depend on the query alone")
	flags.StringVar(&f.model, "model", "", "model to scan with, instead of a made-up one")
	flags.StringVar(&f.vectors, "vectors", "", "with --model: the items' vectors, .npy")
	flags.StringVar(&f.queries, "queries", "", "with --model: the queries' vectors, .npy")
	flags.IntVar(&f.Items, "items", 100_000, "items of the table")
	flags.IntVar(&f.K, "k", 10, "length of an answer")
	flags.IntVar(&f.Batch, "batch", 1, "queries that share a pass")
	flags.IntVar(&f.Threads, "threads", 1, "threads at once")
	flags.StringVar(&f.format, "format", string(rerank.FormatFloat32), "numbers of the table: float32, bfloat16, float16 or int8")
	flags.BoolVar(&f.Tiles, "tiles", false, "store float32 rows in tiles, as other formats always are")
	flags.BoolVar(&f.Full, "full-precision", false, "keep float32 rows beside another format, and score those")
	flags.BoolVar(&f.Whole, "whole", false, "score every item, whatever a bound says")
	flags.StringVar(&f.kernel, "kernel", "", "go, avx2, avx512 or neon; empty is the fastest")
	flags.IntVar(&f.Runs, "runs", 20, "passes that are measured, at least")
	flags.DurationVar(&f.Budget, "time", time.Second, "time to measure for, at least")
	cmd.MarkFlagsRequiredTogether("model", "vectors", "queries")
}

func (f *benchScanFlags) check() (err error) {
	f.Kind, f.Format = rerank.Kind(f.kind), rerank.Format(f.format)
	switch {
	case min(f.Items, f.K, f.Batch, f.Threads, f.Runs, f.Hidden) < 1:
		return usagef("--items, --k, --batch, --threads, --runs and --hidden start at 1")
	case f.Items > 1<<24 || f.Batch > 1<<12 || f.Hidden > 1<<16:
		return usagef("--items ends at 16,777,216, --batch at 4,096, --hidden at 65,536")
	}
	f.Kernel, err = checkScoring(f.Kind, f.Format, f.Threads, f.kernel)
	return err
}

// open reads the model and its vectors, if flags name them.
func (f *benchScanFlags) open() (err error) {
	if f.model == "" {
		return nil
	}
	if f.Model, err = model.Open(f.model); err != nil {
		return err
	}
	f.Shape = ""
	spec := f.Model.Spec()
	if f.Vectors, err = readBenchVectors("vectors", f.vectors, spec.ItemDim); err != nil {
		return err
	}
	f.Queries, err = readBenchVectors("queries", f.queries, spec.QueryDim)
	return err
}

// readBenchVectors reads the .npy file of a flag into memory. Its rows must have dim numbers.
func readBenchVectors(flag, path string, dim int) (rerank.Matrix, error) {
	m, err := npy.Open(path)
	if err != nil {
		return rerank.Matrix{}, err
	}
	v := rerank.Matrix{Rows: m.Rows, Cols: m.Cols, Data: slices.Clone(m.Data)}
	if err := m.Close(); err != nil {
		return rerank.Matrix{}, err
	}
	if v.Rows == 0 || v.Cols != dim {
		return rerank.Matrix{}, usagef("--%s: %s has %d rows of %d numbers, want rows of %d", flag, path, v.Rows, v.Cols, dim)
	}
	return v, nil
}

func printScans(w io.Writer, r bench.Scans) error {
	what := r.Shape
	if r.Model != "" {
		what = "model " + r.Model
	}
	_, err := fmt.Fprintf(w, `%s %s, %d items, %s, batch %d, %d thread(s), kernel %s
%.3f ms at least, %.3f half of the time, %.3f at p99 (%d passes)
%.1f %% of the items were scored in float32
%.1f million items/s, %.1f GFLOP/s of %.1f, %.1f GB/s of %.1f: %.0f %% of the limit (%s)
`, r.Kind, what, r.Items, r.Format, r.Batch, r.Threads, r.Kernel, r.MS.Min, r.MS.P50, r.MS.P99, r.Runs, 100*r.Scored,
		r.ItemsPerSecond/1e6, r.GFLOPS, r.PeakGFLOPS, r.GBs, r.SequentialGBs, 100*r.ShareOfLimit, r.Binds)
	return err
}
