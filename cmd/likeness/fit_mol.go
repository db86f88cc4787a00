package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/fit"
	fitmol "github.com/likenessdb/likeness/learn/fit/mol"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

const fitMoLLong = `Learns a Mixture-of-Logits (RAILS) from a log, for items' vectors as they are stored:
φ(q, x) = Σ π_ij(q, x)·⟨f_i(q), g_j(x)⟩/τ. With --gates query φ is one inner product;
with --gates full the gates also depend on the item and the logits. The fit starts at
the bilinear form of ` + "`fit bilinear`" + `, and takes a mixture only if held-out queries find
more with it.

` + dataHelp + `

The same data, flags and seed give the same model on the same kind of machine. An
interrupted fit writes its best model so far, and goes on with --resume.`

// fitMoLFlags are the flags of fit mol.
type fitMoLFlags struct {
	fitInputs
	options fitmol.Options
}

func newFitMoLCommand(a *app) *cobra.Command {
	f := fitMoLFlags{options: fitmol.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "mol",
		Short: "Learn a Mixture-of-Logits and judge it beside the plain inner product",
		Long:  fitMoLLong,
		Example: `  likeness fit mol --items items.npy --queries queries.npy --pairs pairs.csv --out model.safetensors
  likeness fit mol --items items.npy --queries queries.npy --pairs log.parquet --out full.safetensors \
    --gates full --pairs-query 8 --pairs-item 4 --dim 64
  likeness fit mol --items items.npy --queries queries.npy --pairs log.jsonl --user-ids users.npy \
    --out users.safetensors --pairs-query 9 --user-tables 10007 --query-hidden 512 --output json`,
		Args: cobra.NoArgs,
	}
	f.register(cmd, &f.options.Common, true)
	f.readsLooks = true
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context(), newProgress(a.stderr))
		if r == nil {
			return err
		}
		a.warn(r.Warnings)
		return errors.Join(err, a.print(*out, r, func(w io.Writer) error { return printFitMoL(w, r) }))
	}
	return cmd
}

func (f *fitMoLFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	addMeasure(cmd, &o.Measure)
	flags.IntVar(&o.PairsQuery, "pairs-query", o.PairsQuery, "query components, including user tables")
	flags.IntVar(&o.PairsItem, "pairs-item", o.PairsItem, "item components")
	flags.IntVar(&o.Dim, "dim", o.Dim, "length of a component; 0 divides the vector's among the item's")
	flags.StringVar((*string)(&o.Gates), "gates", string(o.Gates), "query, or full for query, item and logits")
	flags.IntVar(&o.GateQueryHidden, "gate-query-hidden", o.GateQueryHidden, "hidden width of the query's part of the gates")
	flags.IntVar(&o.GateItemHidden, "gate-item-hidden", o.GateItemHidden, "hidden width of the item's part of full gates")
	flags.IntVar(&o.GatePairHidden, "gate-pair-hidden", o.GatePairHidden, "hidden width of the logits' part of full gates; 0 is linear")
	flags.IntVar(&o.QueryHidden, "query-hidden", o.QueryHidden, "width of a gated linear unit for queries; 0 is linear")
	flags.StringVar((*string)(&o.QueryActivation), "query-activation", string(o.QueryActivation), "kind of that unit: swiglu or geglu")
	flags.BoolVar(&o.L2Norm, "l2-norm", o.L2Norm, "normalise components; probes then need a companion, or lose something")
	flags.IntSliceVar(&o.UserTables, "user-tables", nil, "sizes of hashed user-id embeddings, one component each; needs --user-ids")
	flags.Float64Var(&o.Temperature, "temperature", o.Temperature, "τ; 0 takes the one with which the bilinear form was best")
	flags.Float64Var(&o.Balance, "balance", o.Balance, "weight of the load-balancing loss of the gates")
	flags.Float64Var(&o.Dropout, "dropout", o.Dropout, "share of a query's numbers dropped in training")
	flags.Float64Var(&o.GateDropout, "gate-dropout", o.GateDropout, "share of the gates dropped in training")
	flags.Float64Var(&o.UserDropout, "user-dropout", o.UserDropout, "share of the numbers of user-id embeddings dropped in training")
	flags.Float64SliceVar(&o.Pulls, "pulls", o.Pulls, "pulls to the bilinear form to try, ascending; empty is 1e-5 (full gates: 1e-4),0.003,0.01,0.03")
	flags.Float64Var(&o.Rate, "rate", o.Rate, "learning rate")
	flags.IntVar(&o.Batch, "batch", o.Batch, "pairs a step")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "rounds of 16,384 pairs, at most, and twice as many of the bilinear form; 0 is 16 (full gates: 8), half if guarded")
	flags.IntVar(&o.Softmax, "softmax", o.Softmax, "logged items up to which the softmax covers all")
	flags.IntVar(&o.Draws, "draws", o.Draws, "sampled items a step beyond that, beside the batch's own")
	for name, values := range map[string][]string{"gates": {"query", "full"}, "query-activation": {"swiglu", "geglu"}} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// fitMoLResult is the JSON report of `likeness fit mol`.
type fitMoLResult struct {
	fitHead
	fitmol.Report
}

// run returns both a report and an error if the fit was interrupted.
func (f *fitMoLFlags) run(ctx context.Context, p *progress) (*fitMoLResult, error) {
	var report fitmol.Report
	head, err := f.fitInputs.run(ctx, p, func(ctx context.Context, d fit.Data) (*learned, error) {
		fitted, err := fitmol.Fit(ctx, d, f.options)
		if fitted == nil {
			return nil, err
		}
		config, failed := json.Marshal(fitted.Config)
		if failed != nil {
			return nil, failed
		}
		report = fitted.Report
		kept := report
		kept.History = nil
		parameters := model.Parameters{Kind: rerank.KindMoL, Config: config, Tensors: fitted.Tensors}
		return &learned{model: parameters, options: f.options, report: kept}, err
	})
	if head == nil {
		return nil, err
	}
	return &fitMoLResult{fitHead: *head, Report: report}, err
}

func printFitMoL(w io.Writer, r *fitMoLResult) error {
	m := &r.Report
	printLog(w, &r.Log, &m.Counts)
	printClicks(w, r.Clicks)
	_, _ = fmt.Fprintf(w, "\n%d query and %d item components of %d, gates: %s, %d parameters\n", m.PairsQuery, m.PairsItem, m.Dim, m.Gates, m.Parameters)
	if err := printQuality(w, m.Measure, &m.Logged, m.Cold); err != nil {
		return err
	}
	if len(m.Pulls) > 0 {
		if err := printTrials(w, m.Measure, m.Pulls); err != nil {
			return err
		}
	}
	if err := printHistory(w, m); err != nil {
		return err
	}
	if err := printGates(w, m); err != nil {
		return err
	}
	if err := printRecall(w, m.Recall); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n\nwrote %s: model %s, version %s\n", m.Recommendation, r.Path, r.Model, r.Version)
	return err
}

func printHistory(w io.Writer, m *fitmol.Report) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nround\tloss\theld-out %s\t\t\n", m.Measure.Name())
	for _, r := range m.History {
		mark := ""
		if r.Round == m.Rounds {
			mark = "taken"
		}
		_, _ = fmt.Fprintf(t, "%d\t%.4f\t%.4f\t%s\t\n", r.Round, r.Loss, r.Value, mark)
	}
	return t.Flush()
}

// printGates prints the mean gates as a table: a row for each component of the query, a column for
// each component of the item.
func printGates(w io.Writer, m *fitmol.Report) error {
	u := &m.Usage
	if len(u.Mass) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nmean gate\t")
	for j := range m.PairsItem {
		_, _ = fmt.Fprintf(t, "item %d\t", j)
	}
	for i := range m.PairsQuery {
		_, _ = fmt.Fprintf(t, "\nquery %d\t", i)
		for j := range m.PairsItem {
			_, _ = fmt.Fprintf(t, "%.4f\t", u.Mass[i*m.PairsItem+j])
		}
	}
	_, _ = fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "entropy of these %.2f, of one query's %.2f, of %.2f at most; the largest gate is %.2f in the mean\n",
		u.Entropy, u.MeanEntropy, math.Log(float64(len(u.Mass))), u.Largest)
	return err
}

func printRecall(w io.Writer, rows []fitmol.StrategyRecall) error {
	if len(rows) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nfirst stage\tsearches\tdepth\tcandidates\trecall@10\t\n")
	for _, r := range rows {
		field := "companion"
		if r.Stored {
			field = "stored vectors"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%.0f\t%.4f\t\n", r.Strategy, field, r.Depth, r.Candidates, r.Recall)
	}
	return t.Flush()
}
