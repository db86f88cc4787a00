package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/model"
)

const fitBilinearLong = `Learns W from a log. The items' vectors stay as they are stored, so that a search is one
inner product of Wᵀq with them. The fit starts at the identity and is pulled towards it,
as strongly as held-out queries and items need. Where queries and items have different
dimensions, or coordinates, it starts at the least-squares map between them instead.
docs/fit.md explains the report and --cold.

` + dataHelp + `

The same data, flags and seed give the same model on the same kind of machine. An
interrupted fit writes its best model so far, and goes on with --resume.

Forms: full; low_rank, PQᵀ; identity_low_rank, I + PQᵀ; diagonal.`

// fitBilinearFlags are the flags of fit bilinear.
type fitBilinearFlags struct {
	fitInputs
	options         fitbilinear.Options
	form, cut, plot string
}

func newFitBilinearCommand(a *app) *cobra.Command {
	f := fitBilinearFlags{options: fitbilinear.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "bilinear",
		Short: "Learn φ(q, x) = qᵀWx and judge it beside the plain inner product",
		Long:  fitBilinearLong,
		Example: `  likeness fit bilinear --items items.npy --queries queries.npy --pairs pairs.csv --out model.safetensors
  likeness fit bilinear --items items.npy --queries queries.npy --pairs pairs.csv --out small.safetensors --cut auto
  likeness fit bilinear --items items.npy --queries queries.npy --pairs pairs.csv --out r32.safetensors \
    --form identity_low_rank --rank 32 --output json`,
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
		a.warn(r.Report.Warnings)
		return errors.Join(err, a.print(*out, r, func(w io.Writer) error { return printFit(w, r) }))
	}
	return cmd
}

func (f *fitBilinearFlags) flags(cmd *cobra.Command) {
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&f.form, "form", string(o.Form), "form of W: full, low_rank, identity_low_rank or diagonal")
	addMeasure(cmd, &o.Measure)
	flags.IntVar(&o.Rank, "rank", o.Rank, "rank of the low-rank forms")
	flags.StringVar(&f.cut, "cut", "", "write I + low rank (low rank, after a least-squares start): a rank, or auto for the least with --quality")
	flags.Float64Var(&o.Quality, "quality", o.Quality, "share of held-out quality that the suggested rank keeps")
	flags.Float64Var(&o.Energy, "energy", o.Energy, "share of the energy of W − I whose rank is reported")
	flags.Float64Var(&o.Margin, "margin", o.Margin, "share of the best form's gain that a simpler one may lose and still be as good")
	flags.StringVar(&f.plot, "plot", "", "SVG file: spectrum of W − I, quality of its ranks")
	flags.Float64Var(&o.Scale, "scale", o.Scale, "inverse of the softmax's temperature; 0 tries 20, 40 and 10")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "passes over the data, at most")
	flags.IntVar(&o.Steps, "steps", o.Steps, "steps of a fit to a short log, at least: more passes than --rounds")
	flags.Float64Var(&o.Rate, "rate", o.Rate, "learning rate; 0 tries the form's own and a fifth of it")
	forms := []string{"full", "low_rank", "identity_low_rank", "diagonal"}
	_ = cmd.RegisterFlagCompletionFunc("form", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// fitResult is the JSON report of `likeness fit bilinear`.
type fitResult struct {
	fitHead
	fitbilinear.Report
}

// run returns both a report and an error if the fit was interrupted.
func (f *fitBilinearFlags) run(ctx context.Context, p *progress) (*fitResult, error) {
	if err := f.finish(); err != nil {
		return nil, err
	}
	var report fitbilinear.Report
	head, err := f.fitInputs.run(ctx, p, func(ctx context.Context, d fit.Data) (*learned, error) {
		fitted, err := fitbilinear.Fit(ctx, d, f.options)
		if fitted == nil {
			return nil, err
		}
		config, failed := json.Marshal(fitted.Config)
		if failed != nil {
			return nil, failed
		}
		report = fitted.Report
		kept := report
		kept.Spectrum = nil
		parameters := model.Parameters{Kind: rerank.KindBilinear, Config: config, Tensors: fitted.Tensors}
		return &learned{model: parameters, options: f.options, report: kept}, err
	})
	if head == nil {
		return nil, err
	}
	switch {
	case f.plot == "":
	case report.Spectrum != nil:
		err = errors.Join(err, plotSpectrum(f.plot, report.Measure, report.Spectrum))
	default:
		p.note("--plot " + f.plot + " is not drawn: there is no spectrum, as W is the identity or the fit was interrupted")
	}
	return &fitResult{fitHead: *head, Report: report}, err
}

// finish checks --form, --plot and --cut, and stores them in the options.
func (f *fitBilinearFlags) finish() (err error) {
	f.options.Form = bilinear.Form(f.form)
	if info, err := os.Stat(filepath.Dir(f.plot)); f.plot != "" && (err != nil || !info.IsDir() || f.options.Form != bilinear.Full) {
		return usagef("--plot %s: its directory has to exist, and a spectrum is of --form full", f.plot)
	}
	switch f.cut {
	case "":
	case "auto":
		f.options.Reduce = fitbilinear.ReduceAuto
	default:
		if f.options.Reduce, err = strconv.Atoi(f.cut); err != nil || f.options.Reduce < 1 {
			return usagef("--cut %q is neither auto nor a rank", f.cut)
		}
	}
	return nil
}

func printFit(w io.Writer, r *fitResult) error {
	printLog(w, &r.Log, &r.Counts)
	printClicks(w, r.Clicks)
	if err := printQuality(w, r.Measure, &r.Logged, r.Cold); err != nil {
		return err
	}
	if err := printPulls(w, r); err != nil {
		return err
	}
	if err := printSpectrum(w, r.Measure, r.Spectrum); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w)
	for _, choice := range r.Choices {
		_, _ = fmt.Fprintf(w, "%.4f  %s, %d numbers\n", choice.Value, choice.Name, choice.Numbers)
	}
	_, _ = fmt.Fprintf(w, "%s\n\nwrote %s: model %s, version %s\n", r.Recommendation, r.Path, r.Model, r.Version)
	return nil
}

func printPulls(w io.Writer, r *fitResult) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\nscale\trate\tpull\trounds\tMRR@10\tnDCG@10\tnot logged\tplain\t\t\n")
	for _, p := range r.Pulls {
		cold, plain, mark := trialCells(p)
		_, _ = fmt.Fprintf(t, "%g\t%g\t%g\t%d\t%.4f\t%.4f\t%s\t%s\t%s\t\n", p.Scale, p.Rate, p.Pull, p.Rounds, p.LoggedMRR, p.LoggedNDCG, cold, plain, mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Start == fitbilinear.FromLeastSquares {
		_, _ = fmt.Fprintln(w, "started at the least-squares map of queries to their items: the identity is far from it")
	}
	why := "the best for logged items; the others get too little traffic, or were not asked for"
	if r.Guarded {
		why = fmt.Sprintf("for traffic of which %.1f %% looks for items without logs", 100*r.ColdTraffic)
	}
	_, err := fmt.Fprintf(w, "chosen: %s; %d rounds\n", why, r.Rounds)
	return err
}

// rankColumn names what a rank of the spectrum makes.
func rankColumn(s *fitbilinear.Spectrum) string {
	if s.Of == "W" {
		return "rank"
	}
	return "I + rank"
}

func printSpectrum(w io.Writer, m fit.Measure, s *fitbilinear.Spectrum) error {
	if s == nil {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\n%s\tenergy of %s\t|φ − φ_r| ≤ ‖q‖‖x‖ ×\t%s\t\t\n", rankColumn(s), s.Of, m.Name())
	for _, r := range s.Ranks {
		var marks []string
		if r.Rank == s.Suggested {
			marks = append(marks, fmt.Sprintf("%.4g%% of the quality", 100*s.Quality))
		}
		if r.Rank == s.EnergyRank {
			marks = append(marks, fmt.Sprintf("%.4g%% of the energy", 100*s.Energy))
		}
		_, _ = fmt.Fprintf(t, "%d\t%.4f\t%.4f\t%.4f\t%s\t\n", r.Rank, r.Energy, r.Bound, r.Value, strings.Join(marks, ", "))
	}
	return t.Flush()
}
