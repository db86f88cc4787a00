package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/fit"
	fitcompanion "github.com/likenessdb/likeness/learn/fit/companion"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/model"
)

const fitCompanionLong = `Adds a learned companion to a model that is no inner product: one vector per item, and one per query, whose inner
product ranks like the model. One search of these vectors finds what the model ranks first (strategy companion). The fit
learns from the model's scores; pairs are not needed. likeness index writes the items' vectors to the database, and the
sidecar writes those of new items.

` + dataHelp + `

The same data, flags and seed give the same model on the same kind of machine.`

// fitCompanionFlags are the flags of fit companion.
type fitCompanionFlags struct {
	fitInputs
	options fitcompanion.Options
	model   string
}

func newFitCompanionCommand(a *app) *cobra.Command {
	f := fitCompanionFlags{options: fitcompanion.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "companion",
		Short: "Learn one vector an item whose inner products rank like a model",
		Long:  fitCompanionLong,
		Example: `  likeness fit companion --model mol.safetensors --items items.npy --queries queries.npy --out mol-companion.safetensors
  likeness fit companion --model mol.safetensors --items items.npy --queries queries.npy --out small.safetensors --dim 256 --output json
  likeness fit companion --model colbert.safetensors --items tokens.npy --item-counts counts.npy --queries query-tokens.npy --query-counts query-counts.npy --dim 1024 --out found.safetensors`,
		Args: cobra.NoArgs,
	}
	f.register(cmd, &f.options.Common, false)
	f.registerCounts(cmd)
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.refuseSettings(cmd); err != nil {
			return err
		}
		r, err := f.run(cmd.Context(), newProgress(a.stderr))
		if err != nil {
			return err
		}
		a.warn(r.Warnings)
		return a.print(*out, r, func(w io.Writer) error { return printLearnedCompanion(w, r) })
	}
	return cmd
}

func (f *fitCompanionFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&f.model, "model", "", "model file or directory to learn from")
	flags.IntVar(&o.Dim, "dim", o.Dim, "numbers of an item's vector, at most")
	flags.IntVar(&o.Anchors, "anchors", o.Anchors, "queries by whose scores an item is placed, at most, and as many scores a new item costs; for late interaction an eighth, and single vectors three times as many")
	flags.IntVar(&o.Hidden, "hidden", o.Hidden, "units of a query that tell what it is near to, beside the features of the model")
	flags.IntVar(&o.Items, "fit-items", o.Items, "items that the fit looks at; a larger collection is sampled")
	flags.IntVar(&o.K, "k", o.K, "length of an answer")
	flags.IntVar(&o.Focus, "focus", o.Focus, "items of a query whose order counts in full")
	flags.Float64Var(&o.Leak, "leak", o.Leak, "how much differences between the other items count, 0 to 1; for late interaction always 1")
	flags.Float64Var(&o.Ridge, "ridge", o.Ridge, "how far the solution is held back, relative to the features")
	flags.IntSliceVar(&o.Depths, "depths", o.Depths, "numbers of candidates to report the recall of")
	_ = cmd.MarkFlagRequired("model")
	f.hideSettings(cmd)
}

// companionResult is the JSON report of `likeness fit companion`.
type companionResult struct {
	fitHead
	// Base is the version of the model that the companion was added to.
	Base string `json:"base_version"`
	Kind string `json:"kind"`
	fitcompanion.Report
}

func (f *fitCompanionFlags) run(ctx context.Context, p *progress) (*companionResult, error) {
	base, err := model.Open(f.model)
	if err != nil {
		return nil, badModel(err)
	}
	var report fitcompanion.Report
	head, err := f.fitInputs.run(ctx, p, func(ctx context.Context, d fit.Data) (*learned, error) {
		found, err := fitcompanion.Fit(ctx, base.Similarity, d, f.options)
		if err != nil {
			return nil, err
		}
		report = found.Report
		m, err := withTensors(base, companion.Prefix, "companion", found.Tensors, &report.RecallTable)
		return &learned{model: m, options: f.options, report: report, prefix: "companion."}, err
	})
	if err != nil {
		return nil, err
	}
	return &companionResult{fitHead: *head, Base: base.Version, Kind: string(base.Spec().Kind), Report: report}, nil
}

func printLearnedCompanion(w io.Writer, r *companionResult) error {
	_, _ = fmt.Fprintf(w, "%s, version %s: %d items, placed by %d of %d queries and judged on %d; %d numbers an item\n",
		r.Kind, r.Base, r.Items, r.Anchors, r.Queries, r.HeldOutQueries, r.Dim)
	if err := printFirstStages(w, &r.RecallTable); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nwrote %s: model %s, version %s\nnext: likeness index\n", r.Path, r.Model, r.Version)
	return err
}
