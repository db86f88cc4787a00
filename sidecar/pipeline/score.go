package pipeline

import (
	"context"
	"fmt"
	"math"

	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/rerank"
)

// Score returns φ of items that the caller brings, from the route's placement
// or computed from the vectors; no ranker is asked. It returns ErrRoute, a *FieldError and
// rerank.ErrQuery before any call to the store, otherwise the store's error.
func (p *Pipeline) Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error) {
	l, err := p.find(ctx, r.Route)
	if err != nil {
		return ScoreAnswer{}, err
	}
	defer l.release()
	o := l.current()
	if err := o.checkScore(r); err != nil {
		return ScoreAnswer{}, err
	}
	if err := o.checkQuery(r.Query); err != nil {
		return ScoreAnswer{}, err
	}
	enc, err := o.Model.Encode(r.Query)
	if err != nil {
		return ScoreAnswer{}, err
	}
	ctx, cancel := o.withTimeout(ctx)
	defer cancel()
	ctx, span := p.tracer.Start(ctx, "likeness.score_items")
	defer span.End()
	var a ScoreAnswer
	if len(r.IDs) > 0 {
		a, err = l.scoreIDs(ctx, p.tracer, enc, r)
	} else {
		a, err = o.scoreVectors(ctx, enc, r)
	}
	if err != nil {
		fail(span, err)
		l.forget(err)
		return ScoreAnswer{}, err
	}
	a.Model, a.Version = o.Model.Name, o.Model.Version
	return a, nil
}

func (o *opened) checkScore(r ScoreRequest) error {
	m := r.Vectors
	switch {
	case len(r.IDs) == 0 && m.Rows == 0:
		return badField("items", "neither ids nor vectors are given")
	case len(r.IDs) > 0 && m.Rows > 0:
		return badField("items", "ids and vectors are given; give one of them")
	case m.Rows < 0 || m.Rows > 0 && (m.Cols != o.spec.ItemDim || len(m.Data)/m.Cols != m.Rows):
		return badField("vectors", "%d vectors of %d elements (%d in all); the model takes %d", m.Rows, m.Cols, len(m.Data), o.spec.ItemDim)
	case len(r.IDs) > 0 && o.Store == nil && o.Table == nil:
		return badField("ids", "route %q has neither a store nor a table; give vectors", o.Name)
	}
	for i := range m.Rows {
		if err := rerank.CheckFinite(fmt.Sprintf("vectors[%d]", i), m.Row(i)); err != nil {
			return err
		}
	}
	for i, id := range r.IDs {
		if id.IsZero() {
			return badField("ids", "ids[%d] names nothing", i)
		}
	}
	return nil
}

func (o *opened) scoreVectors(ctx context.Context, enc rerank.Encoded, r ScoreRequest) (a ScoreAnswer, err error) {
	b, err := o.encode(ctx, make([]rerank.ID, r.Vectors.Rows), nil, r.Vectors)
	if err == nil {
		a.Scores, a.Explanations, err = o.explained(ctx, b, enc, r.Explain)
	}
	return a, err
}

// explained scores a batch, and takes the scores apart where asked and possible.
func (o *opened) explained(ctx context.Context, b batch, enc rerank.Encoded, explain bool) ([]float32, []rerank.Explanation, error) {
	if err := o.turns.Take(ctx); err != nil {
		return nil, nil, err
	}
	defer o.turns.Give()
	scores := make([]float32, len(b.ids))
	if err := enc.Score(scores, b.items); err != nil {
		return nil, nil, err
	}
	explainer, ok := enc.(rerank.Explainer)
	if !explain || !ok {
		return scores, nil, nil
	}
	terms, err := explainer.Explain(b.items)
	return scores, terms, err
}

// scoreIDs scores every id once and hands the scores out in the order asked.
func (l *lane) scoreIDs(ctx context.Context, tracer trace.Tracer, enc rerank.Encoded, r ScoreRequest) (ScoreAnswer, error) {
	o := l.current()
	if o.Store != nil && o.Placement != PlacementTable {
		var err error
		if o, err = l.open(ctx); err != nil {
			return ScoreAnswer{}, err
		}
	}
	o = o.on(r.Collection)
	distinct := newIDSet(len(r.IDs))
	for _, id := range r.IDs {
		distinct.add(id, 0)
	}
	seen := o.resident()
	defer seen.release()
	src := source{opened: o, resident: seen, tracer: tracer, exact: true}
	batches, err := src.read(ctx, distinct.ids)
	if err != nil {
		return ScoreAnswer{}, err
	}
	place := make(map[rerank.ID]int, len(distinct.ids))
	var scores []float32
	var terms []rerank.Explanation
	for _, b := range batches {
		for i, id := range b.ids {
			place[id] = len(scores) + i
		}
		s, t, err := o.explained(ctx, b, enc, r.Explain)
		if err != nil {
			return ScoreAnswer{}, err
		}
		scores, terms = append(scores, s...), append(terms, t...)
	}
	return inOrder(r, place, scores, terms), nil
}

func inOrder(r ScoreRequest, place map[rerank.ID]int, scores []float32, terms []rerank.Explanation) ScoreAnswer {
	nan := float32(math.NaN())
	a := ScoreAnswer{Scores: make([]float32, len(r.IDs))}
	for i, id := range r.IDs {
		at, ok := place[id]
		e := rerank.Explanation{Score: nan}
		a.Scores[i] = nan
		if ok {
			a.Scores[i] = scores[at]
		} else {
			a.Missing = append(a.Missing, id)
		}
		if ok && len(terms) > 0 {
			e = terms[at]
		}
		if r.Explain {
			a.Explanations = append(a.Explanations, e)
		}
	}
	return a
}
