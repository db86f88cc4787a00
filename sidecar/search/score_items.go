package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// ScoreRequest asks for φ of items that the caller names: by id, by vector, or as documents.
type ScoreRequest struct {
	Route string
	// Collection, if set, holds the items instead of the route's collection, as in Request.
	Collection string
	Query      rerank.Query
	History    []plan.WeightedID // as in Request
	IDs        []rerank.ID
	Vectors    rerank.Matrix
	Documents  []Document
	Explain    bool
}

// Document is an item: an id of the collection, or a text.
type Document struct {
	ID rerank.ID
	// Text is embedded by the route's embedder. A number or a UUID is the id of an item instead,
	// unless the collection's ids are strings of any kind.
	Text string
}

// ScoreAnswer has one entry per item, in the order of the request.
type ScoreAnswer struct {
	Scores       []float32
	Explanations []rerank.Explanation
	// Missing holds the ids that the store does not have, as the request spells them. Their score is
	// NaN.
	Missing []rerank.ID
	Model   string
	Version string
	// Certificate says what the scores rest on: the vectors themselves, or a snapshot of them.
	Certificate rerank.Certificate
	// Embed is the embedder's time, Total the time of the whole call.
	Embed, Total time.Duration
}

// Score returns φ of items that the caller names, from the route's feature rows or from the given
// vectors. No ranker is asked. Before any call to the store it returns route.ErrUnknown, a
// *plan.FieldError, rerank.ErrQuery or the embedder's error; later the store's error.
func (e *Engine) Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error) {
	began := time.Now()
	version, err := e.Find(ctx, r.Route)
	if err != nil {
		return ScoreAnswer{}, err
	}
	defer version.Release()
	c := version.Current()
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	ctx, s := e.tracer.Start(ctx, "likeness.score_items")
	defer s.End()
	ctx = span.With(ctx, e.newScope(c))
	a, err := e.score(ctx, version, r)
	if err != nil {
		failSpan(s, err)
		version.Forget(err)
		return ScoreAnswer{}, err
	}
	a.Model, a.Version, a.Total = c.Model.Name, c.Model.Version, time.Since(began)
	return a, nil
}

func (e *Engine) score(ctx context.Context, version *route.Version, r ScoreRequest) (a ScoreAnswer, err error) {
	c := version.Current()
	if len(r.Documents) > 0 && (len(r.IDs) > 0 || r.Vectors.Rows > 0) {
		return a, plan.BadField("items", "documents are given beside ids or vectors; give one of them")
	}
	documents := splitDocuments(c, &r)
	if err := checkScore(c, r); err != nil {
		return a, err
	}
	if len(r.History) > 0 {
		if r.Query, err = historyQuery(ctx, c.ForCollection(r.Collection), r.Query, r.History); err != nil {
			return a, err
		}
	}
	took, err := e.embedScore(ctx, c, &r, documents.texts)
	if err != nil {
		return a, err
	}
	if err := plan.CheckQuery(c, r.Query); err != nil {
		return a, err
	}
	q, err := c.Model.Similarity.Encode(r.Query)
	if err != nil {
		return a, err
	}
	err = caught.Call(func() (err error) {
		if a.Certificate = (certify.Source{}).Scores(r.Vectors.Rows, false); len(r.IDs) > 0 {
			a, err = scoreIDs(ctx, version, q, r)
		}
		if err == nil && r.Vectors.Rows > 0 {
			err = a.addVectors(ctx, c, q, r)
		}
		return err
	})
	if errors.Is(err, caught.ErrPanic) {
		err = &failure.Error{Reason: failure.Scoring, Err: err}
	}
	if documents.order != nil {
		a.reorder(documents.order)
	}
	a.Embed = took
	return a, err
}

// splitResult is the result of splitDocuments.
type splitResult struct {
	texts []string // the documents to embed
	order []int    // order[i] numbers the document of score i, ids before texts; nil without documents
}

// splitDocuments adds the documents that are ids to the ids of a request, and returns the others.
func splitDocuments(c *route.Checked, r *ScoreRequest) (out splitResult) {
	if len(r.Documents) == 0 {
		return out
	}
	var ids, texts []int
	for i, d := range r.Documents {
		id := d.ID
		if text, isText := id.Text(); isText {
			id = adapters.ParseID(text, c.TextIDs)
		} else if id.IsZero() {
			id = idOf(c, d.Text)
		}
		if id.IsZero() {
			texts, out.texts = append(texts, i), append(out.texts, d.Text)
		} else {
			ids, r.IDs = append(ids, i), append(r.IDs, id)
		}
	}
	out.order = slices.Concat(ids, texts)
	return out
}

// idOf returns the id that the text of a document is, or the zero ID if it is a text to embed.
func idOf(c *route.Checked, text string) rerank.ID {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && !c.TextIDs {
		return rerank.UintID(n)
	}
	if canonical, ok := rerank.CanonicalUUID(text); ok && !c.TextIDs {
		return rerank.TextID(canonical)
	}
	return rerank.ID{}
}

// embedScore makes the vectors of the query and of the items that are texts, in one call of the
// embedder.
func (e *Engine) embedScore(ctx context.Context, c *route.Checked, r *ScoreRequest, texts []string) (time.Duration, error) {
	embedQuery := c.NeedsEmbedder(r.Query)
	switch {
	case len(texts) == 0 && !embedQuery:
		return 0, nil
	case c.Embedder == nil:
		return 0, plan.BadField("documents", "%.80q is no id, and route %q has no embedder that makes a vector of it; name one in the configuration, or send ids", texts[0], c.Name)
	case len(texts) == 0:
		query, took, err := e.embed(ctx, c, r.Query)
		r.Query = query
		return took, err
	case c.SupportItems() > 0:
		return 0, plan.BadField("documents", "the model of route %q takes a ranker's scores of items, not the vectors of its embedder; send ids", c.Name)
	case c.Spec.ItemDim != c.Spec.QueryDim:
		return 0, plan.BadField("documents", "the embedder of route %q makes vectors of queries, of %d elements, and its model takes items of %d; send ids", c.Name, c.Spec.QueryDim, c.Spec.ItemDim)
	}
	var queries []string
	if embedQuery {
		queries = []string{r.Query.Text}
		r.Query.Text = ""
	}
	vectors, took, err := e.embedTexts(ctx, c, queries, texts)
	if err != nil {
		return took, err
	}
	if embedQuery {
		r.Query.Vector, vectors = vectors[0], vectors[1:]
	}
	r.Vectors = rerank.NewMatrix(len(vectors), c.Spec.ItemDim)
	for i, v := range vectors {
		copy(r.Vectors.Row(i), v)
	}
	return took, nil
}

func checkScore(c *route.Checked, r ScoreRequest) error {
	m := r.Vectors
	switch {
	case len(r.IDs) == 0 && m.Rows == 0 && len(r.Documents) == 0:
		return plan.BadField("items", "no ids, vectors or documents are given")
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

// addVectors adds the scores of the request's vectors.
func (a *ScoreAnswer) addVectors(ctx context.Context, c *route.Checked, q rerank.Encoded, r ScoreRequest) error {
	b, err := retrieve.Encode(ctx, c, make([]rerank.ID, r.Vectors.Rows), nil, r.Vectors)
	if err != nil {
		return err
	}
	scores, terms, err := scoreBatch(ctx, c, b, q, r.Explain)
	a.Scores, a.Explanations = append(a.Scores, scores...), append(a.Explanations, terms...)
	a.Certificate.Candidates = len(a.Scores)
	return err
}

// reorder puts the scores into the order of the documents: score i moves to place order[i].
func (a *ScoreAnswer) reorder(order []int) {
	scores, terms := make([]float32, len(a.Scores)), make([]rerank.Explanation, len(a.Explanations))
	for i, place := range order[:len(a.Scores)] {
		scores[place] = a.Scores[i]
		if len(terms) > 0 {
			terms[place] = a.Explanations[i]
		}
	}
	a.Scores, a.Explanations = scores, terms
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
		version.ConfirmField(ctx, r.Collection)
		var err error
		if c, err = version.Check(ctx); err != nil {
			return ScoreAnswer{}, err
		}
	}
	c = c.ForCollection(r.Collection)
	canonical, err := adapters.CanonicalIDs(c.SpellIDs, r.IDs)
	if err != nil {
		return ScoreAnswer{}, err
	}
	distinct := retrieve.NewIDSet(len(canonical))
	for _, id := range canonical {
		distinct.Add(id, 0)
	}
	view := c.View()
	defer view.Release()
	reader := retrieve.Reader{View: view, FullPrecision: true}
	batches, err := reader.Read(ctx, distinct.IDs)
	if err != nil {
		return ScoreAnswer{}, err
	}
	lossy := c.Placement.ScoresStored() && !c.Field.FullPrecision
	place := make(map[rerank.ID]int, len(distinct.IDs))
	var scores []float32
	var terms []rerank.Explanation
	for _, b := range batches {
		lossy = lossy || b.Rounded
		for i, id := range b.IDs {
			place[id] = len(scores) + i
		}
		s, t, err := scoreBatch(ctx, c, b, q, r.Explain)
		if err != nil {
			return ScoreAnswer{}, err
		}
		scores, terms = append(scores, s...), append(terms, t...)
	}
	a := inOrder(r, canonical, place, scores, terms)
	source := certify.Source{
		Derived: !c.Placement.ScoresStored(), Behind: view.Behind, SeesEveryWrite: view.SeesEveryWrite(), AsOf: view.Horizon.AsOf,
	}
	a.Certificate = source.Scores(len(scores), lossy)
	return a, nil
}

// inOrder puts scores into the order of the request, whose ids canonical spells as the store does. place
// maps each scored item to its score's index. Missing ids keep the request's spelling.
func inOrder(r ScoreRequest, canonical []rerank.ID, place map[rerank.ID]int, scores []float32, terms []rerank.Explanation) ScoreAnswer {
	nan := float32(math.NaN())
	a := ScoreAnswer{Scores: make([]float32, len(r.IDs))}
	for i, id := range r.IDs {
		at, ok := place[canonical[i]]
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
