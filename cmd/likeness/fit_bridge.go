package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	fitbridge "github.com/likenessdb/likeness/learn/fit/bridge"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

const fitBridgeLong = `Fits a bridge between two embedding models: with it the new model's queries search the collection that the old
model embedded, as it stands. The fit needs vectors of the same texts by both models, a few thousand: row i of --old
and --new is text i. It says first whether a bridge is worth it, beside keeping the old model, embedding a share of the
items again, and embedding all of them.

With --queries-old, --queries-new and --pairs the verdict is about right answers; item i of a pair is text i. The bridge
learns from queries and pairs too where that makes it better on items and queries that it has not seen. Without pairs
the verdict is about agreement with the new model's own first ten, which cannot say whether the new model is better.
docs/how-to/change-the-embedding-model.md goes from the fit to serving.`

// fitBridgeFlags are the flags of fit bridge.
type fitBridgeFlags struct {
	fitInputs
	options              fitbridge.Options
	old, now             string
	queriesOld, segments string
}

func newFitBridgeCommand(a *app) *cobra.Command {
	f := fitBridgeFlags{options: fitbridge.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Search a collection of the old embedding model with a new one, and say whether that is worth it",
		Long:  fitBridgeLong,
		Example: `  likeness fit bridge --old old.npy --new new.npy --out bridge.safetensors
  likeness fit bridge --old old.npy --new new.npy --queries-old q-old.npy --queries-new q-new.npy --pairs pairs.csv \
    --out bridge.safetensors --lazy 0.1 --output json`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context(), newProgress(a.stderr))
		if err != nil {
			return err
		}
		a.warn(r.Warnings)
		return a.print(*out, r, func(w io.Writer) error { return printBridge(w, r) })
	}
	return cmd
}

func (f *fitBridgeFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&f.old, "old", "", "vectors of the texts by the old model: .npy, .safetensors or .parquet")
	flags.StringVar(&f.now, "new", "", "vectors of the same texts by the new model, in the same order")
	flags.StringVar(&f.queriesOld, "queries-old", "", "vectors of queries by the old model")
	flags.StringVar(&f.Queries, "queries-new", "", "vectors of the same queries by the new model")
	flags.StringVar(&f.Pairs, "pairs", "", "right answers to the queries: .csv, .jsonl or .parquet with the columns query and item")
	flags.StringVar(&f.Seen, "seen", "", "items seen before a query, which no answer has: a file like --pairs")
	flags.StringVar(&f.ItemIDs, "item-ids", "", "ids of the texts, by which --pairs names them: .npy of integers, text with one a line, or .parquet")
	flags.StringVar(&f.QueryIDs, "query-ids", "", "ids of the queries, in a file like --item-ids")
	flags.StringVar(&f.segments, "segments", "", "segment of each query, one a line: each gets a verdict of its own")
	flags.StringVar(&f.out, "out", "", "model file to write, "+model.Extension)
	flags.StringVar(&f.name, "name", "", "name of the model; empty is the file's")
	flags.BoolVar(&f.force, "force", false, "replace an existing file")
	flags.BoolVar(&o.Normalise, "normalise", o.Normalise, "fit on unit vectors")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the division of the texts")
	flags.Float64Var(&o.HeldOut, "held-out", o.HeldOut, "share of the texts that take the place of queries, if there are none")
	flags.Float64Var(&o.Lazy, "lazy", o.Lazy, "share of the items, those touched most, that lazy re-embedding has embedded again")
	flags.Float64Var(&o.Tolerance, "tolerance", o.Tolerance, "share of the best alternative's nDCG@10 that a cheaper one may lose and still be as good")
	flags.Float64Var(&o.Confidence, "confidence", o.Confidence, "confidence of the intervals")
	cmd.MarkFlagsRequiredTogether("queries-old", "queries-new")
	for _, name := range []string{"old", "new", "out"} {
		_ = cmd.MarkFlagRequired(name)
	}
	for name, extensions := range map[string][]string{
		"old": vectorFiles, "new": vectorFiles, "queries-old": vectorFiles, "queries-new": vectorFiles, "pairs": {"csv", "jsonl", "ndjson", "parquet"},
		"seen": {"csv", "jsonl", "ndjson", "parquet"}, "item-ids": idFiles, "query-ids": idFiles, "segments": {"txt"}, "out": {strings.TrimPrefix(model.Extension, ".")},
	} {
		_ = cmd.MarkFlagFilename(name, extensions...)
	}
}

// bridgeResult is the JSON report of `likeness fit bridge`.
type bridgeResult struct {
	Model   string `json:"model"`
	Version string `json:"version"`
	Path    string `json:"path"`
	fitbridge.Report
}

// bridgeInput holds the files that `fit bridge` has read. digests identify their contents.
type bridgeInput struct {
	fitbridge.Data
	digests map[string]string
	close   []io.Closer
}

func (in *bridgeInput) Close() (err error) {
	for _, c := range in.close {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (f *fitBridgeFlags) run(ctx context.Context, p *progress) (_ *bridgeResult, err error) {
	if err := f.refuseExisting(); err != nil {
		return nil, err
	}
	if f.Queries == "" && (f.Pairs != "" || f.segments != "") {
		return nil, usagef("--pairs and --segments are about queries; give --queries-old and --queries-new")
	}
	in, err := f.read(ctx, p)
	if err != nil {
		return nil, badDataset(err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	f.options.Progress = p.begin
	fitted, err := fitbridge.Fit(ctx, in.Data, f.options)
	if errors.Is(err, fit.ErrData) || errors.Is(err, fit.ErrOption) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(fitted.Config)
	if err != nil {
		return nil, err
	}
	found := &learned{
		model:   model.Parameters{Kind: rerank.KindMoL, Config: config, Tensors: fitted.Tensors},
		options: f.options, report: fitted.Report,
	}
	counts := map[string]int{"texts": fitted.Report.Texts, "queries": in.NewQueries.Rows}
	m, err := f.writeModel(in.digests, counts, found, false)
	if err != nil {
		return nil, err
	}
	return &bridgeResult{Model: m.Name, Version: m.Version, Path: f.out, Report: fitted.Report}, nil
}

// read opens the vectors, the pairs and the segments.
func (f *fitBridgeFlags) read(ctx context.Context, p *progress) (_ *bridgeInput, err error) {
	in := &bridgeInput{digests: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	for _, v := range []struct {
		flag, file string
		to         *rerank.Matrix
	}{{"old", f.old, &in.Old}, {"new", f.now, &in.New}, {"queries-old", f.queriesOld, &in.OldQueries}, {"queries-new", f.Queries, &in.NewQueries}} {
		if v.file == "" {
			continue
		}
		read, err := dataset.OpenVectors(ctx, v.file)
		if err != nil {
			return in, fmt.Errorf("--%s: %w", v.flag, err)
		}
		in.close = append(in.close, read)
		*v.to = read.Matrix
		if err := in.digest(v.flag, v.file); err != nil {
			return in, err
		}
	}
	if f.Pairs != "" {
		if err := f.readPairs(ctx, in, p); err != nil {
			return in, err
		}
	}
	if f.segments != "" {
		names, err := dataset.ReadIDs(f.segments)
		if err != nil {
			return in, fmt.Errorf("--segments: %w", err)
		}
		for _, n := range names {
			in.Segments = append(in.Segments, n.String())
		}
		return in, in.digest("segments", f.segments)
	}
	return in, nil
}

// readPairs reads the right answers, and what was seen before.
func (f *fitBridgeFlags) readPairs(ctx context.Context, in *bridgeInput, p *progress) error {
	f.Items, f.Progress = f.now, p.begin
	d, err := dataset.Open(ctx, f.Sources)
	if err != nil {
		return err
	}
	in.close = append(in.close, d)
	in.Relevant, in.Hidden = d.Relevant, d.Seen
	for _, line := range droppedLines(&d.Counts) {
		p.note(line)
	}
	return in.digest("pairs", f.Pairs)
}

// digest notes the digest of a file.
func (in *bridgeInput) digest(name, spec string) error {
	path, _, _ := strings.Cut(spec, "#")
	digest, err := dataset.FileDigest(path)
	in.digests[name] = filepath.Base(spec) + " sha256:" + digest
	return err
}

func printBridge(w io.Writer, r *bridgeResult) error {
	_, _ = fmt.Fprintf(w, "%d texts: %d numbers by the old model, %d by the new one; of the new vectors' variance %.1f %% follows from the old ones\n",
		r.Texts, r.OldDim, r.NewDim, 100*r.Explained)
	if r.AnswerShare > 0 {
		_, _ = fmt.Fprintf(w, "the bridge draws items %g %% of the way towards the queries that they answer\n", 100*r.AnswerShare)
	}
	if err := printWays(w, r.Report, "", r.Ways); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", strings.Join(r.Verdict.Text, "\n"))
	for _, s := range r.Segments {
		if err := printWays(w, r.Report, s.Name, s.Ways); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(w, cmp.Or(slices.Concat(s.Verdict.Text, []string{""})[0], "not judged"))
	}
	_, err := fmt.Fprintf(w, "\nwrote %s: model %s, version %s\n", r.Path, r.Model, r.Version)
	return err
}

// printWays prints the alternatives, of one segment if it has a name.
func printWays(w io.Writer, r fitbridge.Report, segment string, ways []fitbridge.Way) error {
	what := fmt.Sprintf("%d queries with right answers among %d texts", r.Queries, r.Items)
	if r.Evidence == fitbridge.Agreement {
		what = fmt.Sprintf("agreement of %d queries with the new model's own first ten of %d texts", r.Queries, r.Items)
	}
	if segment != "" {
		what = "segment " + segment
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", what)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\tnDCG@10\trecall@10\tof a new index")
	for _, x := range ways {
		name := x.Name
		if name == fitbridge.Lazily {
			name = fmt.Sprintf("%s, %.4g %%", name, 100*r.Lazy)
		}
		_, _ = fmt.Fprintf(t, "%s\t%.4f\t%.4f\t%.1f %% (%.1f to %.1f)\n", name, x.NDCG, x.Recall, 100*x.Kept, 100*x.Low, 100*x.High)
	}
	return t.Flush()
}
