package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

const fitRBELong = `Approximates an expensive ranker by one inner product (relevance-based embeddings): of
the ranker's scores of an item for support queries, and its scores of support items for
a query. Scores come from the ranker or from --scores. docs/how-to/rankers.md has the
steps and the cost of each fit.

` + rankerHelp + `

An item's vector is R(x, S_Q)·pinv(R(S_I, S_Q)); --hidden adds perceptrons, kept if
they find more. HitRate(P, T) is the share of R's first T items among its first P.`

// fitRBEFlags are the flags of fit rbe.
type fitRBEFlags struct {
	fitInputs
	options                              fitrbe.Options
	scores, ids, queryIDs, base, payload string
	supportItems, supportCategory        string
	queryFeatures                        string
	categories                           map[rerank.ID]string // by item, once the items are read
	onePerCategory                       bool                 // --supports is not given
	sampleItems                          int
	judged                               []string
	ask                                  rankerFlags
}

func newFitRBECommand(a *app) *cobra.Command {
	f := fitRBEFlags{options: fitrbe.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "rbe",
		Short: "Approximate an expensive ranker by its scores of support items and queries",
		Long:  fitRBELong,
		Example: `  likeness fit rbe --config likeness.yaml --route products --ranker cross --queries queries.jsonl --out ranker.safetensors
  likeness fit rbe --scorer ./ranker --items items.npy --payload items.jsonl --queries queries.csv --out ranker.safetensors --estimate
  likeness fit rbe --scores scores.npy --out ranker.safetensors --base base.npy
  likeness fit rbe --scores scores.npy --item-ids items.txt --out ranker.safetensors --supports 50 --compare
  likeness fit rbe --scores scores.npy --out ranker.safetensors --hidden 128 --out-width 64 --output json`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.onePerCategory = !cmd.Flags().Changed("supports")
		r, err := f.run(cmd.Context(), newProgress(a.stderr), a.stderr)
		if err != nil {
			return err
		}
		if r.Report != nil {
			a.warn(r.Warnings)
		}
		return a.print(*out, r, func(w io.Writer) error { return printFitRBE(w, r) })
	}
	return cmd
}

func (f *fitRBEFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&f.scores, "scores", "", "the ranker's scores, .npy, one row an item and one column a query")
	flags.StringVar(&f.Queries, "queries", "", "queries: .jsonl or .csv (id, text, vector, user_id, context), or vectors as --items")
	flags.StringVar(&f.Items, "items", "", "item vectors for the ranker: .npy, .safetensors or .parquet")
	flags.StringVar(&f.payload, "payload", "", "items' payload for the ranker, a JSON object a line")
	flags.IntVar(&f.sampleItems, "sample-items", 0, "ask for so many of the items, drawn at random; 0 is all")
	f.config = addConfigFlags(cmd)
	flags.StringVar(&f.route, "route", "", "read this route's collection, and ask its ranker")
	flags.StringVar(&f.collection, "collection", "", "read the items from this collection")
	flags.StringVar(&f.store, "store", "", "store of --collection; empty is the only one")
	flags.StringVar(&f.vector, "vector", "", "vector field of --collection; empty is the only or unnamed one")
	f.ask.register(cmd)
	flags.StringVar(&f.ids, "item-ids", "", "ids of the items: .npy of integers, text with one a line, or .parquet")
	flags.StringVar(&f.queryIDs, "query-ids", "", "ids of the queries, in a file like --item-ids")
	flags.StringVar(&f.base, "base", "", "file for the items' scores of support queries, .npy, for likeness index")
	flags.StringVar(&f.out, "out", "", "model file to write, "+model.Extension)
	flags.StringVar(&f.name, "name", "", "name of the model; empty is the file's")
	flags.BoolVar(&f.force, "force", false, "replace existing files; begin an interrupted run again")
	flags.BoolVar(&f.resume, "resume", false, "go on with an interrupted fit of the same data and flags")
	flags.IntVar(&o.Supports, "supports", o.Supports, "ranker calls for a query")
	flags.StringVar((*string)(&o.Select), "select", string(o.Select), "choice of supports: "+strings.Join(selections(), ", "))
	flags.StringVar(&f.supportItems, "support-items", "", "your own support items, by id, in a file like --item-ids")
	flags.StringVar(&f.supportCategory, "support-category", "", "support items from each category: a payload field, or with --scores a file like --item-ids")
	flags.IntVar(&o.SupportQueries, "support-queries", 0, "ranker calls for an item; 0 is every query not held out")
	flags.Float64Var(&o.Lambda, "lambda", o.Lambda, "regularises the pseudo-inverse; 0 does not")
	flags.BoolVar(&o.Compare, "compare", false, "judge every way to choose support items")
	flags.IntVar(&o.Hidden, "hidden", 0, "hidden width of the perceptrons on both sides; 0 for no perceptrons")
	flags.IntVar(&o.Out, "out-width", 64, "outputs of the perceptrons")
	flags.StringVar(&f.queryFeatures, "query-features", "", "the queries' own vectors, which the perceptrons read beside scores, in a file like --items")
	flags.StringVar((*string)(&o.Loss), "loss", string(o.Loss), "what they are trained for: softmax or listwise")
	flags.IntVar(&o.Top, "top", o.Top, "number of items that are relevant to the listwise loss")
	flags.Float64Var(&o.Rate, "rate", o.Rate, "learning rate")
	flags.IntVar(&o.Batch, "batch", o.Batch, "queries a step")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "passes over the data, at most")
	flags.IntVar(&o.Draws, "draws", o.Draws, "random items a step, beside its queries' best")
	flags.Float64Var(&o.HeldOut, "held-out", o.HeldOut, "share of the queries that judge the fit; 0 judges nothing")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the split, the choices and the order")
	flags.StringSliceVar(&f.judged, "hit-rates", []string{"1:1", "10:10", "100:10", "100:100"}, "hit rates to report, P:T")
	_ = cmd.MarkFlagRequired("out")
	cmd.MarkFlagsOneRequired("scores", "queries")
	for _, other := range []string{"items", "payload", "route", "collection", "ranker", "scorer", "scorer-url", "sample-items", "estimate"} {
		cmd.MarkFlagsMutuallyExclusive("scores", other)
	}
	for _, other := range []string{"items", "payload", "item-ids"} {
		cmd.MarkFlagsMutuallyExclusive("route", "collection", other)
	}
	cmd.MarkFlagsMutuallyExclusive("base", "sample-items")
	for _, other := range []string{"select", "supports", "compare"} {
		cmd.MarkFlagsMutuallyExclusive("support-items", other)
	}
	for _, other := range []string{"select", "support-items"} {
		cmd.MarkFlagsMutuallyExclusive("support-category", other)
	}
	cmd.MarkFlagsMutuallyExclusive("resume", "force")
	_ = cmd.MarkFlagFilename("scores", "npy")
	_ = cmd.MarkFlagFilename("payload", "jsonl")
	_ = cmd.MarkFlagFilename("items", vectorFiles...)
	_ = cmd.MarkFlagFilename("out", strings.TrimPrefix(model.Extension, "."))
	for name, values := range map[string][]string{
		"select": selections(), "loss": {"softmax", "listwise"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// selections lists the values of --select.
func selections() []string {
	var names []string
	for _, s := range fitrbe.Selections() {
		names = append(names, string(s))
	}
	return names
}

// fitRBEResult is the JSON report of `likeness fit rbe`.
type fitRBEResult struct {
	Model   string `json:"model,omitempty"` // empty with --estimate
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Base    string `json:"base,omitempty"`
	// Supports lists the items that the ranker must score for each query.
	Supports []rerank.ID `json:"supports,omitempty"`
	Asked    *rbeAsked   `json:"asked,omitempty"` // nil with --scores
	*fitrbe.Report
}

func (f *fitRBEFlags) run(ctx context.Context, p *progress, stderr io.Writer) (_ *fitRBEResult, err error) {
	if err := errors.Join(f.refuseExisting(), f.pairs()); err != nil {
		return nil, err
	}
	checkpoint := checkpointFile{path: f.checkpoint(), resume: f.resume}
	f.common = &fit.Common{Checkpoint: checkpoint}
	scores, err := f.readScores(ctx, p, stderr)
	if errors.Is(err, errEstimated) {
		return &fitRBEResult{Asked: scores.asked}, nil
	}
	if err != nil {
		return nil, f.asUsageError(err)
	}
	defer func() { err = errors.Join(err, scores.close()) }()
	if err := errors.Join(f.readSupportItems(scores), f.readCategories(scores), f.readQueryFeatures(ctx, scores)); err != nil {
		return nil, err
	}
	f.options.Progress, f.options.Note, f.options.Checkpoint = p.begin, p.note, checkpoint
	fitted, err := fitrbe.Fit(ctx, scores.Matrix, f.options)
	if err != nil {
		return nil, f.asUsageError(err)
	}
	if f.base != "" {
		if err := npy.Write(f.base, fitrbe.BaseVectors(scores.Matrix, fitted.SupportQueries)); err != nil {
			return nil, err
		}
	}
	m, supports, err := f.save(fitted, scores)
	if err != nil {
		return nil, err
	}
	r := &fitRBEResult{
		Model: m.Name, Version: m.Version, Path: f.out, Base: f.base, Supports: supports, Asked: scores.asked, Report: &fitted.Report,
	}
	return r, checkpoint.remove()
}

// pairs parses --hit-rates.
func (f *fitRBEFlags) pairs() error {
	f.options.Judged = nil
	for _, text := range f.judged {
		var h fitrbe.HitPair
		if n, err := fmt.Sscanf(text, "%d:%d", &h.P, &h.T); n != 2 || err != nil || h.P < 1 || h.T < 1 {
			return usagef("--hit-rates %q: want P:T of positive numbers", text)
		}
		f.options.Judged = append(f.options.Judged, h)
	}
	return nil
}

// readSupportItems reads --support-items, and finds the rows of its items.
func (f *fitRBEFlags) readSupportItems(scores *rbeScores) error {
	if f.supportItems == "" {
		return nil
	}
	ids, err := dataset.ReadIDs(f.supportItems)
	if err != nil {
		return usageError{err}
	}
	rows := make(map[string]int, scores.Rows) // by text, since a text file does not tell numbers from names
	for row := range scores.Rows {
		rows[scores.item(row).String()] = row
	}
	for _, id := range ids {
		row, ok := rows[id.String()]
		if !ok {
			return usagef("--support-items: item %s of %s is none of the %d items with scores; leave it out, or ask for all items", id, f.supportItems, scores.Rows)
		}
		f.options.Own = append(f.options.Own, row)
	}
	f.options.Select, f.options.Supports = fitrbe.SelectOwn, len(f.options.Own)
	return scores.digest("support_items", f.supportItems)
}

// readCategories sets the category of each item for --support-category. Without --supports the fit
// takes one support item a category, and no more than the default number.
func (f *fitRBEFlags) readCategories(scores *rbeScores) error {
	if f.supportCategory == "" {
		return nil
	}
	categories := make([]string, scores.Rows)
	if f.scores != "" {
		names, err := dataset.ReadIDs(f.supportCategory)
		if err != nil {
			return usageError{err}
		}
		if len(names) != scores.Rows {
			return usagef("--support-category: %s has %d categories for %d items; want one an item", f.supportCategory, len(names), scores.Rows)
		}
		for row, name := range names {
			categories[row] = name.String()
		}
		if err := scores.digest("support_category", f.supportCategory); err != nil {
			return err
		}
	} else {
		for row := range categories {
			categories[row] = f.categories[scores.item(row)]
		}
		scores.digests["support_category"] = "payload field " + f.supportCategory
	}
	distinct := map[string]bool{}
	for _, name := range categories {
		if name != "" {
			distinct[name] = true
		}
	}
	if len(distinct) == 0 {
		return usagef("--support-category: no item has a field %q that is a text, a number or a boolean", f.supportCategory)
	}
	f.options.Select, f.options.Categories = fitrbe.SelectCategory, categories
	if f.onePerCategory {
		f.options.Supports = min(f.options.Supports, len(distinct))
	}
	return nil
}

// readQueryFeatures reads --query-features.
func (f *fitRBEFlags) readQueryFeatures(ctx context.Context, scores *rbeScores) error {
	if f.queryFeatures == "" {
		return nil
	}
	v, err := dataset.OpenVectors(ctx, f.queryFeatures)
	if err != nil {
		return usageError{err}
	}
	defer v.Close()
	f.options.QueryFeatures = rerank.Matrix{Rows: v.Rows, Cols: v.Cols, Data: slices.Clone(v.Data)}
	return scores.digest("query_features", f.queryFeatures)
}

// idsOf returns the ids of rows from a file, or row numbers if no file is named.
func idsOf(file string, rows int) (func(int) rerank.ID, error) {
	if file == "" {
		return func(row int) rerank.ID { return rerank.UintID(uint64(row)) }, nil
	}
	ids, err := dataset.ReadIDs(file)
	if err == nil && len(ids) != rows {
		err = fmt.Errorf("%s has %d ids, the matrix of scores wants %d", file, len(ids), rows)
	}
	return func(row int) rerank.ID { return ids[row] }, err
}

func (f *fitRBEFlags) save(fitted *fitrbe.Fitted, scores *rbeScores) (*model.Model, []rerank.ID, error) {
	config := fitted.Config(scores.item, scores.query)
	if scores.questions != nil {
		var questions []rerank.Query
		for _, q := range fitted.SupportQueries {
			questions = append(questions, scores.questions[q])
		}
		if err := config.Ask(fitted.Tensors, questions); err != nil {
			return nil, nil, err
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, nil, err
	}
	kept := fitted.Report
	kept.History = nil
	found := &learned{model: model.Parameters{Kind: rerank.KindRBE, Config: text, Tensors: fitted.Tensors}, options: f.options, report: kept}
	m, err := f.writeModel(scores.digests, map[string]int{"items": kept.Items, "queries": kept.Queries}, found, false)
	return m, config.SupportItems, err
}

func printFitRBE(w io.Writer, r *fitRBEResult) error {
	if r.Model == "" {
		_, err := fmt.Fprintln(w, estimateText(r.Asked.Estimate))
		return err
	}
	if a := r.Asked; a != nil {
		_, _ = fmt.Fprintf(w, "ranker %s, version %s: asked of %d items, %d scores were kept in %s\n", a.Ranker, a.Version, a.Asked, a.Kept, a.Cache)
		if a.LeftOut > 0 {
			_, _ = fmt.Fprintf(w, "%d items are left out: it gave no score of them for some query\n", a.LeftOut)
		}
	}
	_, _ = fmt.Fprintf(w, "%d items, %d queries, of which %d are held out; %d support items by %s, %d support queries\n",
		r.Items, r.Queries, r.HeldOutQueries, r.SupportItems, r.Select, r.SupportQueries)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	if r.HeldOutQueries == 0 {
		_, err := fmt.Fprintf(w, "\nnothing was judged\nwrote %s: model %s, version %s\n", r.Path, r.Model, r.Version)
		return err
	}
	_, _ = fmt.Fprint(t, "\n\t")
	for _, h := range r.CUR.HitRates {
		_, _ = fmt.Fprintf(t, "HitRate(%d,%d)\t", h.P, h.T)
	}
	_, _ = fmt.Fprintln(t, "error\t")
	for _, c := range r.Compared {
		printRBEQuality(t, "CUR, "+string(c.Select), c.Quality)
	}
	if len(r.Compared) == 0 {
		printRBEQuality(t, "CUR", r.CUR)
	}
	if r.Rounds > 0 {
		printRBEQuality(t, fmt.Sprintf("with perceptrons, %d rounds", r.Rounds), r.Chosen)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nwrote %s: model %s, version %s\n", r.Path, r.Model, r.Version)
	return err
}

func printRBEQuality(w io.Writer, name string, q fitrbe.Quality) {
	_, _ = fmt.Fprintf(w, "%s\t", name)
	for _, h := range q.HitRates {
		_, _ = fmt.Fprintf(w, "%.4f (%.4f to %.4f)\t", h.Mean, h.Low, h.High)
	}
	_, _ = fmt.Fprintf(w, "%.4g\t\n", q.Error)
}
