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
NAME.vectors.npy and NAME.owners.jsonl hold the vectors (docs/fit.md).

` + dataHelp + `

The same data, flags and seed give the same model on the same kind of machine. An
interrupted fit writes its best model so far, and goes on with --resume.`

// fitMaxSimFlags are the flags of fit maxsim.
type fitMaxSimFlags struct {
	fitInputs
	options fitmaxsim.Options
	plot    string
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
    --out products.safetensors --mavg 0.3,1,3 --plot budgets.svg --output json`,
		Args: cobra.NoArgs,
	}
	f.register(cmd, &f.options.Common, true)
	o, flags := &f.options, cmd.Flags()
	flags.Float64SliceVar(&o.MAvg, "mavg", o.MAvg, "budgets to try, ascending: vectors an item in the mean")
	flags.Float64Var(&o.Beta, "beta", o.Beta, "how a budget follows popularity: 0 (alike) to 1 (in proportion)")
	flags.IntVar(&o.Restarts, "restarts", o.Restarts, "clusterings of an item's queries; the best is taken")
	flags.IntVar(&o.Passes, "passes", o.Passes, "passes of a clustering over an item's queries, at most")
	flags.StringVar(&f.plot, "plot", "", "SVG file to draw the quality of the budgets to")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context(), newProgress(a.stderr))
		if r == nil {
			return err
		}
		for _, warning := range r.Warnings {
			_, _ = fmt.Fprintln(a.stderr, "warning:", warning)
		}
		return errors.Join(err, a.print(*out, r, func(w io.Writer) error { return printFitMaxSim(w, r) }))
	}
	return cmd
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
	fitted, err := fitmaxsim.Fit(ctx, d, f.options, func(item int, vectors rerank.Matrix) error {
		id := rerank.UintID(uint64(item))
		if f.itemIDs != nil {
			id = f.itemIDs[item]
		}
		return w.Append(id, vectors)
	})
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	fitted.Config.Vectors, err = w.Close()
	return fitted, err
}

func printFitMaxSim(w io.Writer, r *fitMaxSimResult) error {
	m := &r.Report
	printLog(w, &r.Log, &m.Counts)
	if err := printQuality(w, &m.Logged, m.Cold); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nvectors an item\tvectors\tlogged\tnDCG@10\tnot logged\tplain\t\t\n")
	for _, trial := range m.Trials {
		cold, plain, mark := trialCells(fit.PullTrial{Cold: trial.Cold, Admissible: trial.Admissible, Chosen: trial.Chosen})
		_, _ = fmt.Fprintf(t, "%g\t%d\t%.4f\t%.4f\t%s\t%s\t%s\t\n", trial.MAvg, trial.Vectors, trial.Logged.MRR, trial.NDCG, cold, plain, mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n%d vectors for %d items, of a budget of %d\n\nwrote %s: model %s, version %s; its vectors are %s.vectors.npy and .owners.jsonl\n",
		m.Recommendation, m.Vectors, m.ItemsWithVectors, m.Budget, r.Path, r.Model, r.Version, r.VectorFiles)
	return err
}
