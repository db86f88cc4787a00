package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/fit"
	fitmaxsim "github.com/likenessdb/likeness/learn/fit/maxsim"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
)

const fitMaxSimLong = `Besides its own vector, an item gets the centres of clusters of the queries that chose
it (MVG): φ(q, x) = max ⟨q, v⟩. The fit takes the smallest budget of --mavg that is as
good as the best; with --cold guard, only budgets that cost items without logs nothing.
Where traffic repeats, budgets count by how they serve queries seen before and new ones.
NAME.vectors.npy and NAME.owners.jsonl hold the vectors (docs/fit.md).

` + dataHelp + `

The same data, flags and seed give the same model on the same kind of machine. An
interrupted fit writes its best model so far, and goes on with --resume.`

// fitMaxSimFlags are the flags of fit maxsim.
type fitMaxSimFlags struct {
	fitInputs
	options          fitmaxsim.Options
	plot             string
	update, newPairs string
}

func newFitMaxSimCommand(a *app) *cobra.Command {
	f := fitMaxSimFlags{options: fitmaxsim.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "maxsim",
		Short: "Learn behavioural vectors: items score by the best of their own and those of their queries",
		Long:  fitMaxSimLong,
		Example: `  likeness fit maxsim --items items.npy --queries queries.npy --pairs pairs.csv --out model.safetensors
  likeness fit maxsim --items items.npy --queries queries.npy --pairs pairs.csv --out m3.safetensors --mavg 3
  likeness fit maxsim --config likeness.yaml --route products --queries queries.parquet --pairs log.jsonl \
    --out products.safetensors --mavg 0.3,1,3 --plot budgets.svg --output json
  likeness fit maxsim --items items.npy --queries queries.npy --pairs whole.csv --new-pairs today.csv \
    --update yesterday.safetensors --out today.safetensors`,
		Args: cobra.NoArgs,
	}
	f.register(cmd, &f.options.Common, true)
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context(), newProgress(a.stderr))
		if r == nil {
			return err
		}
		a.warn(r.Warnings)
		return errors.Join(err, a.print(*out, r, func(w io.Writer) error { return printFitMaxSim(w, r) }))
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *fitMaxSimFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	addMeasure(cmd, &o.Measure)
	flags.Float64SliceVar(&o.MAvg, "mavg", o.MAvg, "budgets to try, ascending: vectors an item in the mean")
	flags.Float64SliceVar(&o.Betas, "beta", o.Betas, "how a budget follows popularity, 0 (alike) to 1 (in proportion): the first chooses the budget")
	flags.Float64Var(&o.RepeatShare, "repeat-share", o.RepeatShare, "share of later traffic that asks what the log has; -1 estimates it")
	flags.StringVar(&f.update, "update", "", "an earlier model: keep its vectors of items that --new-pairs does not name")
	flags.StringVar(&f.newPairs, "new-pairs", "", "lines of --pairs that the model of --update has not seen")
	flags.IntVar(&o.Restarts, "restarts", o.Restarts, "clusterings of an item's queries; the best is taken")
	flags.IntVar(&o.Passes, "passes", o.Passes, "passes of a clustering over an item's queries, at most")
	flags.StringVar(&f.plot, "plot", "", "SVG file to draw the quality of the budgets to")
	cmd.MarkFlagsRequiredTogether("update", "new-pairs")
	_ = cmd.MarkFlagFilename("update", "safetensors")
	_ = cmd.MarkFlagFilename("new-pairs", "csv", "jsonl", "ndjson", "parquet")
}

// fitMaxSimResult is the JSON report of `likeness fit maxsim`.
type fitMaxSimResult struct {
	fitHead
	// VectorFiles is the common prefix of the files that hold the vectors.
	VectorFiles string `json:"vector_files"`
	fitmaxsim.Report
}

func (f *fitMaxSimFlags) run(ctx context.Context, p *progress) (*fitMaxSimResult, error) {
	if info, err := os.Stat(filepath.Dir(f.plot)); f.plot != "" && (err != nil || !info.IsDir()) {
		return nil, usagef("--plot %s: its directory does not exist", f.plot)
	}
	f.CountRows = true
	name := maxsim.Beside(f.out)
	var report fitmaxsim.Report
	head, err := f.fitInputs.run(ctx, p, func(ctx context.Context, d fit.Data) (*learned, error) {
		fitted, err := f.fit(ctx, d, name)
		if err != nil {
			return nil, err
		}
		config, err := json.Marshal(fitted.Config)
		if err != nil {
			return nil, err
		}
		report = fitted.Report
		return &learned{model: model.Parameters{Kind: rerank.KindMaxSim, Config: config}, options: f.options, report: report}, nil
	})
	if head == nil {
		return nil, err
	}
	if f.plot != "" && len(report.Trials) > 0 {
		err = errors.Join(err, plotBudgets(f.plot, &report))
	}
	return &fitMaxSimResult{fitHead: *head, VectorFiles: name, Report: report}, err
}

// fit clusters the queries, and writes the vectors of each item as soon as they are computed.
func (f *fitMaxSimFlags) fit(ctx context.Context, d fit.Data, name string) (*fitmaxsim.Fitted, error) {
	w, err := maxsim.CreateVectors(name, max(1, d.Items.Cols))
	if err != nil {
		return nil, err
	}
	fitted, err := f.cluster(ctx, d, func(item int, vectors rerank.Matrix) error {
		return w.Append(f.itemID(item), vectors)
	})
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	fitted.Config.Vectors, err = w.Close()
	return fitted, err
}

// itemID returns the id of an item row.
func (f *fitMaxSimFlags) itemID(item int) rerank.ID {
	if f.itemIDs != nil {
		return f.itemIDs[item]
	}
	return rerank.UintID(uint64(item))
}

// cluster fits anew, or updates the model of --update.
func (f *fitMaxSimFlags) cluster(ctx context.Context, d fit.Data, sink fitmaxsim.VectorSink) (_ *fitmaxsim.Fitted, err error) {
	if f.update == "" {
		return fitmaxsim.Fit(ctx, d, f.options, sink)
	}
	m, err := openModelFile(f.update)
	if err != nil {
		return nil, err
	}
	vectors, err := openVectors(f.update, "", m.Similarity)
	if err != nil {
		return nil, err
	}
	if vectors == nil {
		return nil, usagef("--update %s: it has no behavioural vectors; it is of kind %s", f.update, m.Spec().Kind)
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	var before fitmaxsim.Report
	if err := json.Unmarshal([]byte(m.Provenance["fit.report"]), &before); err != nil || before.MAvg == 0 {
		return nil, usagef("--update %s: it does not say with which budget it was fitted, or has none; fit without --update", f.update)
	}
	named, err := f.data.Popularity(ctx, f.newPairs)
	if err != nil {
		return nil, badDataset(err)
	}
	touched := make([]bool, len(named))
	for x, weight := range named {
		touched[x] = weight > 0
	}
	previous := fitmaxsim.Previous{MAvg: before.MAvg, Beta: before.Beta, VectorsOf: func(item int) rerank.Matrix { return vectors.Of(f.itemID(item)) }}
	return fitmaxsim.Update(ctx, d, f.options, previous, touched, sink)
}

// printTraffic prints the measure of queries that the log has (memorisation) and of new ones (generalisation).
func printTraffic(w io.Writer, m *fitmaxsim.Report) error {
	if m.Seen == nil {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\n%s\tshare of traffic\tfit\tplain\tgain\tqueries\t\n", m.Measure.Name())
	for _, row := range []struct {
		name  string
		share float64
		c     fit.Comparison
	}{
		{"all traffic", 1, m.Traffic},
		{"queries seen before (memorisation)", m.RepeatShare, *m.Seen},
		{"new queries (generalisation)", 1 - m.RepeatShare, m.Logged},
	} {
		_, _ = fmt.Fprintf(t, "%s\t%.0f %%\t%.4f\t%.4f\t%+.4f ± %.4f\t%d\t\n",
			row.name, 100*row.share, row.c.Value, row.c.Baseline, row.c.Gain, row.c.StandardError, row.c.Queries)
	}
	return t.Flush()
}

// printSkew prints what the log has for behavioural vectors.
func printSkew(w io.Writer, s fitmaxsim.Skew) {
	_, _ = fmt.Fprintf(w, "an item has %.1f queries; the most popular tenth has %.0f %% of the pairs; diversity of the head's queries %.3f, of the tail's %.3f\n",
		s.QueriesPerItem, 100*s.HeadShare, s.HeadDiversity, s.TailDiversity)
}

func printFitMaxSim(w io.Writer, r *fitMaxSimResult) error {
	m := &r.Report
	printLog(w, &r.Log, &m.Counts)
	printClicks(w, r.Clicks)
	if len(m.Trials) > 0 {
		if err := printMaxSimTrials(w, m); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n%d vectors for %d items, of a budget of %d\n\nwrote %s: model %s, version %s; its vectors are %s.vectors.npy and .owners.jsonl\n",
		m.Recommendation, m.Vectors, m.ItemsWithVectors, m.Budget, r.Path, r.Model, r.Version, r.VectorFiles)
	return err
}

// printMaxSimTrials prints what the trials found.
func printMaxSimTrials(w io.Writer, m *fitmaxsim.Report) error {
	printSkew(w, m.Skew)
	if err := printQuality(w, m.Measure, &m.Logged, m.Cold); err != nil {
		return err
	}
	if err := printTraffic(w, m); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nvectors an item\tbeta\tvectors\ttraffic\tMRR@10\tnDCG@10\tnot logged\tplain\t\t\n")
	for _, trial := range m.Trials {
		cold, plain, mark := trialCells(fit.PullTrial{Cold: trial.Cold, Admissible: trial.Admissible, Chosen: trial.Chosen})
		_, _ = fmt.Fprintf(t, "%g\t%g\t%d\t%.4f\t%.4f\t%.4f\t%s\t%s\t%s\t\n", trial.MAvg, trial.Beta, trial.Vectors, trial.Traffic.Value, trial.MRR, trial.NDCG, cold, plain, mark)
	}
	return t.Flush()
}
