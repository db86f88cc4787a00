package routing

import (
	"cmp"
	"context"
	"errors"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// MaxRewrites limits the searches of one call that are rewritten. Locate returns the Pass of a call
// with more.
const MaxRewrites = 4096

// Replacement holds the values that replace those of a client's search on its way to the database, and maps
// the scores of the answer back.
type Replacement struct {
	// Vector replaces the search's vector.
	Vector []float32
	// Scale and Offset map a score of the database to a score of the similarity (see Score). Scale
	// is positive.
	Scale, Offset float32
	// Threshold replaces the search's threshold, to which Score maps it. nil means that the search
	// has none.
	Threshold *float32
	// EF is the size of the index's candidate list. 0 keeps the request's.
	EF uint64
	// Exact asks for a comparison with every row, and Unquantized for one with the vectors themselves,
	// in a request that says nothing of it. False keeps the request's setting.
	Exact, Unquantized bool
}

// SetsParams reports whether parameters are added to the search.
func (r Replacement) SetsParams() bool { return r.EF > 0 || r.Exact || r.Unquantized }

// Score maps the database's score of a row to the similarity's.
func (r Replacement) Score(score float32) float32 {
	return float32(float64(r.Scale)*float64(score) + float64(r.Offset))
}

// KeepsScores reports whether the similarity's scores are the database's own.
func (r Replacement) KeepsScores() bool { return r.Scale == 1 && r.Offset == 0 }

// MapScore returns Score(score). It returns Degraded if the result is not finite although the
// database's score is.
func (r Replacement) MapScore(score float32) (float32, error) {
	mapped := r.Score(score)
	if !rerank.IsFinite(mapped) && rerank.IsFinite(score) {
		return 0, Degraded{Reason: "score-not-finite"}
	}
	return mapped, nil
}

// threshold returns the database's score that Score maps to the given one.
func (r Replacement) threshold(score float32) float32 {
	return float32((float64(score) - float64(r.Offset)) / float64(r.Scale))
}

// ErrDenied says that the database refused the caller, or limited the caller's rate. The answer
// that comes with this error is the client's.
var ErrDenied = errors.New("the database refuses the caller")

// readRewrite reads a call whose searches are all rewritten. done is false if the call must be read
// in full: for a route with another placement, or because its form cannot be rewritten.
func (c *call[A]) readRewrite(ctx context.Context) (done bool, err error) {
	if !c.coverage.rewrites(c.target.Routed) {
		return false, nil
	}
	asked, err := c.x.Locate(ctx)
	if pass := Pass(""); errors.As(err, &pass) || err == nil && len(asked.Searches) == 0 {
		return false, nil // Read will say why, in the terms of the interface
	}
	if err != nil {
		return false, err
	}
	routes, rewritten := make([]*route.Route, len(asked.Searches)), 0
	for i, s := range asked.Searches {
		if routes[i], err = c.coverage.routeOf(ctx, c.target.Routed, s.Vector); err != nil {
			return false, err
		}
		if routes[i].Placement == route.PlacementRewrite {
			rewritten++
		}
	}
	switch {
	case rewritten == 0 || !rewritesStages(asked, routes):
		return false, nil
	case rewritten < len(routes):
		return false, Pass("batch") // a call is answered by one side only
	case c.target.Own == "":
		return false, Pass("alias")
	}
	for i, s := range asked.Searches {
		if err := c.coverage.checkRewrite(ctx, routes[i], s); err != nil {
			return false, err
		}
	}
	if c.anyTried(ctx, asked.Searches, routes) && c.readWhole(ctx) == nil {
		return true, nil
	}
	c.asked, c.routes, c.rewritten = asked, routes, true
	return true, nil
}

// rewritesStages reports whether the routes of a call's searches also rewrite searches that are one
// stage of an answer.
func rewritesStages(asked Asked, routes []*route.Route) bool {
	for i, s := range asked.Searches {
		if s.Staged && !(routes[i].RewriteLegs && routes[i].Placement == route.PlacementRewrite) {
			return false
		}
	}
	return true
}

// rewrite answers the call with one call of the database: the client's own with other vectors. No
// original is sent beside it, since it would be answered no sooner. The vectors must be ready
// before the original would have to be sent.
func (c *call[A]) rewrite(ctx context.Context) (out rescored[A]) {
	within, cancel := ctx, context.CancelFunc(func() {})
	if !c.closed() {
		within, cancel = c.untilOriginalLeaves(ctx)
	}
	defer cancel()
	rewritten, err := c.rewriteAll(within)
	if err != nil {
		out.err = err
		return out
	}
	var hits [][]search.Hit
	all := make([]Replacement, len(rewritten))
	for i, s := range c.asked.Searches {
		all[i] = s.replacement(rewritten[i], c.routes[i].EF)
	}
	out.answer, hits, out.err = c.sendRewritten(ctx, all)
	got := search.DatabaseAnswer{Err: out.err}
	if out.err != nil && ctx.Err() != nil {
		got.Err = ctx.Err()
	}
	for i, s := range c.asked.Searches { // each is told the outcome
		got.Exact = s.isExhaustive(all[i], rewritten[i].Quantized)
		if got.Narrowed, got.Staged = s.Narrowed, s.Staged; out.err == nil {
			got.Hits = hits[i]
		}
		certificate := rewritten[i].Answered(ctx, got)
		out.all = append(out.all, Ranked{
			Route: c.routes[i].Name, Certificate: certificate.Status, WrongNorm: c.routes[i].Norms.Wrong() != nil,
			version: rewritten[i].Version, gap: certificate.Gap, page: got.Hits,
		})
	}
	switch d := (Degraded{}); {
	case errors.Is(out.err, ErrDenied):
		out.denied, out.err = true, Pass("refused")
	case out.err != nil && ctx.Err() != nil:
		out.err = c.ended(ctx, out.err)
	case errors.As(out.err, &d):
		d.Closed = c.closed()
		out.err = d
	}
	return out
}

// replacement returns the values to send in place of the search's own. The request's parameters
// take precedence over the route's exact_search and ef.
func (s Search) replacement(w *search.Rewritten, ef int) Replacement {
	r := Replacement{Vector: w.Vector, Scale: w.Scale, Offset: w.Offset}
	if s.Threshold != nil {
		t := r.threshold(*s.Threshold)
		r.Threshold = &t
	}
	r.Exact = w.ExactSearch && !s.HasEF && !s.HasExact
	r.Unquantized = w.ExactSearch && (s.Exact || r.Exact) && !s.HasQuantization
	if ef := uint64(ef); !s.HasEF && !r.Exact && ef > s.Limit+s.Offset { // an index returns at most as many rows as its candidate list has
		r.EF = ef
	}
	return r
}

// isExhaustive reports whether the database compares the query with all vectors when the search is sent
// with r, unquantized even if its index holds quantized vectors.
func (s Search) isExhaustive(r Replacement, quantized string) bool {
	return (s.Exact || r.Exact) && (quantized == "" || s.Unquantized || r.Unquantized)
}

// sendRewritten sends the call with all in place of its searches' values. It returns the answer,
// and the rows of every search in it.
func (c *call[A]) sendRewritten(ctx context.Context, all []Replacement) (answer A, hits [][]search.Hit, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = searchPanicked(ctx, c.rescorer.log, c.target.Routed, p)
		}
	}()
	for i, s := range c.asked.Searches {
		if err := checkRange(all[i], s); err != nil {
			return answer, nil, err
		}
	}
	if answer, hits, err = c.x.Rewrite(ctx, all); err != nil {
		return answer, nil, err
	}
	if len(hits) != len(all) {
		return answer, nil, Degraded{Reason: "answer"}
	}
	if c.target.Aliased() { // checked after the search, so that no switch during the search is missed
		err = c.coverage.names.checkTarget(ctx, c.target)
	}
	return answer, hits, err
}

// checkRange returns an error if the scores or the threshold of a rewritten search cannot
// mean the same as in the original search.
func checkRange(r Replacement, s Search) error {
	switch {
	case s.Unmapped != "" && !r.KeepsScores():
		return s.Unmapped
	case r.Threshold != nil && math.IsInf(float64(*r.Threshold), 0):
		return Pass("score-threshold")
	}
	return nil
}

// rewriteAll rewrites the searches of the call. The caller must end every search that it returns.
// With an error it returns no searches.
func (c *call[A]) rewriteAll(ctx context.Context) ([]*search.Rewritten, error) {
	out, failed := make([]*search.Rewritten, len(c.asked.Searches)), make([]error, len(c.asked.Searches))
	one := func(ctx context.Context, i int) {
		s, rt := c.asked.Searches[i], c.routes[i]
		out[i], failed[i] = c.rescorer.rewrite(ctx, rt, c.target, s)
	}
	one(ctx, 0)
	if len(out) > 1 && failed[0] == nil {
		var group errgroup.Group
		group.SetLimit(parallel)
		together := search.WithinCall(ctx)
		for i := 1; i < len(out); i++ {
			group.Go(func() error {
				one(together, i)
				return nil
			})
		}
		_ = group.Wait()
	}
	err := cmp.Or(failed...)
	if err == nil {
		return out, nil
	}
	for i := range out {
		if out[i] != nil {
			out[i].Answered(ctx, search.DatabaseAnswer{Err: err})
		}
	}
	return nil, err
}

// request returns the search in the form in which Engine.Rewrite takes it. Filters and thresholds
// stay in the call, because rewriting does not need them.
func (s Search) request(rt *route.Route, target Target) search.Request {
	k := int(min(max(s.Limit, 1), math.MaxInt32))
	return search.Request{
		Route: rt.Name, Query: rerank.Query{Vector: s.Query}, K: k, Filter: s.Filter, NoFallback: true, Collection: target.renamed(),
	}
}
