package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank/late"
)

// How a fit treats the positions of a log.
const (
	positionsAuto       = "auto"
	positionsSwaps      = "swaps"
	positionsRegression = "regression"
	positionsIgnore     = "ignore"
)

func positionWays() []string {
	return []string{positionsAuto, positionsSwaps, positionsRegression, positionsIgnore}
}

// clickFlags are the flags of a fit or an evaluation about a log with positions.
type clickFlags struct {
	positions string
	clip      float64
	// readsLooks says that the loss of the fit reads fit.Data.Looks.
	readsLooks bool
}

func (f *clickFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.positions, "positions", positionsAuto, "how a log with positions is corrected for them: by swaps, by regression, whichever the log allows (auto), or not (ignore)")
	cmd.Flags().Float64Var(&f.clip, "clip", 100, "greatest number of choices that one choice at a deep position stands for")
	_ = cmd.RegisterFlagCompletionFunc("positions", cobra.FixedCompletions(positionWays(), cobra.ShellCompDirectiveNoFileComp))
}

func (f *clickFlags) check() error {
	if !slices.Contains(positionWays(), f.positions) || !(f.clip >= 1) {
		return usagef("--positions %q, --clip %g: want one of %s, and 1 at least", f.positions, f.clip, strings.Join(positionWays(), ", "))
	}
	return nil
}

// clickReport says how a fit corrected a log with positions.
type clickReport struct {
	clicks.Report
	// Choices counts pairs of a query and an item that was chosen for it.
	Choices int `json:"choices"`
}

// correct returns the data of a fit. If the log has positions, it corrects the data for them and also
// returns a report of the correction.
func (f *clickFlags) correct(d *dataset.Dataset, seed uint64) (fit.Data, *clickReport) {
	data := fit.Data{
		Items: d.Items, Queries: d.Queries, ItemStarts: d.ItemStarts, QueryStarts: d.QueryStarts, Relevant: d.Relevant, Seen: d.Seen, Weights: d.Weights, Times: d.Times, Asked: d.Asked, UserIDs: d.UserIDs, Forget: d.Forget,
	}
	curve := f.curve(d, seed)
	if curve == nil || d.ItemStarts != nil || d.QueryStarts != nil { // a fit to several vectors reads no log
		return data, nil
	}
	c := curve.Correct(d.Answers, d.Queries.Rows, f.clip)
	return data.Corrected(c, f.readsLooks), &clickReport{curve.Report(d.Answers, c), len(c.Choices)}
}

// curve estimates how likely people look at each position, or returns nil if the log has no positions
// or they are to be ignored.
func (f *clickFlags) curve(d *dataset.Dataset, seed uint64) *clicks.Curve {
	if d.Answers == nil || f.positions == positionsIgnore {
		return nil
	}
	estimator := clicks.Estimator{Queries: late.Means(d.Queries, d.QueryStarts), Items: late.Means(d.Items, d.ItemStarts), Seed: seed}
	switch f.positions {
	case positionsSwaps:
		estimator.Method = clicks.Harvesting
	case positionsRegression:
		estimator.Method = clicks.Regression
	}
	return estimator.Estimate(d.Answers)
}
