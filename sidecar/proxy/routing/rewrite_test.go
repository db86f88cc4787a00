package routing_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// rewriter rewrites every query by the vector 7 and the given numbers, and counts the
// searches that were not answered yet.
type rewriter struct {
	searcher
	scale, offset float32
	err           error
	open          atomic.Int64
}

func (s *rewriter) Rewrite(_ context.Context, r search.Request) (*search.Rewritten, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.open.Add(1)
	out := &search.Rewritten{Route: r.Route, Vector: []float32{7}, Scale: s.scale, Offset: s.offset}
	out.OnAnswered(func(error) { s.open.Add(-1) })
	return out, nil
}

func newRewriter(change func(*route.Route)) *rewriter {
	return &rewriter{searcher: searcher{route: newRoute(func(r *route.Route) {
		r.Placement = route.PlacementRewrite
		if change != nil {
			change(r)
		}
	})}, scale: 2, offset: 1}
}

// rewritten is an exchange whose database answers a rewritten call with these ids.
func rewritten(searches []routing.Search, err error, ids ...uint64) exchange {
	x := asks(searches...)
	x.rewrite = func(_ context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
		a := answer{}
		hits := make([][]search.Hit, len(all))
		for _, id := range ids {
			a.ids = append(a.ids, rerank.UintID(id))
			hits[0] = append(hits[0], search.Hit{ID: rerank.UintID(id)})
		}
		return a, hits, err
	}
	return x
}

// What becomes of a call on a route whose searches are rewritten. Nothing is in flight
// afterwards, whatever it is.
func TestRewritten(t *testing.T) {
	threshold := float32(5)
	cut := plain(3)
	cut.Threshold = &threshold
	iterated := plain(3)
	iterated.Unmapped = "iterator"
	deep := plain(1 << 40)
	deep.Offset = 1 << 40
	for name, tc := range map[string]struct {
		x      exchange
		change func(*route.Route)
		err    error // of the searcher
		status string
		own    bool // the call goes on, or its answer is the database's own
		refuse string
	}{
		"rewritten":     {x: rewritten([]routing.Search{plain(3)}, nil, 5, 6), status: "rewritten; route=r; certificate=unknown"},
		"a batch":       {x: rewritten(slices.Repeat([]routing.Search{plain(3)}, 1000), nil, 5, 6), status: "rewritten; route=r; certificate=unknown"},
		"deep":          {x: rewritten([]routing.Search{deep}, nil, 5, 6), status: "rewritten; route=r; certificate=unknown"},
		"exact":         {x: rewritten([]routing.Search{{Vector: "v", Query: []float32{1}, Exact: true}}, nil, 5, 6), status: "rewritten; route=r; certificate=unknown"},
		"no rows":       {x: rewritten([]routing.Search{plain(3)}, nil), status: "rewritten; route=r; certificate=unknown"},
		"threshold":     {x: rewritten([]routing.Search{cut}, nil), status: "passed; reason=score-threshold", own: true},
		"iterator":      {x: rewritten([]routing.Search{iterated}, nil), status: "passed; reason=iterator", own: true},
		"zero":          {x: rewritten([]routing.Search{plain(3)}, nil), err: fmt.Errorf("%w: zero", search.ErrNotRewritten), status: "passed; reason=not-rewritten", own: true},
		"bad query":     {x: rewritten([]routing.Search{plain(3)}, nil), err: rerank.ErrQuery, status: "passed; reason=request", own: true},
		"store scores":  {x: rewritten([]routing.Search{plain(3)}, nil), change: func(r *route.Route) { r.Score = config.ScoreStore }, status: "passed; reason=store-scores", own: true},
		"other vector":  {x: rewritten([]routing.Search{plain(3), {Vector: "w", Query: []float32{1}}}, nil), status: "passed; reason=vector", own: true},
		"refused":       {x: rewritten([]routing.Search{plain(3)}, routing.Pass("refused")), status: "passed; reason=refused", own: true},
		"denied":        {x: rewritten([]routing.Search{plain(3)}, routing.ErrDenied, 9), status: "passed; reason=refused"},
		"down":          {x: rewritten([]routing.Search{plain(3)}, routing.Degraded{Reason: "unavailable"}), status: "degraded; reason=unavailable", own: true},
		"down, closed":  {x: rewritten([]routing.Search{plain(3)}, routing.Degraded{Reason: "unavailable"}), change: func(r *route.Route) { r.Failure = route.FailClosed }, status: "degraded; reason=unavailable", own: true, refuse: "likeness: no rescored answer: unavailable"},
		"ramp":          {x: rewritten([]routing.Search{plain(3)}, nil), change: func(r *route.Route) { r.Ramp = 0 }, status: "passed; reason=ramp", own: true},
		"shadow, never": {x: rewritten([]routing.Search{plain(3)}, nil), change: func(r *route.Route) { r.Shadow.Share = 1e-300 }, status: "shadow; route=r", own: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRewriter(tc.change)
			s.err = tc.err
			o := ask(t.Context(), router(t, s, nil), tc.x)
			if o.Status != tc.status || o.Refused != tc.refuse || o.Answered == tc.own {
				t.Errorf("%+v, want %q", o, tc.status)
			}
			if n := s.open.Load(); n != 0 {
				t.Errorf("%d searches are still in flight", n)
			}
		})
	}
}

// A form that cannot be located is read in full, which says why it passes.
func TestNotLocated(t *testing.T) {
	x := asks(plain(3))
	x.located = routing.Pass("not-nearest")
	if o := ask(t.Context(), router(t, newRewriter(nil), nil), x); o.Status != "passed; reason=not-rewritten" {
		t.Errorf("%+v", o)
	}
	x.asked.Searches[0].Needs = []string{"prefetch"}
	if o := ask(t.Context(), router(t, newRewriter(nil), nil), x); o.Status != "passed; reason=prefetch" {
		t.Errorf("%+v", o)
	}
	x.asked.Searches[0].Find = func(context.Context, int) ([]rerank.ID, error) { return ids(2, 1), nil }
	if o := ask(t.Context(), router(t, newRewriter(nil), nil), x); o.Status != "passed; reason=prefetch" {
		t.Errorf("with candidates of its own: %+v", o)
	}
}

// A query with several stages is rewritten where the routes of all of them say so; otherwise it
// is read in full.
func TestRewrittenStages(t *testing.T) {
	first, second := plain(3), plain(3)
	first.Staged, second.Staged = true, true
	for name, tc := range map[string]struct {
		change func(*route.Route)
		status string
	}{
		"without the key": {nil, "passed; reason=not-rewritten"},
		"with the key":    {func(r *route.Route) { r.RewriteLegs = true }, "rewritten; route=r; certificate=unknown"},
		"with shadow":     {func(r *route.Route) { r.RewriteLegs, r.Shadow.Share = true, 1 }, "shadow; route=r"},
	} {
		x := rewritten([]routing.Search{first, second}, nil, 5)
		if o := ask(t.Context(), router(t, newRewriter(tc.change), nil), x); o.Status != tc.status {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// The route's ef goes with a search that has none.
func TestRewrittenEF(t *testing.T) {
	own := plain(3)
	own.HasEF = true
	var sent []routing.Replacement
	x := asks(plain(3), own, plain(200))
	x.rewrite = func(_ context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
		sent = all
		return answer{}, make([][]search.Hit, len(all)), nil
	}
	ask(t.Context(), router(t, newRewriter(func(r *route.Route) { r.EF = 200 }), nil), x)
	if len(sent) != 3 || sent[0].EF != 200 || sent[1].EF != 0 || sent[2].EF != 0 {
		t.Errorf("%+v", sent)
	}
}

// The database is sent the vector of the route, and the threshold in its own scores.
func TestRewrittenThreshold(t *testing.T) {
	threshold := float32(5)
	s := plain(3)
	s.Threshold = &threshold
	var sent []routing.Replacement
	x := asks(s)
	x.rewrite = func(_ context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
		sent = all
		return answer{}, make([][]search.Hit, len(all)), nil
	}
	o := ask(t.Context(), router(t, newRewriter(func(r *route.Route) { r.OptIn = []string{"score-threshold"} }), nil), x)
	if o.Status != "rewritten; route=r; certificate=unknown" || len(sent) != 1 || sent[0].Vector[0] != 7 || sent[0].Threshold == nil || *sent[0].Threshold != 2 {
		t.Errorf("%+v, %+v", o, sent)
	}
}

// A panic in the exchange fails the call alone, and leaves nothing in flight.
func TestRewritePanics(t *testing.T) {
	x := asks(plain(3))
	x.rewrite = func(context.Context, []routing.Replacement) (answer, [][]search.Hit, error) { panic("planted") }
	s := newRewriter(nil)
	if o := ask(t.Context(), router(t, s, nil), x); o.Status != "degraded; reason=panic" || s.open.Load() != 0 {
		t.Errorf("%+v, %d in flight", o, s.open.Load())
	}
}

// By an alias that was switched while the database searched, the call passes.
func TestRewrittenByAnAliasThatMoves(t *testing.T) {
	store := newSwitched("c")
	s := newRewriter(func(r *route.Route) { r.Store = store })
	x := rewritten([]routing.Search{plain(3)}, nil, 5)
	r := router(t, s, nil)
	target := routing.Target{Name: "a", Routed: "c", Own: "c"}
	if o := askOf(t.Context(), r, target, x); o.Status != "rewritten; route=r; certificate=unknown" {
		t.Errorf("%+v", o)
	}
	x.rewrite = func(_ context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
		store.to("d")
		return answer{}, make([][]search.Hit, len(all)), nil
	}
	if o := askOf(t.Context(), r, target, x); o.Status != "passed; reason=alias" || o.Answered {
		t.Errorf("%+v", o)
	}
}

// A client that leaves is no failure of the database.
func TestRewrittenForNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	x := asks(plain(3))
	x.rewrite = func(context.Context, []routing.Replacement) (answer, [][]search.Hit, error) {
		cancel()
		return answer{}, nil, routing.Degraded{Reason: "unavailable"}
	}
	if o := ask(ctx, router(t, newRewriter(nil), nil), x); o.Status != "degraded; reason=canceled" {
		t.Errorf("%+v", o)
	}
}

func TestMapScore(t *testing.T) {
	r := routing.Replacement{Scale: 2, Offset: 1}
	if got, err := r.MapScore(3); got != 7 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := r.MapScore(math.MaxFloat32); !errors.Is(err, routing.Degraded{Reason: "score-not-finite"}) {
		t.Errorf("a score that is too large: %v", err)
	}
	if got, err := r.MapScore(float32(math.NaN())); err != nil || !math.IsNaN(float64(got)) {
		t.Errorf("a score of the database that is not a number: %v, %v", got, err)
	}
}

// slowRewriter rewrites a query once its context has ended, or not at all.
type slowRewriter struct{ *rewriter }

func (slowRewriter) Rewrite(ctx context.Context, _ search.Request) (*search.Rewritten, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestNothingRacesARewrittenCall: while the database answers a rewritten call, the original
// is not sent, however near the deadline is. A query that is not rewritten when the original
// has to leave is answered by the original, in time.
func TestNothingRacesARewrittenCall(t *testing.T) {
	for name, tc := range map[string]struct {
		slowly bool // the query is rewritten slowly
		status string
		after  time.Duration // at which the call is decided
	}{
		"slow database": {false, "rewritten; route=r; certificate=unknown", 95 * time.Millisecond},
		"slow rewrite":  {true, "degraded; reason=deadline", 75 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fast := newRewriter(nil)
				var s search.Searcher = fast
				if tc.slowly {
					s = slowRewriter{fast}
				}
				x := rewritten([]routing.Search{plain(3)}, nil, 5, 6)
				answered := x.rewrite
				x.rewrite = func(ctx context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
					<-time.After(95 * time.Millisecond)
					return answered(ctx, all)
				}
				x.original = func(context.Context) answer {
					t.Error("the original is sent beside the rewritten call")
					return answer{}
				}
				r, err := routing.New(s, routing.Options{Store: "s", Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				o := ask(ctx, r, x)
				if took := time.Since(began); o.Status != tc.status || took != tc.after {
					t.Errorf("%q after %s, want %q after %s", o.Status, took, tc.status, tc.after)
				}
			})
		})
	}
}

// TestADeniedCallerIsAskedAbout: after the database refused a rewritten call, its caller's next
// call goes to the database first.
func TestADeniedCallerIsAskedAbout(t *testing.T) {
	r := router(t, newRewriter(nil), nil)
	target := routing.Target{Name: "c", Routed: "c", Own: "c"}
	originals := 0
	x := rewritten([]routing.Search{plain(3)}, nil, 5)
	x.original = func(context.Context) answer {
		originals++
		return answer{own: true}
	}
	askOf(t.Context(), r, target, x) // accepted lately
	if routing.Answer(t.Context(), r, target, x); originals != 0 {
		t.Fatalf("the database was asked about an accepted caller %d times", originals)
	}
	denied := rewritten([]routing.Search{plain(3)}, routing.ErrDenied, 9)
	routing.Answer(t.Context(), r, target, denied)
	if routing.Answer(t.Context(), r, target, x); originals != 1 {
		t.Errorf("the database was asked about a denied caller %d times, want once", originals)
	}
}
