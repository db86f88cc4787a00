package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/sidecar/bench"
)

const benchScoreLong = `Scores random candidates, and measures the processor's peak between the rounds. ms.min
is the time of the fastest round, and gflops its multiply-adds, counted as two
operations. Candidates are stored in tiles; --gather picks random rows of a table
instead.`

// benchScoreFlags are the flags of bench score.
type benchScoreFlags struct {
	bench.Scoring
	kind, format, kernel string
	tableMiB             int
}

func newBenchScoreCommand(a *app) *cobra.Command {
	f := &benchScoreFlags{}
	cmd := &cobra.Command{
		Use:   "score",
		Short: "Measure the scoring of candidates, as a share of the processor's peak",
		Long:  benchScoreLong,
		Example: `  likeness bench score --shape 8x4x64 --hidden 128 --candidates 4096 --batch 1 --threads 1 --output json
  likeness bench score --kind maxsim --shape 32x4x128 --candidates 1000 --gather`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(f.Threads))
		result, err := bench.RunScore(cmd.Context(), f.Scoring)
		if errors.Is(err, bench.ErrShape) {
			return usagef("--shape: %w", err)
		}
		if err != nil {
			return err
		}
		return a.print(*out, result, func(w io.Writer) error { return printScored(w, result) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *benchScoreFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", "mol", "kind of similarity: mol, bilinear, maxsim or dot")
	flags.StringVar(&f.Shape, "shape", "8x4x64", "mol, maxsim: query x item components x dimension; bilinear: dimension[xrank]; dot: dimension")
	flags.IntVar(&f.Hidden, "hidden", 128, "width of the gates of mol")
	flags.IntVar(&f.Candidates, "candidates", 4096, "candidates of a query")
	flags.IntVar(&f.Batch, "batch", 1, "queries of a round, each with its own candidates")
	flags.BoolVar(&f.Shared, "shared", false, "a round's queries share their candidates, scored in one call")
	flags.BoolVar(&f.Encode, "encode", false, "a round encodes its queries too")
	flags.IntVar(&f.Threads, "threads", 1, "threads at once")
	flags.StringVar(&f.format, "format", string(rerank.FormatFloat32), "numbers of the table: float32, bfloat16, float16 or int8")
	flags.BoolVar(&f.Gather, "gather", false, "pick the candidates at random from a table")
	flags.IntVar(&f.Rows, "rows", 1_000_000, "with --gather: rows of the table")
	flags.IntVar(&f.tableMiB, "table-mib", 2048, "with --gather: the table's memory at most")
	flags.StringVar(&f.kernel, "kernel", "", "go, avx2, avx512 or neon; empty is the fastest")
	flags.IntVar(&f.Runs, "runs", 30, "rounds that are measured, at least")
	flags.DurationVar(&f.Budget, "time", time.Second, "time to measure for, at least")
}

func (f *benchScoreFlags) check() (err error) {
	f.Kind, f.Format, f.TableBytes = rerank.Kind(f.kind), rerank.Format(f.format), f.tableMiB<<20
	switch {
	case min(f.Candidates, f.Batch, f.Threads, f.Rows, f.tableMiB, f.Runs, f.Hidden) < 1:
		return usagef("--candidates, --batch, --threads, --rows, --table-mib, --runs and --hidden start at 1")
	case f.Candidates > 1<<24 || f.Batch > 1<<12 || f.Hidden > 1<<16:
		return usagef("--candidates ends at 16,777,216, --batch at 4,096, --hidden at 65,536")
	}
	f.Kernel, err = checkScoring(f.Kind, f.Format, f.Threads, f.kernel)
	return err
}

// checkScoring validates the flags that bench score and bench scan share, and returns the kernels.
func checkScoring(kind rerank.Kind, format rerank.Format, threads int, kernels string) (*kernel.Set, error) {
	kinds := []rerank.Kind{rerank.KindMoL, rerank.KindBilinear, rerank.KindMaxSim, rerank.KindDot}
	switch {
	case !slices.Contains(kinds, kind):
		return nil, usagef("--kind %q is none of %q", kind, kinds)
	case !slices.Contains(rerank.Formats(), format):
		return nil, usagef("--format %q is none of %q", format, rerank.Formats())
	case threads > runtime.NumCPU():
		return nil, usagef("--threads %d: this machine runs %d at once", threads, runtime.NumCPU())
	}
	k, err := kernel.Named(kernels)
	if err != nil {
		return nil, usagef("--%w", err)
	}
	return k, nil
}

func printScored(w io.Writer, r bench.Scored) error {
	where := "in a row"
	if r.Gather {
		where = fmt.Sprintf("gathered from %d rows", r.Rows)
	}
	_, err := fmt.Fprintf(w, `%s %s, %d candidates %s, %s, batch %d, %d thread(s), kernel %s
%.3f ms at least, %.3f half of the time, %.3f at p99 (%d rounds)
%.1f GFLOP/s of %.1f: %.0f %% of the peak
`, r.Kind, r.Shape, r.Candidates, where, r.Format, r.Batch, r.Threads, r.Kernel,
		r.MS.Min, r.MS.P50, r.MS.P99, r.Runs, r.GFLOPS, r.PeakGFLOPS, 100*r.ShareOfPeak)
	return err
}
