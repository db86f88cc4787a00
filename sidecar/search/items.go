package search

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// ScoreRequest asks for φ of items that the caller names, by id or by vector.
type ScoreRequest struct {
	Route string
	// Collection, if set, holds the items instead of the route's collection, as in Request.
	Collection string
	Query      rerank.Query
	IDs        []rerank.ID
	Vectors    rerank.Matrix
	Explain    bool
}

// ScoreAnswer has one entry per item, in the order of the request.
type ScoreAnswer struct {
	Scores       []float32
	Explanations []rerank.Explanation
	// Missing holds the ids that the store does not have. Their score is NaN.
	Missing []rerank.ID
	Model   string
	Version string
}

// Score returns φ of items that the caller names, from the route's feature rows or from the given
// vectors. No ranker is asked. Before any call to the store it returns route.ErrUnknown, a
// *plan.FieldError or rerank.ErrQuery; later the store's error.
func (e *Engine) Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error) {
	version, err := e.Find(ctx, r.Route)
	if err != nil {
		return ScoreAnswer{}, err
	}
	defer version.Release()
	c := version.Current()
	if err := checkScore(c, r); err != nil {
		return ScoreAnswer{}, err
	}
	if err := plan.CheckQuery(c, r.Query); err != nil {
		return ScoreAnswer{}, err
	}
	q, err := c.Model.Similarity.Encode(r.Query)
	if err != nil {
		return ScoreAnswer{}, err
	}
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	ctx, s := e.tracer.Start(ctx, "likeness.score_items")
	defer s.End()
	ctx = span.With(ctx, &span.Scope{Tracer: e.tracer, Route: c, ErrorType: ErrorType})
	var a ScoreAnswer
	err = caught.Call(func() (err error) {
		if len(r.IDs) > 0 {
			a, err = scoreIDs(ctx, version, q, r)
		} else {
			a, err = scoreVectors(ctx, c, q, r)
		}
		return err
	})
	if errors.Is(err, caught.ErrPanic) {
		err = &failure.Error{Reason: failure.Scoring, Err: err}
	}
	if err != nil {
		failSpan(s, err)
		version.Forget(err)
		return ScoreAnswer{}, err
	}
	a.Model, a.Version = c.Model.Name, c.Model.Version
	return a, nil
}

func checkScore(c *route.Checked, r ScoreRequest) error {
	m := r.Vectors
	switch {
	case len(r.IDs) == 0 && m.Rows == 0:
		return plan.BadField("items", "neither ids nor vectors are given")
	case len(r.IDs) > 0 && m.Rows > 0:
		return plan.BadField("items", "ids and vectors are given; give one of them")
	case m.Rows < 0 || m.Rows > 0 && (m.Cols != c.Spec.ItemDim || len(m.Data)/m.Cols != m.Rows):
		return plan.BadField("vectors", "%d vectors of %d elements (%d in all); the model takes %d", m.Rows, m.Cols, len(m.Data), c.Spec.ItemDim)
	case len(r.IDs) > 0 && c.Store == nil && c.Table == nil:
		return plan.BadField("ids", "route %q has neither a store nor a table; give vectors", c.Name)
	}
	for i := range m.Rows {
		if err := rerank.CheckFinite(fmt.Sprintf("vectors[%d]", i), m.Row(i)); err != nil {
			return err
		}
	}
	for i, id := range r.IDs {
		if id.IsZero() {
			return plan.BadField("ids", "ids[%d] names nothing", i)
		}
	}
	return nil
}

func scoreVectors(ctx context.Context, c *route.Checked, q rerank.Encoded, r ScoreRequest) (a ScoreAnswer, err error) {
	b, err := retrieve.Encode(ctx, c, make([]rerank.ID, r.Vectors.Rows), nil, r.Vectors)
	if err == nil {
		a.Scores, a.Explanations, err = scoreBatch(ctx, c, b, q, r.Explain)
	}
	return a, err
}

// scoreBatch scores a batch, and explains the scores if the request asks for it and the similarity
// can.
func scoreBatch(ctx context.Context, c *route.Checked, b score.Batch, q rerank.Encoded, explain bool) ([]float32, []rerank.Explanation, error) {
	if err := c.Turns.Take(ctx); err != nil {
		return nil, nil, err
	}
	defer c.Turns.Give()
	scores := make([]float32, len(b.IDs))
	if err := q.Score(scores, b.Items); err != nil {
		return nil, nil, err
	}
	explainer := rerank.EncodedAbilitiesOf(q).Explain
	if !explain || explainer == nil {
		return scores, nil, nil
	}
	terms, err := explainer.Explain(b.Items)
	return scores, terms, err
}

// scoreIDs scores every id once, and returns the scores in the order of the request.
func scoreIDs(ctx context.Context, version *route.Version, q rerank.Encoded, r ScoreRequest) (ScoreAnswer, error) {
	c := version.Current()
	if c.Store != nil && c.Placement != route.PlacementTable {
		var err error
		if c, err = version.Check(ctx); err != nil {
			return ScoreAnswer{}, err
		}
	}
	c = c.ForCollection(r.Collection)
	distinct := retrieve.NewIDSet(len(r.IDs))
	for _, id := range r.IDs {
		distinct.Add(id, 0)
	}
	view := c.View()
	defer view.Release()
	reader := retrieve.Reader{View: view, FullPrecision: true}
	batches, err := reader.Read(ctx, distinct.IDs)
	if err != nil {
		return ScoreAnswer{}, err
	}
	place := make(map[rerank.ID]int, len(distinct.IDs))
	var scores []float32
	var terms []rerank.Explanation
	for _, b := range batches {
		for i, id := range b.IDs {
			place[id] = len(scores) + i
		}
		s, t, err := scoreBatch(ctx, c, b, q, r.Explain)
		if err != nil {
			return ScoreAnswer{}, err
		}
		scores, terms = append(scores, s...), append(terms, t...)
	}
	return inOrder(r, place, scores, terms), nil
}

// inOrder puts scores into the order of the request. place maps each scored item to its score's
// index.
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
