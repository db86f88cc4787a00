package routing_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// scaling rewrites the query q to the vector 10·q, with q as the scale and −q as the offset.
type scaling struct {
	searcher
	mu    sync.Mutex
	asked []search.Request
}

func (s *scaling) Rewrite(_ context.Context, r search.Request) (*search.Rewritten, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	q := r.Query.Vector[0]
	return &search.Rewritten{Route: r.Route, Vector: []float32{10 * q}, Scale: q, Offset: -q}, nil
}

// sends returns an exchange that stores the rewritten searches in sent.
func sends(sent *[]routing.Replacement, lists int, searches ...routing.Search) exchange {
	x := asks(searches...)
	x.rewrite = func(_ context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
		*sent = all
		return answer{}, make([][]search.Hit, lists), nil
	}
	return x
}

// TestABatchIsRewrittenSearchBySearch: each search of a batch is sent with its own vector, scale
// and threshold, and the engine is asked for each as the call has it, in the collection that an
// alias stands for.
func TestABatchIsRewrittenSearchBySearch(t *testing.T) {
	store := newSwitched("own")
	s := &scaling{searcher: searcher{route: newRoute(func(r *route.Route) {
		r.Placement, r.Store, r.OptIn = route.PlacementRewrite, store, []string{"score-threshold"}
	})}}
	threshold := float32(8)
	one, two := plain(3), plain(5)
	one.Query, two.Query, two.Threshold, two.Filter = []float32{2}, []float32{4}, &threshold, "filter"
	var sent []routing.Replacement
	target := routing.Target{Name: "a", Routed: "c", Own: "own"}
	o := askOf(t.Context(), router(t, s, nil), target, sends(&sent, 2, one, two))
	its := float32(3) // 4·3 − 4 = 8
	want := []routing.Replacement{{Vector: []float32{20}, Scale: 2, Offset: -2}, {Vector: []float32{40}, Scale: 4, Offset: -4, Threshold: &its}}
	if o.Status != "rewritten; route=r; certificate=unknown" || !reflect.DeepEqual(sent, want) {
		t.Errorf("%q; sent %+v, want %+v", o.Status, sent, want)
	}
	slices.SortFunc(s.asked, func(a, b search.Request) int { return a.K - b.K })
	asked := []search.Request{
		{Route: "r", Collection: "own", Query: rerank.Query{Vector: []float32{2}}, K: 3, NoFallback: true},
		{Route: "r", Collection: "own", Query: rerank.Query{Vector: []float32{4}}, K: 5, Filter: "filter", NoFallback: true},
	}
	if !reflect.DeepEqual(s.asked, asked) {
		t.Errorf("the engine was asked %+v, want %+v", s.asked, asked)
	}
}

// TestAnswersToARewrittenCall: an answer has a list for each search, and a route with a ranker
// is not rewritten, since nothing would ask the ranker.
func TestAnswersToARewrittenCall(t *testing.T) {
	for name, c := range map[string]struct {
		lists  int
		change func(*route.Route)
		want   string
	}{
		"as many lists":  {2, nil, "rewritten; route=r; certificate=unknown"},
		"fewer lists":    {1, nil, "degraded; reason=answer"},
		"more lists":     {3, nil, "degraded; reason=answer"},
		"with a ranker":  {2, func(r *route.Route) { r.Ranker = struct{ ranker.Ranker }{} }, "passed; reason=ranker"},
		"another metric": {2, func(r *route.Route) { r.Store = shaped{fields: []adapters.VectorField{fieldNamed("v", adapters.L2)}} }, "passed; reason=metric"},
	} {
		var sent []routing.Replacement
		if o := ask(t.Context(), router(t, newRewriter(c.change), nil), sends(&sent, c.lists, plain(1), plain(2))); o.Status != c.want {
			t.Errorf("%s: %q, want %q", name, o.Status, c.want)
		}
	}
}

// twoRoutes is a searcher with another route, of the vector w.
type twoRoutes struct {
	*rewriter
	other *route.Route
}

func (s twoRoutes) Routes() []*route.Route { return []*route.Route{s.route, s.other} }

func (s twoRoutes) Route(name string) (*route.Route, error) {
	if name == s.other.Name {
		return s.other, nil
	}
	return s.route, nil
}

// TestABatchOfARewrittenAndAnotherRoute passes: a call is answered by one side as a whole.
func TestABatchOfARewrittenAndAnotherRoute(t *testing.T) {
	other := newRoute(func(r *route.Route) { r.Name, r.Vector = "other", "w" })
	second := plain(3)
	second.Vector = "w"
	var sent []routing.Replacement
	for _, searches := range [][]routing.Search{{plain(3), second}, {second, plain(3)}} {
		if o := ask(t.Context(), router(t, twoRoutes{newRewriter(nil), other}, nil), sends(&sent, 2, searches...)); o.Status != "passed; reason=batch" || sent != nil {
			t.Errorf("%q, sent %v", o.Status, sent)
		}
	}
	s := newRewriter(func(r *route.Route) {
		r.Store = shaped{fields: []adapters.VectorField{fieldNamed("v", adapters.InnerProduct), fieldNamed("w", adapters.InnerProduct)}}
	})
	s.rows = 9
	if o := ask(t.Context(), router(t, twoRoutes{s, other}, nil), sends(&sent, 1, second)); o.Status != "rescored; route=other; certificate=" {
		t.Errorf("a call on the other route alone: %q", o.Status)
	}
}

// scoringOnly counts the calls that it admits.
type scoringOnly struct {
	search.Admitter
	admitted, left int
}

func (a *scoringOnly) AdmitScoring(context.Context, string) (func(), error) {
	a.admitted++
	return func() { a.left++ }, nil
}

// TestARewrittenBatchIsAdmittedOnce: the searches of one call take one place of the gate.
func TestARewrittenBatchIsAdmittedOnce(t *testing.T) {
	gate := &scoringOnly{}
	var sent []routing.Replacement
	r := router(t, search.Admitted{Searcher: newRewriter(nil), By: gate}, nil)
	if ask(t.Context(), r, sends(&sent, 4, plain(1), plain(2), plain(3), plain(4))); gate.admitted != 1 || gate.left != 1 || len(sent) != 4 {
		t.Errorf("of %d searches %d were admitted and %d left", len(sent), gate.admitted, gate.left)
	}
}

// observed keeps the searches that an engine answered, by their K.
type observed struct {
	mu  sync.Mutex
	all map[int]search.Answer
}

func (o *observed) Searched(_ context.Context, _ string, r search.Request, a search.Answer, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[r.K] = a
}

// TestRewrittenAnswersAreTold: observers are told of each search of a batch with its own rows,
// and whether these are the first of the whole collection.
func TestRewrittenAnswersAreTold(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := embedded.New()
	field := embedded.Field{VectorField: adapters.VectorField{Name: "v", Metric: adapters.InnerProduct}, Vectors: rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 0}}}
	if err := store.Load("c", embedded.Collection{Fields: []embedded.Field{field}}); err != nil {
		t.Fatal(err)
	}
	told := &observed{all: map[int]search.Answer{}}
	engine, err := search.New([]*route.Route{{
		Policy: route.Policy{Name: "r", StoreName: "s", Ramp: 100, Collection: "c", Vector: "v", Placement: route.PlacementRewrite},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "dot", Version: "1", Similarity: sim}},
	}}, search.Options{Observer: told})
	if err != nil {
		t.Fatal(err)
	}
	whole, narrowed := plain(3), plain(5)
	whole.Query, narrowed.Query, narrowed.Narrowed = []float32{1, 0}, []float32{0, 1}, true
	x := asks(whole, narrowed)
	lists := [][]search.Hit{{{ID: rerank.UintID(1), Score: 9}}, {{ID: rerank.UintID(2), Score: 8}, {ID: rerank.UintID(3), Score: 7}}}
	x.rewrite = func(context.Context, []routing.Replacement) (answer, [][]search.Hit, error) {
		return answer{}, lists, nil
	}
	if o := ask(t.Context(), router(t, engine, nil), x); o.Status != "rewritten; route=r; certificate=exact" {
		t.Fatalf("%+v", o)
	}
	for k, want := range map[int]struct {
		hits     []search.Hit
		narrowed bool
	}{3: {lists[0], false}, 5: {lists[1], true}} {
		if got := told.all[k]; !reflect.DeepEqual(got.Hits, want.hits) || got.Narrowed != want.narrowed {
			t.Errorf("of the search for %d rows: %+v, narrowed: %t", k, got.Hits, got.Narrowed)
		}
	}
}
