package rbe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// Loss names the loss with which perceptrons are trained (RBE, appendix C).
type Loss string

// The losses.
const (
	// LossSoftmax is the cross-entropy of softmax(R̃/τ) to softmax(R/τ).
	LossSoftmax Loss = "softmax"
	// LossListwise maximises Σ softmax(R̃)·(2·[R ≥ its quantile 1 − K/M] − 1). The paper
	// prints R̃ in the indicator and does not tell the sign; both are corrected here.
	LossListwise Loss = "listwise"
)

// Options are the options of a fit of relevance-based embeddings. DefaultOptions has the
// defaults.
type Options struct {
	// Supports is the number of support items: calls of the ranker for every query.
	Supports int
	Select   Selection
	// Own lists the rows of the support items, if the caller chose them. Select is then SelectOwn,
	// and Supports their number.
	Own []int `json:"own,omitempty"`
	// Categories names the category of each item for SelectCategory. Items of the category "" are
	// no support items.
	Categories []string `json:"-"`
	// SupportQueries is the number of support queries, which the ranker scores for every
	// item. 0 takes all queries that are not held out.
	SupportQueries int
	// Lambda regularises the pseudo-inverse. 0 does not.
	Lambda float64
	// Hidden and Out are the widths of the perceptrons. Hidden 0 fits none.
	Hidden, Out int
	// QueryFeatures has a row for each query, such as its embedding, which the queries' perceptron
	// reads beside the scores (RBE, section 3.5). Without columns it reads scores alone.
	QueryFeatures rerank.Matrix `json:"-"`
	Loss          Loss
	// Top is K of the listwise loss.
	Top    int
	Rate   float64
	Batch  int
	Rounds int // passes over the queries, at most
	// Draws is how many random items a step includes, besides the best of each query.
	Draws int
	// HeldOut is the share of the queries that judge the fit. With 0 no query does.
	HeldOut float64
	Seed    uint64
	// Compare also measures every other selection, without perceptrons.
	Compare bool
	// Judged lists the hit rates to report.
	Judged []HitPair

	Progress   fit.Progress   `json:"-"`
	Note       func(string)   `json:"-"`
	Checkpoint fit.Checkpoint `json:"-"`
}

// DefaultOptions returns the options of the paper, with another loss.
func DefaultOptions() Options {
	return Options{
		Supports: 100, Select: SelectL2Greedy, Loss: LossSoftmax, Top: 100, Rate: 1e-3, Batch: 64, Rounds: 20, Draws: 2048,
		HeldOut: 0.3, Seed: 1, Judged: []HitPair{{1, 1}, {10, 10}, {100, 10}, {100, 100}},
	}
}

// Limits that options are checked against before anything is allocated. maxSupports is
// far more calls than a ranker can answer for a query.
const (
	maxSupports = 1 << 14
	maxHidden   = 1 << 14
)

// Check reports whether a fit to scores of so many items and queries can begin. It
// returns fit.ErrData or fit.ErrOption.
func (o Options) Check(items, queries int) error {
	switch {
	case items < 2 || queries < 3:
		return fmt.Errorf("%w: a matrix of %d items by %d queries; want two items and three queries at least", fit.ErrData, items, queries)
	case o.Supports < 1 || o.SupportQueries < 0 || o.Supports > maxSupports:
		return fmt.Errorf("%w: %d support items and %d support queries; want 1 to %d, and 0 or more", fit.ErrOption, o.Supports, o.SupportQueries, maxSupports)
	case (o.Select == SelectOwn) != (len(o.Own) > 0) || o.Select == SelectOwn && (o.Supports != len(o.Own) || o.Compare):
		return fmt.Errorf("%w: %d support items of the caller's with selection %q, %d supports and compare %t; they go with %q, their number, and no comparison",
			fit.ErrOption, len(o.Own), o.Select, o.Supports, o.Compare, SelectOwn)
	case o.Categories != nil && len(o.Categories) != items:
		return fmt.Errorf("%w: %d categories for %d items; want one an item", fit.ErrOption, len(o.Categories), items)
	case o.Select != SelectOwn && !slices.Contains(o.selections(), o.Select):
		return fit.NotOneOf("selection", o.Select, o.selections())
	case o.Loss != LossSoftmax && o.Loss != LossListwise:
		return fit.NotOneOf("loss", o.Loss, []Loss{LossSoftmax, LossListwise})
	case !(o.Lambda >= 0) || math.IsInf(o.Lambda, 0):
		return fmt.Errorf("%w: lambda is %g, want 0 or more", fit.ErrOption, o.Lambda)
	case !fit.IsShare(o.HeldOut) && o.HeldOut != 0:
		return fmt.Errorf("%w: the share of queries held out is %g, want 0 or more and less than 1", fit.ErrOption, o.HeldOut)
	case o.HeldOut == 0 && (o.Compare || o.Hidden > 0):
		return fmt.Errorf("%w: no queries are held out, and neither selections nor perceptrons can be judged; hold some out", fit.ErrOption)
	case o.Hidden < 0 || o.Hidden > maxHidden || o.Hidden > 0 && (o.Out < 1 || o.Out > maxHidden):
		return fmt.Errorf("%w: perceptrons of %d hidden numbers and %d outputs; want 0, or 1 to %d of both", fit.ErrOption, o.Hidden, o.Out, maxHidden)
	case o.QueryFeatures.Cols > 0 && (o.QueryFeatures.Rows != queries || o.Hidden == 0):
		return fmt.Errorf("%w: features of %d queries for %d, and perceptrons of %d hidden numbers; want a row for each query, and perceptrons that read them",
			fit.ErrOption, o.QueryFeatures.Rows, queries, o.Hidden)
	case !(o.Rate > 0) || o.Batch < 1 || o.Rounds < 1 || o.Draws < 1 || o.Top < 1:
		return fmt.Errorf("%w: rate %g, batch %d, rounds %d, draws %d, top %d; want positive numbers", fit.ErrOption, o.Rate, o.Batch, o.Rounds, o.Draws, o.Top)
	}
	seen := map[int]bool{}
	for _, x := range o.Own {
		if x < 0 || x >= items || seen[x] {
			return fmt.Errorf("%w: support item %d is named twice, or is none of the %d items", fit.ErrOption, x, items)
		}
		seen[x] = true
	}
	s := o.splitQueries(queries)
	if len(s.heldOut) == 0 && o.HeldOut > 0 || len(s.known) < 2 {
		return fmt.Errorf("%w: of %d queries %d are left to learn from and %d to judge; bring more, or change the share held out (%g)",
			fit.ErrData, queries, len(s.known), len(s.heldOut), o.HeldOut)
	}
	return nil
}

// selections lists the selections that the fit can compare.
func (o Options) selections() []Selection {
	if o.Categories == nil {
		return Selections()
	}
	return append(Selections(), SelectCategory)
}

// checkScores returns fit.ErrData or fit.ErrOption if the scores cannot be fitted.
func (o Options) checkScores(scores rerank.Matrix) error {
	if len(scores.Data) != scores.Rows*scores.Cols {
		return fmt.Errorf("%w: %d numbers are no matrix of %d items by %d queries", fit.ErrData, len(scores.Data), scores.Rows, scores.Cols)
	}
	if err := o.Check(scores.Rows, scores.Cols); err != nil {
		return err
	}
	for r := range scores.Rows {
		if err := rerank.CheckFinite(fmt.Sprintf("scores[%d]", r), scores.Row(r)); err != nil {
			return fmt.Errorf("%w: %w", fit.ErrData, err)
		}
	}
	return nil
}

// AskedQueries returns, in ascending order, the queries whose scores for all items a
// fit reads: the support queries and the held-out queries, or every query if the fit
// trains perceptrons. The other queries may have any finite scores.
func (o Options) AskedQueries(queries int) []int {
	s := o.splitQueries(queries)
	asked := slices.Concat(s.heldOut, s.known)
	if o.Hidden == 0 {
		asked = slices.Concat(s.heldOut, o.drawSupportQueries(s.known))
	}
	slices.Sort(asked)
	return asked
}

// querySplit divides the queries, each side ascending.
type querySplit struct {
	heldOut []int // judge the fit
	known   []int // the others, among them the support queries
}

// splitQueries divides the queries at random.
func (o Options) splitQueries(queries int) querySplit {
	order := rand.New(rand.NewPCG(o.Seed, 0x9be)).Perm(queries)
	n := int(math.Round(o.HeldOut * float64(len(order))))
	s := querySplit{heldOut: order[:n], known: order[n:]}
	slices.Sort(s.heldOut)
	slices.Sort(s.known)
	return s
}

// drawSupportQueries returns the support queries, ascending: all known queries, or a
// sample.
func (o Options) drawSupportQueries(known []int) []int {
	n := o.SupportQueries
	if n == 0 || n >= len(known) {
		return known
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x50))
	var sample []int
	for _, i := range rng.Perm(len(known))[:n] {
		sample = append(sample, known[i])
	}
	slices.Sort(sample)
	return sample
}

// notef formats a line for Note.
func (o Options) notef(format string, args ...any) {
	fit.Common{Note: o.Note}.Notef(format, args...)
}
