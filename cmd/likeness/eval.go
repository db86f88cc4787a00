package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/eval/report"
	"github.com/likenessdb/likeness/learn/trial"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

const evalLong = `Ranks all items for every query, and compares the rankings with logged pairs and with a
plain baseline. Reports whether a model is worth it, with which confidence, and which is
the simplest model that is as good as the best. --strategies reports what each first
stage loses.

` + dataHelp + `

docs/reference/eval-report.md defines the figures, docs/how-to/evaluate.md the verdict.

Strategies: ` + eval.TrialSyntax

// evalFlags are the flags of eval.
type evalFlags struct {
	dataFlags
	input                eval.Input // what the flags of the figures set
	models               []string
	baseline, strategies string
	title, html          string
	trainedPairs         string
	trainedQueries       string
	clickFlags
}

func newEvalCommand(a *app) *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval",
		Short: "Say whether a model is worth it, against logged pairs and a plain baseline",
		Long:  evalLong,
		Example: `  likeness eval --model my-model/ --items items.npy --queries queries.npy --pairs pairs.csv --k 10
  likeness eval --model w.safetensors --model r32.safetensors --model mol.safetensors --items items.npy \
    --queries queries.npy --pairs test.csv --trained-pairs train.csv --html report.html
  likeness eval --model w.safetensors --items items.npy --queries queries.npy --pairs few.csv --power=0.005
  likeness eval --model colbert.safetensors --items tokens.npy --item-counts counts.npy --queries query-tokens.npy \
    --query-counts query-counts.npy --pairs pairs.csv --strategies companion:200,average:200
  likeness eval --model my-model/ --items items.npy --queries queries.npy --pairs pairs.csv --every 6 \
    --strategies per_embedding:50,average:200,combined:50:500,distilled:200,stored:200 --output json`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, log, err := f.run(cmd.Context(), a)
		if err != nil {
			return err
		}
		for _, line := range droppedLines(log) {
			_, _ = fmt.Fprintln(a.stderr, line)
		}
		if f.html != "" {
			if err := report.WriteFile(f.html, r); err != nil {
				return err
			}
		}
		return a.print(*out, r, func(w io.Writer) error { return printReport(w, r) })
	}
	return cmd
}

func (f *evalFlags) add(cmd *cobra.Command) {
	flags, in := cmd.Flags(), &f.input
	flags.StringArrayVar(&f.models, "model", nil, "model file or directory; may be repeated to compare")
	f.registerData(cmd, true)
	f.registerCounts(cmd)
	flags.StringVar(&f.trainedPairs, "trained-pairs", "", "log of the fit: gives items' popularity, which are cold, and, by query ids, which queries are new")
	flags.StringVar(&f.trainedQueries, "trained-queries", "", "queries of the fit: those with an equal vector were seen before, and count with --by-traffic only")
	flags.BoolVar(&in.ByTraffic, "by-traffic", false, "count a query as often as --pairs has it, in every mean and in the verdict")
	flags.StringVar(&f.html, "html", "", "write a report with plots to this file")
	flags.IntVar(&in.K, "k", 10, "length of an answer")
	flags.IntVar(&in.Every, "every", 1, "use every nth query row only")
	flags.StringVar(&in.Metric, "metric", "", "metric of differences, segments and the verdict, as ndcg@10; empty is mrr@k")
	flags.StringVar(&f.title, "title", "", "payload field of a collection that regressions show; empty picks one")
	flags.StringVar(&f.baseline, "baseline", "cosine", "compare with cosine, dot or none")
	flags.StringVar(&f.strategies, "strategies", "", "first-stage strategies to compare, separated by commas")
	flags.IntVar(&in.Resamples, "resamples", 2000, "bootstrap samples of the intervals")
	flags.Float64Var(&in.Confidence, "confidence", 0.95, "confidence of the intervals")
	flags.Float64Var(&in.Margin, "margin", verdict.DefaultMargin, "share of the best model's gain that a simpler one may lose and still be as good")
	flags.Float64Var(&in.LeastGain, "least-gain", 0, "smallest gain worth having; 0 is 0.01, or a tenth of the baseline if less")
	flags.Float64Var(&in.Power, "power", 0, "say how many queries show a difference with a chance of 80 %; --power=0.005 names it")
	flags.Lookup("power").NoOptDefVal = "0.01"
	flags.Uint64Var(&in.Seed, "seed", 1, "seed of the bootstrap")
	f.clickFlags.register(cmd)
	_ = cmd.MarkFlagRequired("model")
	_ = cmd.MarkFlagFilename("html", "html")
	_ = cmd.MarkFlagFilename("trained-queries", queryFiles...)
	_ = cmd.MarkFlagFilename("trained-pairs", "csv", "jsonl", "ndjson", "parquet")
	_ = cmd.RegisterFlagCompletionFunc("baseline", cobra.FixedCompletions([]string{"cosine", "dot", "none"}, cobra.ShellCompDirectiveNoFileComp))
}

// run evaluates the models. It also returns how many rows of the log were left out.
func (f *evalFlags) run(ctx context.Context, a *app) (_ *eval.Report, _ *dataset.Counts, err error) {
	in, p := f.input, newProgress(a.stderr)
	in.Progress = p.begin
	if in.Resamples < 1 || !(in.Confidence > 0 && in.Confidence < 1) {
		return nil, nil, usagef("--resamples %d, --confidence %v: want 1 at least, and above 0 and below 1", in.Resamples, in.Confidence)
	}
	if err := f.clickFlags.check(); err != nil {
		return nil, nil, err
	}
	if in.Trials, err = eval.ParseTrials(f.strategies); err != nil {
		return nil, nil, usageError{err}
	}
	if err := f.openModels(&in); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, closeVectors(&in)) }()
	if in.Baseline, err = baseline(f.baseline, in.Model.Similarity.Spec().ItemDim); err != nil {
		return nil, nil, err
	}
	f.History.Unit = in.Model.Similarity.Spec().Normalise
	f.NaNItems = f.Items == "" // a collection's items without a finite vector rank last
	d, err := f.open(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	in.Items, in.Queries, in.ItemIDs, in.QueryIDs, in.UserIDs = d.Items, d.Queries, d.ItemIDs, d.QueryIDs, d.UserIDs
	in.ItemStarts, in.QueryStarts = d.ItemStarts, d.QueryStarts
	if in.Pairs, err = eval.NewWeightedPairs(d.Relevant, d.Weights); err != nil {
		return nil, nil, err
	}
	in.Seen = d.Seen
	if curve := f.clickFlags.curve(d, in.Seed); curve != nil {
		in.Clicked = &eval.Clicked{Answers: d.Answers, Curve: curve, Clip: f.clip}
	}
	in.Asked = d.Asked
	if in.SeenBefore, err = f.findSeen(ctx, d); err != nil {
		return nil, nil, badDataset(err)
	}
	in.NewOnly = f.trainedQueries != "" && !in.ByTraffic
	if f.trainedPairs != "" {
		if in.Popularity, err = d.Popularity(ctx, f.trainedPairs); err != nil {
			return nil, nil, badDataset(err)
		}
	}
	if f.html != "" && in.Trials == nil && f.baseline != "none" {
		in.Trials = eval.StoredTrials(in.K, d.ItemCount())
	}
	r, err := eval.Run(ctx, in)
	if errors.Is(err, eval.ErrInput) || errors.Is(err, route.ErrSetup) {
		err = usageError{err}
	}
	if err != nil {
		return nil, nil, err
	}
	r.Counts.DuplicatePairs, r.Counts.UnknownItems = d.Counts.DuplicatePairs, d.Counts.UnknownItems
	r.Counts.MissingItems, r.Counts.FirstMissingItem = d.Counts.MissingItems, d.Counts.FirstMissingItem
	return r, &d.Counts, f.nameRegressions(ctx, a, r)
}

// findSeen marks the queries that the fit learned from, by their vectors or else by their ids.
// It returns nil if neither tells.
func (f *evalFlags) findSeen(ctx context.Context, d *dataset.Dataset) ([]bool, error) {
	switch {
	case f.trainedQueries != "" && d.QueryStarts != nil:
		return nil, usagef("--trained-queries: queries of several vectors are not compared; give --query-ids and --trained-pairs, which name those of the fit")
	case f.trainedQueries != "":
		trained, err := dataset.OpenQueries(ctx, f.trainedQueries, f.Embedder, f.Progress)
		if err != nil {
			return nil, fmt.Errorf("--trained-queries: %w", err)
		}
		return d.EqualTo(trained.Matrix), trained.Close()
	case f.trainedPairs != "" && d.QueryIDs != nil && f.History.Path == "": // a history is another query at every time
		return d.AskedIn(ctx, f.trainedPairs)
	default:
		return nil, nil
	}
}

// nameRegressions reads what the rows in the regressions are, if they are rows of a
// collection.
func (f *evalFlags) nameRegressions(ctx context.Context, a *app, r *eval.Report) (err error) {
	if f.Items != "" {
		return nil
	}
	c, err := config.Load(f.config.Source)
	if err != nil {
		return err
	}
	store, err := f.openCollection(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	titles, unknown, err := trial.Titles(ctx, f.Collection.Store, f.Collection.Name, r.RegressionItems(), f.title)
	if unknown != "" {
		a.warn([]string{"--title: " + unknown + "; regressions show the one that was picked"})
	}
	r.NameRegressions(titles)
	return err
}

// badDataset turns the error of invalid input into wrong usage.
func badDataset(err error) error {
	if errors.Is(err, dataset.ErrInput) {
		return usageError{err}
	}
	return err
}

// openModels opens the models of --model. If several have the same name, it numbers them.
func (f *evalFlags) openModels(in *eval.Input) error {
	seen := map[string]int{}
	for n, path := range f.models {
		m, err := openModelFile(path)
		if err != nil {
			return err
		}
		traits, err := eval.TraitsOf(m, f.html != "")
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := m.Name
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
		c := eval.Contender{Model: route.Model{Name: name, Version: m.Version, Similarity: m.Similarity}, Traits: traits}
		if c.Vectors, err = openVectors(path, "", m.Similarity); err != nil {
			return err
		}
		if n == 0 {
			in.Model, in.Traits, in.Vectors = c.Model, c.Traits, c.Vectors
			continue
		}
		in.Others = append(in.Others, c)
	}
	return nil
}

// baseline returns the plain similarity that models are compared with.
func baseline(name string, dim int) (route.Model, error) {
	if name == "none" {
		return route.Model{}, nil
	}
	if name != "cosine" && name != "dot" {
		return route.Model{}, usagef("--baseline %q is none of cosine, dot and none", name)
	}
	s, err := dot.New(dot.Config{Dim: dim, Normalise: name == "cosine"}, nil)
	return route.Model{Name: name, Similarity: s}, err
}

// closeVectors closes the behavioural vectors of the models.
func closeVectors(in *eval.Input) (err error) {
	for _, c := range append([]eval.Contender{{Vectors: in.Vectors}}, in.Others...) {
		if c.Vectors != nil {
			err = errors.Join(err, c.Vectors.Close())
		}
	}
	return err
}
