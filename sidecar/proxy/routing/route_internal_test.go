package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// listed is a Searcher that only lists routes.
type listed struct {
	search.Searcher
	all []*route.Route
}

func (l listed) Routes() []*route.Route { return l.all }

// TestRoutesOfARouter: a router has all routes of its store, or only the named ones. Two routes of
// one vector contradict each other.
func TestRoutesOfARouter(t *testing.T) {
	of := func(name, store, vector string) *route.Route {
		return &route.Route{Policy: route.Policy{Name: name, StoreName: store, Collection: "c", Vector: vector}}
	}
	all := []*route.Route{of("a", "s", "v"), of("b", "s", "w"), of("elsewhere", "other", "v")}
	for name, c := range map[string]struct {
		all   []*route.Route
		names []string
		want  []string
		err   error
	}{
		"all":            {all, nil, []string{"a", "b"}, nil},
		"named":          {all, []string{"b"}, []string{"b"}, nil},
		"another store":  {all, []string{"elsewhere"}, nil, nil},
		"twice":          {append(slices.Clone(all), of("c", "s", "v")), nil, nil, ErrRoutes},
		"twice, one too": {append(slices.Clone(all), of("c", "s", "v")), []string{"c"}, []string{"c"}, nil},
	} {
		r, err := New(listed{all: c.all}, Options{Store: "s", Names: c.names})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if got := r.Names.routes(); !slices.Equal(got, c.want) || !slices.Equal(slices.Sorted(slices.Values(r.Names.routesOf("c"))), c.want) {
			t.Errorf("%s: routes %q, of the collection %q, want %q", name, got, r.Names.routesOf("c"), c.want)
		}
		_ = r.Close()
	}
}

// routerOf returns a router of one route "r" of the vector v of the collection c.
func routerOf(rt *route.Route) *Router {
	rt.Name = "r"
	s, log := routes{all: map[string]*route.Route{"r": rt}}, slog.New(slog.DiscardHandler)
	r := &Router{Names: &Names{fields: map[field]string{{"c", "v"}: "r"}, collections: map[string][]string{"c": {"r"}}}}
	r.coverage.names, r.coverage.find, r.coverage.store, r.coverage.log = r.Names, s.Route, adapters.AbilitiesOf(rt.Store), log
	r.rescorer = rescorer{searcher: s, coverage: &r.coverage, log: log}
	r.outcomes = outcomes{record: silent{}, unanswered: newUnanswered(), log: log}
	return r
}

// TestRouteOfASearch: a route answers the searches that it can, and the others pass, or are
// degraded where the route itself is at fault.
func TestRouteOfASearch(t *testing.T) {
	closed := route.Policy{Failure: route.FailClosed}
	broken := route.Parts{Broken: errors.New("no model")}
	ranked := route.Parts{Ranker: struct{ ranker.Ranker }{}}
	limits := route.Policy{MaxK: 100, Depth: 10, Calls: 20}
	scan := limits
	scan.Strategy = rerank.Scan
	deep := limits
	deep.Depth = 1000
	for name, c := range map[string]struct {
		rt     route.Route
		search Search
		want   error
	}{
		"broken":                    {route.Route{Parts: broken}, Search{Limit: 1}, Degraded{Reason: "broken"}},
		"broken, fails closed":      {route.Route{Policy: closed, Parts: broken}, Search{Limit: 1}, Degraded{Reason: "broken", Closed: true}},
		"items of several rows":     {route.Route{Policy: route.Policy{Owner: "item", MaxK: 9, Depth: 9}}, Search{Limit: 1}, Pass("owner")},
		"no rows":                   {route.Route{Policy: limits}, Search{}, Pass("limit")},
		"the last rank":             {route.Route{Policy: limits}, Search{Limit: 2, Offset: 8}, nil},
		"behind the depth":          {route.Route{Policy: limits}, Search{Limit: 2, Offset: 9}, Pass("depth")},
		"behind max_k":              {route.Route{Policy: deep}, Search{Limit: 101}, Pass("depth")},
		"a scan is exact":           {route.Route{Policy: scan}, Search{Limit: 100}, nil},
		"a scan behind max_k":       {route.Route{Policy: scan}, Search{Limit: 101}, Pass("depth")},
		"all that a ranker scores":  {route.Route{Policy: scan, Parts: ranked}, Search{Limit: 20}, nil},
		"more than a ranker scores": {route.Route{Policy: scan, Parts: ranked}, Search{Limit: 21}, Pass("depth")},
	} {
		c.search.Vector = "v"
		if _, err := routerOf(&c.rt).coverage.routeToRescore(t.Context(), "c", c.search); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestHitsFor: as many hits are ranked as a page shows, half as many more where some may be
// gone, four times as many each time that too few were there, and never more than the limits.
func TestHitsFor(t *testing.T) {
	limits := func(change func(*route.Policy)) route.Policy {
		p := route.Policy{MaxK: 1000, Depth: 50, Placement: route.PlacementStored}
		if change != nil {
			change(&p)
		}
		return p
	}
	threshold := float32(1)
	for name, c := range map[string]struct {
		policy route.Policy
		ranker bool
		search Search
		deeper int
		want   int
		more   bool
	}{
		"of the collection itself": {limits(nil), false, Search{Limit: 20, Offset: 2}, 0, 22, true},
		"of a table":               {limits(func(p *route.Policy) { p.Placement = route.PlacementTable }), false, Search{Limit: 20, Offset: 2}, 0, 33, true},
		"few of a table":           {limits(func(p *route.Policy) { p.Placement = route.PlacementTable }), false, Search{Limit: 2}, 0, 10, true},
		"of a companion":           {limits(func(p *route.Policy) { p.Companion = "d" }), false, Search{Limit: 20}, 0, 30, true},
		"a scan":                   {limits(func(p *route.Policy) { p.Strategy = rerank.Scan }), false, Search{Limit: 20}, 0, 30, true},
		"a scan where it is fast":  {limits(func(p *route.Policy) { p.ScanIfFaster = true }), false, Search{Limit: 20}, 0, 30, true},
		"the first list":           {limits(func(p *route.Policy) { p.Placement = route.PlacementTable }), false, Search{Limit: 45}, 0, 50, true},
		"deeper":                   {limits(nil), false, Search{Limit: 20}, 2, 320, true},
		"deeper than max_depth":    {limits(func(p *route.Policy) { p.MaxDepth = 100 }), false, Search{Limit: 20}, 2, 100, false},
		"a scan has no depth":      {limits(func(p *route.Policy) { p.MaxDepth, p.Strategy = 100, rerank.Scan }), false, Search{Limit: 20}, 2, 480, true},
		"deeper than max_k":        {limits(nil), false, Search{Limit: 20}, 4, 1000, false},
		"the database's threshold": {limits(func(p *route.Policy) { p.Score = "store" }), false, Search{Limit: 20, Threshold: &threshold}, 0, 30, true},
		"the route's threshold":    {limits(nil), false, Search{Limit: 20, Threshold: &threshold}, 0, 20, true},
		"a ranker":                 {limits(func(p *route.Policy) { p.Calls = 30 }), true, Search{Limit: 20}, 0, 30, false},
	} {
		rt := &route.Route{Policy: c.policy}
		if c.ranker {
			rt.Ranker = struct{ ranker.Ranker }{}
		}
		if k, more := hitsFor(rt, c.search, c.deeper); k != c.want || more != c.more {
			t.Errorf("%s: %d, more %t, want %d, more %t", name, k, more, c.want, c.more)
		}
	}
}

// TestFailedSearches: what the database words better itself passes, and the rest is degraded;
// a route that fails closed keeps the database's answer back only if the failure is its own.
func TestFailedSearches(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		closed bool
		want   error
	}{
		"unknown key":            {fmt.Errorf("%w: unknown key %q", adapters.ErrFilter, "x"), false, Pass("unknown-field")},
		"filter":                 {adapters.ErrFilter, true, Pass("filter")},
		"refused":                {adapters.ErrRefused, true, Pass("refused")},
		"query":                  {rerank.ErrQuery, false, Pass("request")},
		"request":                {plan.ErrRequest, false, Pass("request")},
		"no such collection":     {adapters.ErrNotFound, false, Pass("request")},
		"limit":                  {adapters.ErrLimit, false, Pass("request")},
		"dimension":              {adapters.ErrDimension, false, Pass("request")},
		"field":                  {adapters.ErrField, false, Pass("request")},
		"strategy":               {rerank.ErrStrategy, false, Pass("request")},
		"overload":               {gate.ErrOverload, true, Degraded{Reason: "overload"}},
		"the client left":        {context.Canceled, true, Degraded{Reason: "canceled"}},
		"too late":               {context.DeadlineExceeded, false, Degraded{Reason: "deadline"}},
		"down":                   {adapters.ErrUnavailable, false, Degraded{Reason: "unavailable"}},
		"failed":                 {errors.New("failed"), true, Degraded{Reason: "failed"}},
		"not rescored":           {failure.ErrDegraded, true, Degraded{Reason: "failed", Closed: true}},
		"not rescored, open":     {failure.ErrDegraded, false, Degraded{Reason: "failed"}},
		"not rescored, late":     {fmt.Errorf("%w: %w", failure.ErrDegraded, context.DeadlineExceeded), true, Degraded{Reason: "deadline", Closed: true}},
		"not rescored, canceled": {fmt.Errorf("%w: %w", failure.ErrDegraded, context.Canceled), true, Degraded{Reason: "canceled"}},
	} {
		rt := &route.Route{}
		if c.closed {
			rt.Failure = route.FailClosed
		}
		if got := failed(t.Context(), slog.New(slog.DiscardHandler), rt, c.err); got != c.want { //nolint:errorlint // the very value
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestAlwaysPasses: only a route whose clients expect the greatest score first can answer them.
func TestAlwaysPasses(t *testing.T) {
	for _, c := range []struct {
		metric adapters.Metric
		vector string
		owner  string
		want   Pass
	}{
		{adapters.InnerProduct, "v", "", ""}, {adapters.Cosine, "v", "", ""}, {"l2", "v", "", "metric"},
		{adapters.Cosine, "w", "", "vector"}, {adapters.Cosine, "v", "item", "owner"},
	} {
		rt := &route.Route{Policy: route.Policy{Vector: c.vector, Owner: c.owner}}
		if got := AlwaysPasses(rt, []adapters.VectorField{{Name: "v", Dim: 1, Metric: c.metric}}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// core is a Searcher of one route whose Search and Score a test provides.
type core struct {
	routes
	search func(search.Request) (search.Answer, error)
	score  func(search.ScoreRequest) (search.ScoreAnswer, error)
}

func (c core) Search(_ context.Context, r search.Request) (search.Answer, error) { return c.search(r) }

func (c core) Score(_ context.Context, r search.ScoreRequest) (search.ScoreAnswer, error) {
	return c.score(r)
}

// plainStore describes a collection with the one vector v.
type plainStore struct{ adapters.Store }

func (plainStore) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{Fields: []adapters.VectorField{{Name: "v", Dim: 1, Metric: adapters.Cosine}}}, nil
}

// TestARankingOfASearch: what the engine answers becomes the ranking. A degraded answer is no
// ranking, and a route that fails closed has no other.
func TestARankingOfASearch(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	degraded := &search.Degraded{Reason: "deadline"}
	for name, c := range map[string]struct {
		answer search.Answer
		closed bool
		want   Ranked
		err    error
	}{
		"exact": {
			answer: search.Answer{Hits: hitsOf(3, 2), Certificate: rerank.Certificate{Status: "exact", Epsilon: 0.5}},
			want:   Ranked{Hits: hitsOf(3, 2), Limit: 2, Route: "r", Vector: "v", More: true, Certificate: "exact", Epsilon: 0.5},
		},
		"snapshot": {
			answer: search.Answer{Hits: hitsOf(3, 2), Certificate: rerank.Certificate{Status: "snapshot", Epsilon: 0.5, AsOf: at}},
			want:   Ranked{Hits: hitsOf(3, 2), Limit: 2, Route: "r", Vector: "v", More: true, Certificate: "snapshot", Epsilon: 0.5, AsOf: at},
		},
		"unknown": {
			answer: search.Answer{Hits: hitsOf(3, 2), Certificate: rerank.Certificate{Status: "unknown", Epsilon: 0.5}},
			want:   Ranked{Hits: hitsOf(3, 2), Limit: 2, Route: "r", Vector: "v", More: true, Certificate: "unknown"},
		},
		"few": {
			answer: search.Answer{Hits: hitsOf(3), HasVersions: true},
			want:   Ranked{Hits: hitsOf(3), Limit: 2, Route: "r", Vector: "v", All: true, Shown: true},
		},
		"degraded":               {answer: search.Answer{Hits: hitsOf(3, 2), Degraded: degraded}, err: Degraded{Reason: "deadline"}},
		"degraded, fails closed": {answer: search.Answer{Hits: hitsOf(3, 2), Degraded: degraded}, closed: true, err: Degraded{Reason: "deadline", Closed: true}},
	} {
		rt := &route.Route{Policy: route.Policy{MaxK: 100, Depth: 10, Vector: "v", Placement: route.PlacementStored}, Parts: route.Parts{Store: plainStore{}}}
		if c.closed {
			rt.Failure = route.FailClosed
		}
		r := routerOf(rt).rescorer
		r.searcher = core{routes: routes{all: map[string]*route.Route{"r": rt}}, search: func(search.Request) (search.Answer, error) { return c.answer, nil }}
		got, err := r.rank(t.Context(), Target{Name: "c", Routed: "c", Own: "c"}, Search{Vector: "v", Query: []float32{1}, Limit: 2}, 0)
		if got.score = nil; !reflect.DeepEqual(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, error %v, want %+v", name, got, err, c.want)
		}
	}
}

// TestRankFound: the candidates that the database finds are as many as the route's lists are
// deep. They are scored in the collection that an alias stands for, and those that are gone
// are left out.
func TestRankFound(t *testing.T) {
	one, two, three := rerank.UintID(1), rerank.UintID(2), rerank.UintID(3)
	threshold := float32(1)
	for name, c := range map[string]struct {
		policy  route.Policy
		search  Search
		found   []rerank.ID
		missing []rerank.ID
		hits    []search.Hit
		err     error
	}{
		"all there":                {search: Search{Limit: 2}, found: []rerank.ID{one, two}, hits: []search.Hit{{ID: two, Score: 6}, {ID: one, Score: 5}}},
		"one gone":                 {search: Search{Limit: 2}, found: []rerank.ID{one, two, three}, missing: []rerank.ID{three}, hits: []search.Hit{{ID: two, Score: 6}, {ID: one, Score: 5}}},
		"nothing found":            {search: Search{Limit: 2}, err: Pass("no-candidates")},
		"the database's threshold": {policy: route.Policy{Score: "store"}, search: Search{Limit: 2, Threshold: &threshold}, found: []rerank.ID{one}, err: Pass("score-threshold")},
	} {
		rt := &route.Route{Policy: c.policy}
		rt.Name, rt.MaxK, rt.Depth = "r", 100, 10
		var asked search.ScoreRequest
		r := &rescorer{searcher: core{score: func(q search.ScoreRequest) (search.ScoreAnswer, error) {
			asked = q
			return search.ScoreAnswer{Scores: []float32{5, 6, 7}[:len(q.IDs)], Missing: c.missing}, nil
		}}}
		depth := 0
		c.search.Query = []float32{4}
		c.search.Find = func(_ context.Context, rows int) ([]rerank.ID, error) {
			depth = rows
			return c.found, nil
		}
		got, err := r.rankFound(t.Context(), rt, Target{Name: "a", Routed: "c", Own: "own"}, c.search)
		if !errors.Is(err, c.err) || !reflect.DeepEqual(got.Hits, c.hits) {
			t.Errorf("%s: %+v, error %v", name, got.Hits, err)
		}
		if err != nil {
			continue
		}
		want := search.ScoreRequest{Route: "r", Collection: "own", Query: rerank.Query{Vector: []float32{4}}, IDs: c.found}
		if depth != 10 || !reflect.DeepEqual(asked, want) || got.Certificate != rerank.StatusUnknown || !got.All {
			t.Errorf("%s: %d rows were asked for, scored %+v, ranked %+v", name, depth, asked, got)
		}
	}
}
