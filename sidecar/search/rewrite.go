package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// ErrNotRewritten: the query cannot be one search by one vector. Engine.Search can answer it.
var ErrNotRewritten = errors.New("query not rewritten")

// Rewritten is a query as one search of the route's collection. The database searches
// by Vector, and φ of a row is Scale·score + Offset, where score is the row's score in
// the database's answer. Scale is positive.
type Rewritten struct {
	// Collection is the name by which the route calls its collection, maybe an alias.
	Route, Collection string
	Vector            []float32
	Scale, Offset     float32
	// Quantized names the index or quantization by which the database compares rounded
	// vectors, unless it is asked to rescore them; "" if it has none.
	Quantized string
	// ExactSearch: the route asks for an exhaustive search, of the vectors themselves, which this
	// database does not make unless the request says so.
	ExactSearch bool
	// Version is the digest of the model file.
	Version string

	engine  *Engine        // nil in a Rewritten that a test made
	route   *route.Checked // nil like engine
	request Request
	encode  time.Duration
	began   time.Time
	ended   []func(error) // called by Answered
	span    trace.Span    // the span of the search, which ends in Answered
}

// DatabaseAnswer holds a database's answer to a rewritten search.
type DatabaseAnswer struct {
	// Hits are the rows with their φ, best first.
	Hits []Hit
	// Exact: the request asked for an exhaustive search and, on a quantized field, for one that
	// compares the vectors themselves.
	Exact bool
	// Narrowed: the rows are not the first of the whole collection, because the search has a
	// filter, a threshold, an offset or the like.
	Narrowed bool
	// Staged reports that the search was one stage of an answer: the database fused its rows with
	// rows of other searches, or took them from such rows, so Hits proves nothing.
	Staged bool
	// Err is the error of the call, if it failed.
	Err error
}

// Score returns φ of a row from the score that the database states for it.
func (r *Rewritten) Score(score float32) float32 {
	return float32(float64(r.Scale)*float64(score) + float64(r.Offset))
}

// OnAnswered makes Answered also call ended, with the error of the call.
func (r *Rewritten) OnAnswered(ended func(error)) { r.ended = append(r.ended, ended) }

// Answered returns the certificate of the database's answer, and tells the engine's
// observers of the search. The caller of Rewrite calls it exactly once, also if the
// call to the database failed or its client went away: until then the search counts as
// in flight.
func (r *Rewritten) Answered(ctx context.Context, got DatabaseAnswer) rerank.Certificate {
	for _, ended := range r.ended {
		ended(got.Err)
	}
	a := Answer{Hits: got.Hits, Narrowed: got.Narrowed, Certificate: certify.Unproved(rerank.Certificate{Stop: rerank.StopFixed})}
	if r.engine == nil {
		return a.Certificate
	}
	defer r.span.End()
	c := r.route
	a.Strategy, a.Model, a.Version = r.request.Strategy, c.Model.Name, c.Model.Version
	if got.Err == nil {
		evidence := r.evidence(got)
		a.Certificate = evidence.Certificate()
		a.Certificate.Stop = evidence.StopRewritten(nil, a.Certificate)
		r.span.SetAttributes(attribute.String("likeness.certificate", string(a.Certificate.Status)), attribute.Int("likeness.hits", len(got.Hits)))
	} else {
		failSpan(r.span, got.Err)
	}
	a.Timings = Timings{Encode: r.encode, Retrieve: time.Since(r.began) - r.encode, Total: time.Since(r.began)}
	if r.engine.observer != nil {
		r.engine.observer.Searched(ctx, r.Route, r.request, a, got.Err)
	}
	return a.Certificate
}

// evidence describes the database's answer.
func (r *Rewritten) evidence(got DatabaseAnswer) *certify.Evidence {
	c, k := r.route, r.request.K
	exact := !got.Staged && c.Field.FullPrecision && (c.Field.AlwaysExact || got.Exact && c.Field.Exact)
	finite := len(got.Hits)
	for finite > 0 && !rerank.IsFinite(got.Hits[finite-1].Score) {
		finite--
	}
	e := &certify.Evidence{
		SingleInnerProduct: true, MaxScore: c.Spec.MaxScore,
		WrongNorm: c.Norms.Wrong() != nil,
		Known:     &rerank.Bound{Max: float32(math.Inf(1)), Epsilon: r.epsilon(got.Hits[:finite])},
		Lists:     []rerank.List{{Exact: exact, Exhausted: exact && len(got.Hits) < k}},
		Target:    &rerank.Probe{Target: rerank.TargetScore},
		K:         k, Hits: len(got.Hits), Finite: finite, Depth: k, Rounds: 1, Candidate: len(got.Hits),
		Restricted: got.Narrowed || !r.request.IsUnrestricted(), HidesRows: got.Narrowed || r.request.HidesRows(), Rule: r.request.Rule(),
	}
	if r.Quantized != "" && !exact {
		e.RoundingError = float32(math.Inf(1)) // the database may have scored rounded vectors
	}
	if n := min(k, finite); n > 0 {
		e.MedianScore, e.KthScore = got.Hits[n/2].Score, got.Hits[n-1].Score
		e.Known.Max = got.Hits[finite-1].Score
	}
	if c.Promise != nil {
		e.Audited = true
		e.Calibration, e.Void = c.Promise.Calibration()
	}
	return e
}

// epsilon bounds the rounding error of the scores. It covers the database's arithmetic, the
// elements of the vector, which were rounded once more, and the Score method. On an inner-product
// field, which may hold vectors of any norm, it is an estimate: it assumes that the longest vector
// is at most twice as long as the scores show.
func (r *Rewritten) epsilon(hits []Hit) float32 {
	c, norm := r.route, rerank.Norm(r.Vector)
	scale := float64(r.Scale) * norm // of an inner product with a unit vector
	if c.Field.Metric == adapters.Cosine {
		scale = float64(r.Scale)
	}
	longest, largest := 1.0, 0.0
	for _, h := range hits {
		largest = max(largest, math.Abs(float64(h.Score)))
	}
	if c.Field.Metric != adapters.Cosine && !c.UnitVectors && scale > 0 {
		longest = 2 * (largest + math.Abs(float64(r.Offset))) / scale
	}
	roundings := 2*c.Field.Roundings() + 32 // of two norms, too
	if c.Field.Metric == adapters.InnerProduct {
		roundings = c.Field.Roundings() + 4
	}
	store := float64(adapters.Epsilon32(roundings, scale, longest))
	if c.Field.Datatype == adapters.Float16 {
		store += float64(r.Scale) * float64(adapters.Epsilon16(c.Field.Dim, scale/float64(r.Scale), longest))
	}
	return float32(store + (largest+math.Abs(float64(r.Offset)))*0x1p-22)
}

// Rewrite returns a request as one search of the route's collection, which the caller sends
// itself and then reports to Answered. The caller chooses the limit, the filter and the
// partitions of that search: Rewrite copies K, Filter and Partitions of the request to the
// certificate and to the observers, and holds them to no limit of the route. It returns
// ErrNotRewritten if the route has another placement or a ranker, or if the pulled-back
// vector is zero, or too large for float32 or for the field. Its other errors are the same as
// for Search.
func (e *Engine) Rewrite(ctx context.Context, r Request) (*Rewritten, error) {
	ctx, s := e.tracer.Start(ctx, "likeness.rewrite", trace.WithAttributes(attribute.String("likeness.route", r.Route)))
	out, err := e.rewrite(ctx, r)
	if err != nil {
		failSpan(s, err)
		s.End()
		return nil, err
	}
	out.span = s
	return out, nil
}

func (e *Engine) rewrite(ctx context.Context, r Request) (*Rewritten, error) {
	began := time.Now()
	version, err := e.Find(ctx, r.Route)
	if err != nil {
		return nil, err
	}
	defer version.Release()
	version.ConfirmField(ctx, r.Collection)
	c, err := version.Check(ctx)
	if err != nil {
		return nil, err
	}
	e.logWrongNorm(ctx, c)
	switch {
	case c.Placement != route.PlacementRewrite:
		return nil, fmt.Errorf("%w: route %q has placement %q", ErrNotRewritten, r.Route, c.Placement)
	case c.Ranker != nil:
		return nil, fmt.Errorf("%w: ranker %q orders the answers of route %q", ErrNotRewritten, c.RankerName, r.Route)
	}
	if err := plan.CheckQuery(c, r.Query); err != nil {
		return nil, err
	}
	product, err := pullBack(c, r.Query)
	if err != nil {
		return nil, err
	}
	norm := rerank.Norm(product.Vector)
	switch {
	case norm == 0:
		return nil, fmt.Errorf("%w: the pulled-back vector is zero", ErrNotRewritten)
	case !c.Field.CanCompare(product.Vector):
		return nil, fmt.Errorf("%w: the pulled-back vector, of norm %v, is zero or infinite as %s", ErrNotRewritten, norm, c.Field.Datatype)
	}
	r.Strategy, r.Weights, r.Head, r.Depth = c.Strategy, c.Weights, c.Head, r.K
	out := &Rewritten{
		Route: c.Name, Collection: c.Collection, Vector: product.Vector, Scale: product.Scale, Offset: product.Offset,
		Quantized: c.Field.Quantized, ExactSearch: c.ExactSearch && c.Field.Exact && !c.Field.AlwaysExact, Version: c.Model.Version, engine: e, route: c, request: r, began: began,
	}
	if c.Field.Metric == adapters.Cosine { // the database divides by the norms of both vectors
		out.Scale = float32(float64(product.Scale) * norm)
	}
	if !rerank.IsFinite(out.Scale) || out.Scale <= 0 {
		return nil, fmt.Errorf("%w: the pulled-back vector has norm %v", ErrNotRewritten, norm)
	}
	out.encode = time.Since(began)
	return out, nil
}

// pullBack returns φ of a query as one inner product with the stored vector. It returns
// rerank.ErrQuery, or ErrNotRewritten.
func pullBack(c *route.Checked, q rerank.Query) (rerank.InnerProduct, error) {
	encoded, err := c.Model.Similarity.Encode(q)
	if err != nil {
		return rerank.InnerProduct{}, err
	}
	able := rerank.EncodedAbilitiesOf(encoded).PullBack
	if able == nil {
		return rerank.InnerProduct{}, fmt.Errorf("%w: φ of this query is not one inner product with the stored vectors", ErrNotRewritten)
	}
	product, ok := able.PullBack()
	if !ok {
		return product, fmt.Errorf("%w: the pulled-back vector is too large for float32", ErrNotRewritten)
	}
	return product, nil
}
