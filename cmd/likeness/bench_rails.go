package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/bench"
)

const benchRAILSLong = `Finds the top K of a Mixture-of-Logits by an exact scan and by each strategy, and prints
what table 5 of "Retrieval with Learned Similarities" prints: the share of the exact top
K that a strategy returns, its candidates, and the time of a batch. Lists are searched
exactly, in this process. A second table has algorithm 1 and the share of the items that
its second pass scores, a third one the best items of the first query.

--checkpoint is a model, or, with --config, a RAILS state dict. Without it, the model and
--count items are random, of the given --shape.`

// railsFlags are the flags of bench rails.
type railsFlags struct {
	bench.Retrieval
	checkpoint, config, items, queries string
}

func newBenchRAILSCommand(a *app) *cobra.Command {
	f := &railsFlags{}
	cmd := &cobra.Command{
		Use:   "rails",
		Short: "Compare the strategies of a Mixture-of-Logits with an exact scan and algorithm 1",
		Long:  benchRAILSLong,
		Example: `  likeness bench rails --checkpoint examples/models/banking77-questions-mol --items examples/data/banking77/train_vectors.npy --queries examples/data/banking77/test_vectors.npy
  likeness bench rails --shape 8x4x128 --count 27278 --threads 2`,
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
		result, err := bench.RunRetrieval(cmd.Context(), f.Retrieval, func(name string) { _, _ = fmt.Fprintln(a.stderr, "measuring", name) })
		if errors.Is(err, bench.ErrShape) {
			return usagef("--shape or --checkpoint: %w", err)
		}
		if err != nil {
			return err
		}
		return a.print(*out, result, func(w io.Writer) error { return printRetrieved(w, result) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *railsFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.checkpoint, "checkpoint", "", "the model: a file or directory, or with --config a RAILS state dict")
	flags.StringVar(&f.config, "config", "", "config.json with the hyper-parameters of a state dict")
	flags.StringVar(&f.items, "items", "", "with --checkpoint: the items' vectors, .npy")
	flags.StringVar(&f.queries, "queries", "", "with --checkpoint: the queries' vectors, .npy; at most 256 are taken, equally spaced")
	flags.StringVar(&f.Shape, "shape", "8x4x64", "without --checkpoint: query x item components x dimension")
	flags.IntVar(&f.Hidden, "hidden", 128, "without --checkpoint: width of the gates")
	flags.IntVar(&f.Items, "count", 27_278, "without --checkpoint: items to make up")
	flags.IntSliceVar(&f.K, "k", []int{1, 5, 10, 50, 100}, "lengths of answers")
	flags.IntSliceVar(&f.Batches, "batch", []int{1, 32}, "queries that are answered at a time, for the times")
	flags.IntVar(&f.Threads, "threads", 1, "threads at once")
	flags.IntVar(&f.Runs, "runs", 5, "batches that are measured")
	flags.IntVar(&f.TwoPass, "two-pass", 8, "queries for which algorithm 1 runs; 0 leaves it out")
	cmd.MarkFlagsRequiredTogether("checkpoint", "items", "queries")
}

func (f *railsFlags) check() error {
	switch {
	case len(f.K) == 0 || slices.Min(f.K) < 1 || len(f.Batches) == 0 || slices.Min(f.Batches) < 1:
		return usagef("--k and --batch need numbers of at least 1")
	case min(f.Hidden, f.Items, f.Threads, f.Runs) < 1 || f.TwoPass < 0:
		return usagef("--hidden, --count, --threads and --runs start at 1, --two-pass at 0")
	case f.Items > 1<<24 || slices.Max(f.Batches) > 1<<12 || f.Hidden > 1<<16 || slices.Max(f.K) > 1<<16:
		return usagef("--count ends at 16,777,216, --batch at 4,096, --hidden and --k at 65,536")
	case f.Threads > runtime.NumCPU():
		return usagef("--threads %d: this machine runs %d at once", f.Threads, runtime.NumCPU())
	case f.config != "" && f.checkpoint == "":
		return usagef("--config is of a state dict; name it with --checkpoint")
	}
	slices.Sort(f.K)
	return nil
}

// maxRAILSQueries limits the queries of a measurement.
const maxRAILSQueries = 256

// open reads the checkpoint and its vectors, if there is one.
func (f *railsFlags) open() (err error) {
	if f.checkpoint == "" {
		return nil
	}
	if f.config == "" {
		f.Model, err = model.Open(f.checkpoint)
	} else {
		f.Model, err = importFlags{format: "rails", config: f.config}.read(f.checkpoint, &importResult{})
	}
	if err != nil {
		return badModel(err)
	}
	spec := f.Model.Spec()
	if f.Vectors, err = readBenchVectors("items", f.items, spec.ItemDim); err != nil {
		return err
	}
	all, err := readBenchVectors("queries", f.queries, spec.QueryDim)
	if err != nil {
		return err
	}
	n := min(all.Rows, maxRAILSQueries)
	f.Queries = rerank.NewMatrix(n, all.Cols)
	for i := range n { // equally spaced, because the file may be ordered
		copy(f.Queries.Row(i), all.Row(i*all.Rows/n))
	}
	return nil
}

func printRetrieved(w io.Writer, r bench.Retrieved) error {
	_, _ = fmt.Fprintf(w, "%s: %d items, %d queries, %d pairs of components, %d thread(s)\n\n", r.Model, r.Items, r.Queries, r.Pairs, r.Threads)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "method\t")
	for _, k := range r.K {
		_, _ = fmt.Fprintf(t, "HR@%d\t", k)
	}
	_, _ = fmt.Fprint(t, "scored\t")
	for _, b := range r.Batches {
		_, _ = fmt.Fprintf(t, "ms, batch %d\tof processors\t", b)
	}
	_, _ = fmt.Fprintln(t)
	for _, m := range r.Methods {
		_, _ = fmt.Fprintf(t, "%s\t", m.Name)
		for _, h := range m.Hit {
			if h < 0 {
				_, _ = fmt.Fprint(t, "-\t")
			} else {
				_, _ = fmt.Fprintf(t, "%.3f\t", h)
			}
		}
		_, _ = fmt.Fprintf(t, "%.0f\t", m.Candidates)
		for i, ms := range m.MS {
			_, _ = fmt.Fprintf(t, "%.2f\t%.2f\t", ms.Min, m.CPU[i].Min)
		}
		_, _ = fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "\nHR: share of the exact top K among the method's top K; -: fewer than K candidates. scored: items per query. ms: the quickest batch, and the least processor time of one.")
	if len(r.TwoPass) > 0 {
		_, _ = fmt.Fprintf(w, "\nAlgorithm 1, one query on one thread:\n")
		_, _ = fmt.Fprintln(t, "K\tfirst pass lists\tsecond pass scores\tas printed\tms\tthe scan's answer\t")
		for _, p := range r.TwoPass {
			_, _ = fmt.Fprintf(t, "%d\t%.0f\t%.1f %%\t%.1f %%\t%.2f\t%t\t\n", p.K, p.Candidates, 100*p.Second, 100*p.Printed, p.MS.Min, p.Same)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(r.Example) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\nThe best items of the first query:\n")
	_, _ = fmt.Fprintln(t, "item\tscore\tgreatest gate\tits logit\tsecond gate\tits logit\tbest rank by a pair\tby the average\t")
	for _, e := range r.Example {
		_, _ = fmt.Fprintf(t, "%d\t%.3f\t", e.Item, e.Score)
		for i := range 2 {
			if i < len(e.Terms) {
				_, _ = fmt.Fprintf(t, "%.2f\t%.3f\t", e.Terms[i].Gate, e.Terms[i].Logit)
			} else {
				_, _ = fmt.Fprint(t, "-\t-\t")
			}
		}
		_, _ = fmt.Fprintf(t, "%d\t%d\t\n", e.Pair, e.Average)
	}
	return t.Flush()
}
