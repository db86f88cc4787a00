package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/dataset"
	"github.com/likenessdb/likeness/sidecar/eval"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

const evalLong = `Ranks every item for every query by a model, exactly, and compares the ranking
with logged pairs and with a plain baseline. With --strategies it also runs each
first-stage strategy through the real pipeline over an exact in-memory store and
reports what share of the exact answer it finds.

` + dataHelp + `

Means are over the queries with at least one pair; equal scores rank by id.

  recall@k            relevant items in the top k / all relevant items
  hit_rate@k          any relevant item in the top k
  mrr@k               1 / rank of the first relevant item in the top k, or 0
  p@k                 relevant items in the top k / k
  first_stage_recall  share of the exact top k that a strategy found

Vectors of the cosine baseline, and of a model fitted on unit vectors, are
normalised again in float32.

Strategies: ` + eval.TrialSyntax

// evalFlags are the flags of eval.
type evalFlags struct {
	dataFlags
	model                string
	baseline, strategies string
	k, every             int
}

func newEvalCommand(a *app) *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval",
		Short: "Measure a model against logged pairs and a plain baseline",
		Long:  evalLong,
		Example: `  likeness eval --model my-model/ --items items.npy --queries queries.npy --pairs pairs.csv --k 10
  likeness eval --model my-model/ --items items.npy --queries queries.npy --pairs pairs.csv --every 6 \
    --strategies per_embedding:50,average:200,combined:50:500,distilled:200,stored:200 --output json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "model file or directory")
	f.registerData(cmd, true)
	flags.IntVar(&f.k, "k", 10, "length of the ranking")
	flags.IntVar(&f.every, "every", 1, "use every nth query row only")
	flags.StringVar(&f.baseline, "baseline", "cosine", "compare with cosine, dot or none")
	flags.StringVar(&f.strategies, "strategies", "", "first-stage strategies to compare, separated by commas")
	_ = cmd.MarkFlagRequired("model")
	_ = cmd.RegisterFlagCompletionFunc("baseline", cobra.FixedCompletions([]string{"cosine", "dot", "none"}, cobra.ShellCompDirectiveNoFileComp))
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, log, err := f.run(cmd.Context(), newProgress(a.stderr))
		if err != nil {
			return err
		}
		for _, line := range dropped(log) {
			_, _ = fmt.Fprintln(a.stderr, line)
		}
		return a.print(*out, report, func(w io.Writer) error { return printReport(w, report) })
	}
	return cmd
}

// run also returns what was left out of the log.
func (f *evalFlags) run(ctx context.Context, p *progress) (_ *eval.Report, _ *dataset.Counts, err error) {
	in := eval.Input{K: f.k, Every: f.every, Progress: p.begin}
	if in.Trials, err = eval.ParseTrials(f.strategies); err != nil {
		return nil, nil, usageError{err}
	}
	if in.Model, err = openModel(f.model); err != nil {
		return nil, nil, err
	}
	if in.Baseline, err = baseline(f.baseline, in.Model.Spec().ItemDim); err != nil {
		return nil, nil, err
	}
	f.NaNItems = true // they rank last
	d, err := f.open(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	in.Items, in.Queries, in.ItemIDs, in.UserIDs = d.Items, d.Queries, d.ItemIDs, d.UserIDs
	in.Pairs = eval.NewPairs(d.Relevant)
	report, err := eval.Run(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	report.Counts.DuplicatePairs, report.Counts.UnknownItems = d.Counts.DuplicatePairs, d.Counts.UnknownItems
	return report, &d.Counts, nil
}

// baseline is the plain similarity that a model is compared with.
func baseline(name string, dim int) (pipeline.Model, error) {
	if name == "none" {
		return pipeline.Model{}, nil
	}
	if name != "cosine" && name != "dot" {
		return pipeline.Model{}, usagef("--baseline %q is none of cosine, dot and none", name)
	}
	s, err := dot.New(dot.Config{Dim: dim, Normalise: name == "cosine"}, nil)
	return pipeline.Model{Name: name, Similarity: s}, err
}

func printReport(w io.Writer, r *eval.Report) error {
	_, _ = fmt.Fprintf(w, "model %s (%s, version %s): %d items, %d queries with %d pairs\n\n",
		r.Model.Name, r.Model.Kind, r.Model.Version, r.Counts.Items, r.Counts.Queries, r.Counts.Pairs)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\tmodel\t%s\t\n", r.BaselineName)
	for _, name := range metricNames(r.K) {
		_, _ = fmt.Fprintf(t, "%s\t%.4f\t", name, r.Metrics[name])
		if r.Baseline != nil {
			_, _ = fmt.Fprintf(t, "%.4f\t", r.Baseline[name])
		}
		_, _ = fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil || len(r.Strategies) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "strategy\tcandidates\tfirst-stage recall\texact\tmrr@%d\tp@%d\tp50 ms\tp99 ms\t\n", r.K, r.K)
	for _, s := range r.Strategies {
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%.4f\t%.0f%%\t%.4f\t%.4f\t%.2f\t%.2f\t\n", s.Name, s.Candidates, s.FirstStageRecall, 100*s.Exact,
			s.Metrics[fmt.Sprintf("mrr@%d", r.K)], s.Metrics[fmt.Sprintf("p@%d", r.K)], s.P50, s.P99)
	}
	return t.Flush()
}

// metricNames are the names of a report in the order in which people read them.
func metricNames(k int) []string {
	var names []string
	for _, metric := range []string{"mrr", "recall", "hit_rate", "p"} {
		for _, c := range eval.Cutoffs(k) {
			names = append(names, fmt.Sprintf("%s@%d", metric, c))
		}
	}
	return names
}
