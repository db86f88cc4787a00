package search_test

import (
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// promise is a promise that a test sets.
type promise struct {
	c        *rerank.Calibration
	void     string
	opened   *route.Route
	settings map[string]string
}

func (p *promise) Calibration() (*rerank.Calibration, string) { return p.c, p.void }

func (p *promise) Opened(r *route.Route, settings map[string]string) {
	p.opened, p.settings = r, settings
}

func promised() *promise {
	return &promise{c: &rerank.Calibration{
		Recall: .9, Share: .95, Alpha: .05, Queries: 400, K: 5,
		Rule: rerank.Rule{Strategy: rerank.PerEmbedding, Depth: 12, Weights: rerank.UniformWeights},
	}}
}

// TestCalibration: only answers of the calibrated kind carry a promise, and the others say why not.
func TestCalibration(t *testing.T) {
	given := promised()
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Promise = rerank.PerEmbedding, given })
	for _, c := range []struct {
		name   string
		change func(*search.Request)
		status rerank.Status
		why    string
		depth  int
	}{
		{"as audited", func(*search.Request) {}, rerank.StatusCalibrated, "", 12},
		{"deeper", func(r *search.Request) { r.Depth = 30 }, rerank.StatusCalibrated, "", 30},
		{"less deep", func(r *search.Request) { r.Depth = 10 }, rerank.StatusUnknown, rerank.UncalibratedDepth, 10},
		{"another strategy", func(r *search.Request) { r.Strategy = rerank.Average }, rerank.StatusUnknown, rerank.UncalibratedStrategy, 20},
		{"more rows", func(r *search.Request) { r.K = 6 }, rerank.StatusUnknown, rerank.UncalibratedK, 20},
		{"fewer rows", func(r *search.Request) { r.K = 4 }, rerank.StatusUnknown, rerank.UncalibratedK, 12},
		{"filtered", func(r *search.Request) { r.Filter = even }, rerank.StatusUnknown, rerank.UncalibratedFilter, 12},
		{"proved", func(r *search.Request) { r.Strategy = rerank.Scan }, rerank.StatusExact, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 5}
			c.change(&req)
			got := searchRoute(t, r, req).Certificate
			if got.Status != c.status || (got.Calibration != nil) != (c.status == rerank.StatusCalibrated) || got.Uncalibrated != c.why || got.Depth != c.depth {
				t.Errorf("%+v, want %s at depth %d, because of %q", got, c.status, c.depth, c.why)
			}
		})
	}
	if given.opened == nil || given.opened.Strategy != rerank.PerEmbedding || len(given.settings) == 0 {
		t.Errorf("the promise was told of %+v with %v", given.opened, given.settings)
	}
}

// TestPromiseOfARewrittenRoute: the lists of a rewritten route are as deep as the audited ones, and
// an answer from any other list does not carry the promise.
func TestPromiseOfARewrittenRoute(t *testing.T) {
	given := promised()
	given.c.Rule = rerank.Rule{Strategy: rerank.Average, Depth: 12, Weights: rerank.UniformWeights}
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 300, 6))
	r := w.route(route.PlacementRewrite, func(r *route.Route) { r.Store, r.Promise = approximating{w.store}, given })
	req := search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 5}
	if got := searchRoute(t, r, req).Certificate; got.Status != rerank.StatusCalibrated || got.Depth != 12 {
		t.Errorf("%+v, want calibrated at depth 12", got)
	}
	req.Depth = 7
	if got := searchRoute(t, r, req).Certificate; got.Status != rerank.StatusUnknown || got.Uncalibrated != rerank.UncalibratedDepth {
		t.Errorf("%+v, want unknown for its depth", got)
	}
	onRequest := describing{w.store, func(f *adapters.VectorField) { f.AlwaysExact = false }}
	req.Route, req.Depth = "r", 0
	for k, want := range map[int]rerank.Status{5: rerank.StatusUnknown, 12: rerank.StatusUnknown} {
		req.K = k
		got, err := pipe(t, w.route("", func(r *route.Route) { r.Store, r.Promise = onRequest, given })).Rewrite(t.Context(), req)
		must(t, err)
		if c := got.Answered(t.Context(), search.DatabaseAnswer{Hits: make([]search.Hit, k)}); c.Status != want || c.Uncalibrated == "" {
			t.Errorf("k %d: %+v, want %s", k, c, want)
		}
	}
	given.c.Rule.Depth, req.K = 5, 5
	got, err := pipe(t, w.route("", func(r *route.Route) { r.Store, r.Promise = onRequest, given })).Rewrite(t.Context(), req)
	must(t, err)
	if c := got.Answered(t.Context(), search.DatabaseAnswer{Hits: make([]search.Hit, 5)}); c.Status != rerank.StatusCalibrated {
		t.Errorf("%+v, want calibrated", c)
	}
}

// TestVoidPromise: an answer says why a promise is not claimed. The calibrated depth is used
// nevertheless.
func TestVoidPromise(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
	req := search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 5}
	for _, c := range []struct {
		name  string
		given *promise
		depth int
	}{
		{"rejected", &promise{c: promised().c, void: "rejected"}, 12},
		{"of another model", &promise{void: "another model"}, 20},
		{"none", &promise{}, 20},
	} {
		r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Promise = rerank.PerEmbedding, c.given })
		got := searchRoute(t, r, req).Certificate
		if got.Status != rerank.StatusUnknown || got.Calibration != nil || got.Uncalibrated != c.given.void || got.Depth != c.depth {
			t.Errorf("%s: %+v, want unknown at depth %d", c.name, got, c.depth)
		}
	}
}

// TestPromiseOfAll: a promise of the whole top K covers every part of it.
func TestPromiseOfAll(t *testing.T) {
	given := promised()
	given.c.Recall = 1
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Promise = rerank.PerEmbedding, given })
	got := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 3}).Certificate
	if got.Status != rerank.StatusCalibrated {
		t.Errorf("%+v, want calibrated", got)
	}
}
