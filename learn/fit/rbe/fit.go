// Package rbe fits relevance-based embeddings to the scores of a heavy ranker: it
// chooses support items, and approximates all scores from the scores of these items.
package rbe

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Fitted is the outcome of a fit. Items and queries are row and column numbers of the
// scores.
type Fitted struct {
	SupportItems, SupportQueries []int
	Hidden, Out                  int
	Features                     int // how many numbers of a query's own vector the perceptrons read; 0 if none
	Tensors                      tensor.Set
	Report                       Report
}

// Config returns the configuration of the model. item and query give the ids of items
// and queries.
func (f *Fitted) Config(item, query func(int) rerank.ID) rbe.Config {
	c := rbe.Config{Hidden: f.Hidden, Out: f.Out, Features: f.Features}
	for _, x := range f.SupportItems {
		c.SupportItems = append(c.SupportItems, item(x))
	}
	for _, q := range f.SupportQueries {
		c.SupportQueries = append(c.SupportQueries, query(q))
	}
	return c
}

// BaseVectors returns the scores of all items for the support queries: the vectors that
// a model reads of its items.
func BaseVectors(scores rerank.Matrix, supportQueries []int) rerank.Matrix {
	return selectColumns(scores, supportQueries)
}

// Fit fits relevance-based embeddings to scores R, items by queries. It chooses support
// items by the queries that are not held out, computes P = pinv(R(S_I, S_Q)), trains
// perceptrons if the options ask for them, and judges on the held-out queries. Of the
// rounds of the perceptrons it keeps the one that was best on a tenth of the other
// queries, or none if CUR was better. It returns fit.ErrData, fit.ErrOption,
// fit.ErrCheckpoint, or the error of the checkpoint or the context.
func Fit(ctx context.Context, scores rerank.Matrix, o Options) (*Fitted, error) {
	if err := o.checkScores(scores); err != nil {
		return nil, err
	}
	split := o.splitQueries(scores.Cols)
	f := &fitter{scores: scores, options: o, split: split, truth: transpose(selectColumns(scores, split.heldOut))}
	return f.run(ctx)
}

// fitter is one run of Fit.
type fitter struct {
	scores  rerank.Matrix
	options Options
	split   querySplit
	truth   rerank.Matrix // true scores of the held-out queries, one a row
	report  Report
}

// run chooses the support items, and fits the approximation of all scores from the scores of these
// items.
func (f *fitter) run(ctx context.Context) (*Fitted, error) {
	o := f.options
	supportQueries := o.drawSupportQueries(f.split.known)
	base := selectColumns(f.scores, supportQueries)
	f.report = Report{
		Items: f.scores.Rows, Queries: f.scores.Cols, HeldOutQueries: len(f.split.heldOut), SupportQueries: len(supportQueries),
		Select: o.Select, Lambda: o.Lambda, Seed: o.Seed, ZeroItems: countZeroRows(base),
	}
	supportItems, err := f.chooseSupports(ctx, base)
	if err != nil {
		return nil, err
	}
	a, err := approximateCUR(base, supportItems, o.Lambda)
	if err != nil {
		return nil, err
	}
	fitted := &Fitted{SupportItems: supportItems, SupportQueries: supportQueries, Tensors: tensor.Set{
		"projection": {Shape: []int{a.projection.Rows, a.projection.Cols}, Data: a.projection.Data},
	}}
	if len(f.split.heldOut) > 0 {
		f.report.CUR = f.judge(f.supportScores(supportItems, f.split.heldOut), a.items)
	}
	f.report.Chosen = f.report.CUR
	if o.Hidden > 0 {
		if err := f.trainPerceptrons(ctx, fitted, a.items); err != nil {
			return nil, err
		}
	}
	fitted.Report = f.report
	return fitted, nil
}

func countZeroRows(m rerank.Matrix) int {
	n := 0
	for r := range m.Rows {
		if rerank.Norm(m.Row(r)) == 0 {
			n++
		}
	}
	return n
}

// chooseSupports chooses the support items by the base vectors. It returns fit.ErrData
// if every score is 0.
func (f *fitter) chooseSupports(ctx context.Context, base rerank.Matrix) ([]int, error) {
	o := f.options
	var supports []int
	var err error
	if o.Compare {
		supports, err = f.compareSelections(ctx, base)
	}
	if err == nil && supports == nil {
		supports, err = f.selectSupports(ctx, base, o.Select)
	}
	if err != nil {
		return nil, err
	}
	f.report.SupportItems = len(supports)
	if len(supports) == 0 {
		return nil, fmt.Errorf("%w: every score is 0; there is nothing to approximate", fit.ErrData)
	}
	if n := len(supports); n < min(o.Supports, f.scores.Rows) {
		f.report.Warnings = append(f.report.Warnings, fmt.Sprintf("%d support items of %d: the other items' scores follow from theirs", n, o.Supports))
	}
	return supports, nil
}

// selectSupports chooses support items by one selection.
func (f *fitter) selectSupports(ctx context.Context, base rerank.Matrix, how Selection) ([]int, error) {
	o := f.options
	switch how {
	case SelectOwn:
		return o.Own, nil
	case SelectCategory:
		return selectPerCategory(base, o.Categories, o.Supports), nil
	default:
		return Select(ctx, base, o.Supports, how, o.Seed, o.Progress)
	}
}

// compareSelections measures every selection without perceptrons. It returns the choice of the
// selection in the options.
func (f *fitter) compareSelections(ctx context.Context, base rerank.Matrix) ([]int, error) {
	o := f.options
	var chosen []int
	for _, how := range o.selections() {
		supports, err := f.selectSupports(ctx, base, how)
		if err != nil {
			return nil, err
		}
		if len(supports) == 0 {
			continue
		}
		if how == o.Select {
			chosen = supports
		}
		a, err := approximateCUR(base, supports, o.Lambda)
		if err != nil {
			return nil, err
		}
		c := Compared{Select: how, Quality: f.judge(f.supportScores(supports, f.split.heldOut), a.items)}
		f.report.Compared = append(f.report.Compared, c)
		o.notef("%s: error %.4g, hit rates %s", how, c.Error, formatRates(c.HitRates))
	}
	return chosen, nil
}

// curApproximation approximates the scores of a query as the inner products of the
// items' rows with the query's scores of the support items.
type curApproximation struct {
	projection rerank.Matrix // pinv(R(S_I, S_Q))ᵀ
	items      rerank.Matrix // base vectors times the projection
}

// approximateCUR makes the approximation from the support items and the base vectors.
func approximateCUR(base rerank.Matrix, supportItems []int, lambda float64) (curApproximation, error) {
	projection, err := pseudoInverse(selectRows(base, supportItems), lambda)
	if err != nil {
		return curApproximation{}, err
	}
	items := rerank.NewMatrix(base.Rows, projection.Rows)
	linalg.Multiply(items, base, false, projection, true)
	return curApproximation{projection: projection, items: items}, nil
}

// supportScores returns R(S_I, q), the scores of the support items, with one row for each of the
// queries.
func (f *fitter) supportScores(supportItems, queries []int) rerank.Matrix {
	return transpose(selectColumns(selectRows(f.scores, supportItems), queries))
}

// judge compares the inner products of the held-out queries' vectors and the items'
// vectors with the true scores.
func (f *fitter) judge(queries, items rerank.Matrix) Quality {
	approximate := rerank.NewMatrix(queries.Rows, items.Rows)
	linalg.Multiply(approximate, queries, false, items, true)
	return Quality{HitRates: hitRates(approximate, f.truth, f.options.Judged), Error: rootMeanSquareError(approximate, f.truth)}
}

func transpose(m rerank.Matrix) rerank.Matrix {
	out := rerank.NewMatrix(m.Cols, m.Rows)
	for r := range m.Rows {
		for c, v := range m.Row(r) {
			out.Row(c)[r] = v
		}
	}
	return out
}
