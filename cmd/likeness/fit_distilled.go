package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/fit"
	fitdistilled "github.com/likenessdb/likeness/learn/fit/distilled"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
)

const fitDistilledLong = `Adds probes u(q) to a model. One search of the stored vectors with u(q) finds the items
that the model ranks first (strategy distilled). The fit learns from the model's scores;
pairs are not needed. Heads: linear, u = qW; residual, u = qW + MLP(q); both.

` + dataHelp + `

The same data, flags and seed give the same model on the same kind of machine. An
interrupted fit writes its best model so far, and goes on with --resume.`

// fitDistilledFlags are the flags of fit distilled.
type fitDistilledFlags struct {
	fitInputs
	options     fitdistilled.Options
	model, head string
}

func newFitDistilledCommand(a *app) *cobra.Command {
	f := fitDistilledFlags{options: fitdistilled.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "distilled",
		Short: "Learn probes that find a model's best items among the stored vectors",
		Long:  fitDistilledLong,
		Example: `  likeness fit distilled --model mol.safetensors --items items.npy --queries queries.npy --out mol-probes.safetensors
  likeness fit distilled --model mol.safetensors --items items.npy --queries queries.npy --out mol-linear.safetensors \
    --head linear --output json`,
		Args: cobra.NoArgs,
	}
	f.register(cmd, &f.options.Common, false)
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.refuseSettings(cmd); err != nil {
			return err
		}
		r, err := f.run(cmd.Context(), newProgress(a.stderr))
		if r == nil {
			return err
		}
		a.warn(r.Warnings)
		return errors.Join(err, a.print(*out, r, func(w io.Writer) error { return printDistilled(w, r) }))
	}
	return cmd
}

func (f *fitDistilledFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&f.model, "model", "", "model file or directory to learn from")
	flags.StringVar(&f.head, "head", "both", "linear, residual or both")
	flags.IntVar(&o.Hidden, "hidden", o.Hidden, "width of the residual head's MLP")
	flags.IntVar(&o.K, "k", o.K, "length of an answer")
	flags.IntSliceVar(&o.Depths, "depths", o.Depths, "numbers of candidates to report the recall of")
	flags.Float64Var(&o.Focus, "focus", o.Focus, "items that share a lesson's weight; 0 is 5 times --k")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "passes over the data, at most")
	flags.Float64Var(&o.Rate, "rate", o.Rate, "learning rate, relative to the size of the parameters")
	flags.IntVar(&o.Scores, "scores", o.Scores, "scores of the model to learn from, about; bounds the queries")
	_ = cmd.MarkFlagRequired("model")
	_ = cmd.RegisterFlagCompletionFunc("head", cobra.FixedCompletions([]string{fitdistilled.HeadLinear, fitdistilled.HeadResidual, "both"}, cobra.ShellCompDirectiveNoFileComp))
	f.hideSettings(cmd)
}

// distilledResult is the JSON report of `likeness fit distilled`.
type distilledResult struct {
	fitHead
	// Base is the version of the model that the probes were added to.
	Base string `json:"base_version"`
	Kind string `json:"kind"`
	fitdistilled.Report
}

// run returns both a report and an error if the fit was interrupted.
func (f *fitDistilledFlags) run(ctx context.Context, p *progress) (*distilledResult, error) {
	if f.head != "both" {
		f.options.Heads = []string{f.head}
	}
	base, err := model.Open(f.model)
	if err != nil {
		return nil, badModel(err)
	}
	var report fitdistilled.Report
	head, err := f.fitInputs.run(ctx, p, func(ctx context.Context, d fit.Data) (*learned, error) {
		found, failed := fitdistilled.Fit(ctx, base.Similarity, d, f.options)
		if found == nil {
			return nil, failed
		}
		report = found.Report
		m, err := withTensors(base, distilled.Prefix, "distilled", found.Tensors, &report.RecallTable)
		return &learned{model: m, options: f.options, report: report, prefix: "distilled."}, errors.Join(failed, err)
	})
	if head == nil {
		return nil, err
	}
	return &distilledResult{fitHead: *head, Base: base.Version, Kind: string(base.Spec().Kind), Report: report}, err
}

// withTensors returns the base model with the tensors of a fit, which replace all of its own
// tensors with the same prefix, and with the recall of the first stages that the fit measured. The
// provenance is the base model's; keys that the fit adds begin with the fit's name.
func withTensors(base *model.Model, prefix, name string, added tensor.Set, found *rerank.RecallTable) (model.Parameters, error) {
	p := base.Parameters()
	maps.DeleteFunc(p.Tensors, func(name string, _ tensor.Tensor) bool { return strings.HasPrefix(name, prefix) })
	maps.Copy(p.Tensors, added)
	maps.DeleteFunc(p.Provenance, func(key, _ string) bool { return strings.HasPrefix(key, name+".") || key == interruptedKey })
	if p.Provenance == nil {
		p.Provenance = map[string]string{}
	}
	p.Provenance[name+".model"] = base.Name + " version " + base.Version
	var err error
	p.Provenance[model.FirstStagesKey], err = compactJSON(found)
	return p, err
}

func printDistilled(w io.Writer, r *distilledResult) error {
	_, _ = fmt.Fprintf(w, "%s, version %s: %d items; learned from %d of %d queries, judged on %d\n",
		r.Kind, r.Base, r.Items, r.LearnedQueries, r.Queries, r.HeldOutQueries)
	for _, line := range droppedLines(&r.Log) {
		_, _ = fmt.Fprintf(w, "  %s\n", line)
	}
	if r.ZeroQueries > 0 {
		_, _ = fmt.Fprintf(w, "  %d queries of norm 0 left out\n", r.ZeroQueries)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nprobe\tstart\tround\tdivergence\tnumbers\t\n")
	for _, h := range r.Heads {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d of %d\t%.3f\t%d\t\n", h.Head, h.Start, h.Rounds, h.Of, h.Loss, h.Parameters)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printFirstStages(w, &r.RecallTable); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\n\nwrote %s: model %s, version %s\n", r.Recommendation, r.Path, r.Model, r.Version)
	return err
}

// printFirstStages prints what the first stages of a model found.
func printFirstStages(w io.Writer, r *rerank.RecallTable) error {
	_, _ = fmt.Fprintf(w, "\nshare of the exact top %d among the candidates, held-out queries\n", r.K)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "first stage\tsearches\t")
	for _, d := range r.Depths {
		_, _ = fmt.Fprintf(t, "%d\t", d)
	}
	_, _ = fmt.Fprintln(t, "\t")
	for _, s := range r.Stages {
		_, _ = fmt.Fprintf(t, "%s\t%d\t", s.Name(), s.Searches)
		for _, v := range s.Recall {
			_, _ = fmt.Fprintf(t, "%.4f\t", v)
		}
		where := ""
		if s.Companion {
			where = "in a companion"
		}
		_, _ = fmt.Fprintf(t, "%s\t\n", where)
	}
	return t.Flush()
}
