// Package bridge fits bridges between embedding models. A bridge compares a query's vector by the new
// model with an item's vector by the old one, so that the new model searches a collection that the old
// model embedded: φ(q, x) is the cosine of q and Wx + b.
//
// W and b come from vectors of the same texts by both models, by ridge regression between centred
// vectors. Queries are texts too, and the regression learns from them if it then predicts items better. If
// right answers are known, it can predict points between an item's new vector and the queries that the item
// answers, which makes it a similarity learned from them. The regression makes the vectors of items that it
// predicts badly short, so the inner product with Wx + b would rank them last; the cosine does not. A bridge
// is a Mixture-of-Logits of one logit.
//
// A bridge is judged before it is served, beside the alternatives: to keep the old model, to embed
// some of the items again, and to embed all of them. Most items of a collection are not among the texts, so
// every item is judged by a map that has not seen it or the query, has seen no more right answers than the map of a
// right answer has, and has learned from nearly as many texts as the map that is served.
package bridge

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Data holds vectors of the same texts by both models, and what judges the bridge.
type Data struct {
	// Old and New hold a row for each text.
	Old, New rerank.Matrix
	// OldQueries and NewQueries hold a row for each query, by both models. They are empty if
	// there are no queries: then some of the texts are held out, to take their place.
	OldQueries, NewQueries rerank.Matrix
	// Relevant[q] holds the rows of the texts that are right answers to query q, ascending and
	// distinct. If it is nil, the new model's own first ten take their place.
	Relevant [][]int32
	// Hidden[q] holds the rows of texts that rankings for query q leave out, ascending and
	// distinct. If it is nil, none is left out.
	Hidden [][]int32
	// Segments names the segment of each query; nil if the queries have no segments.
	Segments []string
}

// Options are the options of a fit. DefaultOptions has the defaults.
type Options struct {
	// Normalise fits on unit vectors and compares by the cosine. Without it φ is the inner product.
	Normalise bool
	Seed      uint64
	// HeldOut is the share of the texts that serve as queries if no queries are given.
	HeldOut float64
	// Lazy is the share of the items that have been embedded again in the alternative between a
	// bridge and a new index. They are the items that earlier answers touched most.
	Lazy float64
	// Tolerance is the share of the best alternative's nDCG@10 that a cheaper one may lose and
	// still be as good.
	Tolerance  float64
	Confidence float64
	// Progress is told of long work. It may be nil.
	Progress fit.Progress `json:"-"`
}

// DefaultOptions returns the options of a command without flags.
func DefaultOptions() Options {
	return Options{Normalise: true, Seed: 1, HeldOut: 0.2, Lazy: 0.2, Tolerance: 0.03, Confidence: verdict.DefaultConfidence}
}

// Fitted is the outcome of a fit.
type Fitted struct {
	Config  mol.Config
	Tensors tensor.Set
	Report  Report
}

// Fit fits a bridge and judges it. It returns fit.ErrData, fit.ErrOption or the context's error.
func Fit(ctx context.Context, d Data, o Options) (*Fitted, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := d.scale(o.Normalise); err != nil {
		return nil, err
	}
	r := Report{Texts: d.Old.Rows, OldDim: d.Old.Cols, NewDim: d.New.Cols, Seed: o.Seed, Normalise: o.Normalise, Lazy: o.Lazy}
	t := newTrial(d, o)
	if err := t.learn(ctx, d); err != nil {
		return nil, err
	}
	r.Explained, r.FromQueries = t.explained, t.asked != nil
	if err := t.judge(ctx, &r); err != nil {
		return nil, err
	}
	config, tensors := t.served.model(o.Normalise)
	return &Fitted{Config: config, Tensors: tensors, Report: r}, nil
}

// check returns fit.ErrOption.
func (o Options) check() error {
	switch {
	case !(o.HeldOut > 0 && o.HeldOut <= 0.5):
		return fmt.Errorf("%w: the share of texts held out is %g, want above 0 and at most 0.5", fit.ErrOption, o.HeldOut)
	case !(o.Lazy > 0 && o.Lazy < 1):
		return fmt.Errorf("%w: the share of items embedded again is %g, want above 0 and below 1", fit.ErrOption, o.Lazy)
	case !(o.Tolerance >= 0 && o.Tolerance < 1):
		return fmt.Errorf("%w: the tolerance is %g, want 0 at least and below 1", fit.ErrOption, o.Tolerance)
	case !(o.Confidence > 0 && o.Confidence < 1):
		return fmt.Errorf("%w: the confidence is %g, want above 0 and below 1", fit.ErrOption, o.Confidence)
	}
	return nil
}

// leastTexts is the least number of texts by which a bridge can be fitted and judged.
const leastTexts = 50

// check returns fit.ErrData if the parts of the data do not match.
func (d Data) check() error {
	queries := d.NewQueries.Rows
	switch {
	case d.Old.Rows != d.New.Rows:
		return fmt.Errorf("%w: %d vectors by the old model and %d by the new one; row i of both is text i", fit.ErrData, d.Old.Rows, d.New.Rows)
	case d.Old.Rows < leastTexts:
		return fmt.Errorf("%w: %d texts, want %d at least, and a few thousand for a good bridge", fit.ErrData, d.Old.Rows, leastTexts)
	case d.OldQueries.Rows != queries:
		return fmt.Errorf("%w: %d queries by the old model and %d by the new one; row i of both is query i", fit.ErrData, d.OldQueries.Rows, queries)
	case queries == 0 && (d.Relevant != nil || d.Hidden != nil || d.Segments != nil):
		return fmt.Errorf("%w: pairs, seen items or segments without queries", fit.ErrData)
	case queries == 0:
		return nil
	case d.OldQueries.Cols != d.Old.Cols || d.NewQueries.Cols != d.New.Cols:
		return fmt.Errorf("%w: queries have %d numbers by the old model and %d by the new one, texts %d and %d",
			fit.ErrData, d.OldQueries.Cols, d.NewQueries.Cols, d.Old.Cols, d.New.Cols)
	case d.Segments != nil && len(d.Segments) != queries:
		return fmt.Errorf("%w: segments of %d queries for %d", fit.ErrData, len(d.Segments), queries)
	case d.Relevant == nil:
		return nil
	}
	return fit.Data{Items: d.New, Queries: d.NewQueries, Relevant: d.Relevant, Seen: d.Hidden}.Check()
}

// scale scales copies of the vectors as samples.Scale does.
func (d *Data) scale(unit bool) (err error) {
	for _, m := range []struct {
		name   string
		matrix *rerank.Matrix
	}{{"old", &d.Old}, {"new", &d.New}, {"queries-old", &d.OldQueries}, {"queries-new", &d.NewQueries}} {
		if m.matrix.Rows == 0 || !unit {
			continue
		}
		if *m.matrix, _, err = samples.Scale(m.name, *m.matrix, true, nil); err != nil {
			return err
		}
	}
	return nil
}
