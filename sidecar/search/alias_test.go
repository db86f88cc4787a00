package search_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// aliased is a store with two collections and the alias "live". Each search switches the alias to
// the other collection, until there are no switches left.
type aliased struct {
	*embedded.Store
	target   atomic.Pointer[string]
	switches atomic.Int32
	searched []string
	// silent: the store does not answer for the alias. hides: it refuses to tell the alias's
	// collection.
	silent, hides bool
}

func (a *aliased) own(name string) string {
	if name == "live" {
		return *a.target.Load()
	}
	return name
}

func (a *aliased) Identify(_ context.Context, name string) (adapters.Identity, error) {
	if a.hides {
		return adapters.Identity{}, adapters.ErrRefused
	}
	if a.silent {
		return adapters.Identity{}, adapters.ErrUnavailable
	}
	return adapters.Identity{Collection: a.own(name)}, nil
}

func (a *aliased) Describe(ctx context.Context, name string) (adapters.Description, error) {
	return a.Store.Describe(ctx, a.own(name))
}

func (a *aliased) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	a.searched = append(a.searched, r.Collection)
	r.Collection = a.own(r.Collection)
	lists, err := a.Store.Search(ctx, r)
	if a.switches.Add(-1) >= 0 {
		other := map[string]string{"one": "two", "two": "one"}[*a.target.Load()]
		a.target.Store(&other)
	}
	return lists, err
}

func (a *aliased) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	r.Collection = a.own(r.Collection)
	return a.Store.Fetch(ctx, r)
}

// openAliased returns the store and an engine with the routes "live", "one" and "two", each for the
// collection of its name.
func openAliased(t *testing.T, hides bool) (*aliased, *search.Engine) {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 4}, nil)
	must(t, err)
	store := &aliased{Store: embedded.New(), hides: hides}
	one := "one"
	store.target.Store(&one)
	for i, name := range []string{"one", "two"} {
		in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: random(uint64(i+1), 200, 4)}}}
		must(t, store.Load(name, in))
	}
	rt := func(name, of string) *route.Route {
		return &route.Route{
			Policy: route.Policy{Name: name, Collection: of, StoreName: "s", Depth: 20, ExactSearch: true, Placement: route.PlacementStored},
			Parts:  route.Parts{Store: store, Model: route.Model{Name: "dot", Version: version, Similarity: sim}},
		}
	}
	p, err := search.New([]*route.Route{rt("live", "live"), rt("one", "one"), rt("two", "two")}, search.Options{})
	must(t, err)
	must(t, p.Open(t.Context()))
	return store, p
}

// TestASearchOfAnAliasIsOfOneCollection: whenever a route's alias is switched during a search, the
// hits are the best of one collection. No call names the alias.
func TestASearchOfAnAliasIsOfOneCollection(t *testing.T) {
	store, p := openAliased(t, false)
	ids := func(name string, q uint64) (all []rerank.ID, a search.Answer) {
		t.Helper()
		a, err := p.Search(t.Context(), search.Request{Route: name, Query: rerank.Query{Vector: random(q, 1, 4).Data}, K: 10})
		must(t, err)
		for _, h := range a.Hits {
			all = append(all, h.ID)
		}
		return all, a
	}
	for q := range uint64(60) {
		store.switches.Store(0)
		first, _ := ids("one", 100+q)
		second, _ := ids("two", 100+q)
		store.searched = nil
		store.switches.Store(int32(q % 4))
		got, a := ids("live", 100+q)
		if !slices.Equal(got, first) && !slices.Equal(got, second) {
			t.Fatalf("query %d: %v is the answer of neither %v nor %v; %+v", q, got, first, second, a.Certificate)
		}
		if q%4 == 0 && a.Certificate.Status != rerank.StatusExact {
			t.Errorf("query %d, not switched: %+v", q, a.Certificate)
		}
		if slices.Contains(store.searched, "live") {
			t.Errorf("query %d: searches of %q name the alias", q, store.searched)
		}
	}
}

// TestAnAliasThatDoesNotStayProvesNothing: an answer is exact only if the alias is known
// to stand for the collection that was searched.
func TestAnAliasThatDoesNotStayProvesNothing(t *testing.T) {
	store, p := openAliased(t, false)
	for _, c := range []struct {
		switches, searches int32
		silent             bool
		want               rerank.Status
	}{
		{0, 1, false, rerank.StatusExact},
		{1, 2, false, rerank.StatusExact},
		{2, 3, false, rerank.StatusExact},
		{3, 3, false, rerank.StatusUnknown}, // switched during the last search as well
		{0, 1, true, rerank.StatusUnknown},
	} {
		_, err := p.Search(t.Context(), search.Request{Route: "live", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, K: 10}) // learns the alias's collection
		must(t, err)
		store.searched, store.silent = nil, c.silent
		store.switches.Store(c.switches)
		a, err := p.Search(t.Context(), search.Request{Route: "live", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, K: 10})
		must(t, err)
		if a.Certificate.Status != c.want || len(a.Hits) != 10 || int32(len(store.searched)) != c.searches {
			t.Errorf("%d switches, store silent %t: %d hits of the searches of %q, %+v; want %d searches, %s",
				c.switches, c.silent, len(a.Hits), store.searched, a.Certificate, c.searches, c.want)
		}
	}
}

// TestAnAliasThatComesBack: a collection is not the answer of a search that began while the alias
// named another one, even if the alias names it again at the end.
func TestAnAliasThatComesBack(t *testing.T) {
	store, p := openAliased(t, false)
	ask := func() rerank.Status {
		a, err := p.Search(t.Context(), search.Request{Route: "live", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, K: 10})
		must(t, err)
		return a.Certificate.Status
	}
	ask() // of "one"
	two := "two"
	store.target.Store(&two)
	store.searched = nil
	store.switches.Store(1) // and back, during the search
	if status := ask(); status != rerank.StatusExact || !slices.Equal(store.searched, []string{"two", "one"}) {
		t.Errorf("%s, of the collections %q", status, store.searched)
	}
}

// TestANameThatTheStoreHides: if the store does not tell whether the route's collection is an
// alias, no answer is exact, unless the request names the collection itself.
func TestANameThatTheStoreHides(t *testing.T) {
	_, p := openAliased(t, true)
	for collection, want := range map[string]rerank.Status{"": rerank.StatusUnknown, "one": rerank.StatusExact} {
		a, err := p.Search(t.Context(), search.Request{Route: "live", Collection: collection, Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, K: 10})
		must(t, err)
		if a.Certificate.Status != want || len(a.Hits) != 10 {
			t.Errorf("collection %q: %d hits, %+v, want %s", collection, len(a.Hits), a.Certificate, want)
		}
	}
}

// TestAnAliasThatCannotBeRead: a search goes where the alias stood last, and proves nothing. So does one of a route
// that is opened by the search.
func TestAnAliasThatCannotBeRead(t *testing.T) {
	store, p := openAliased(t, false)
	ask := func(e *search.Engine, want string, status rerank.Status) {
		t.Helper()
		store.searched = nil
		a, err := e.Search(t.Context(), search.Request{Route: "live", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, K: 3})
		must(t, err)
		if !slices.Equal(slices.Compact(store.searched), []string{want}) || a.Certificate.Status != status {
			t.Errorf("searched were %q, %s; want %q, %s", store.searched, a.Certificate.Status, want, status)
		}
	}
	two := "two"
	store.target.Store(&two) // after the routes were opened
	ask(p, "two", rerank.StatusExact)
	store.silent = true
	ask(p, "two", rerank.StatusUnknown)
	store.silent = false
	live, err := p.Route("live")
	must(t, err)
	fresh, err := search.New([]*route.Route{{Policy: live.Policy, Parts: live.Parts}}, search.Options{})
	must(t, err)
	ask(fresh, "two", rerank.StatusExact)
}

// changed is a store whose collection is made again between two calls.
type changed struct {
	*embedded.Store
	gone      bool
	described int
}

func (c *changed) Describe(ctx context.Context, name string) (adapters.Description, error) {
	c.described++
	return c.Store.Describe(ctx, name)
}

func (c *changed) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if c.gone {
		return adapters.Rows{}, adapters.ErrNotFound
	}
	return c.Store.Fetch(ctx, r)
}

// TestScoresOfAChangedCollection: a call that finds the collection to be another one has the route checked again.
func TestScoresOfAChangedCollection(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 4}, nil)
	must(t, err)
	store := &changed{Store: embedded.New()}
	must(t, store.Load("items", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: random(1, 20, 4)}}}))
	p, err := search.New([]*route.Route{{
		Policy: route.Policy{Name: "r", Collection: "items", StoreName: "s", Placement: route.PlacementStored},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "dot", Version: version, Similarity: sim}},
	}}, search.Options{})
	must(t, err)
	r := search.ScoreRequest{Route: "r", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, IDs: []rerank.ID{rerank.UintID(3)}}
	for _, c := range []struct {
		gone      bool
		described int
	}{{false, 1}, {false, 1}, {true, 1}, {false, 2}, {false, 2}} {
		store.gone = c.gone
		if _, err := p.Score(t.Context(), r); (err != nil) != c.gone || store.described != c.described {
			t.Errorf("gone %t: %v, the collection was described %d times, want %d", c.gone, err, store.described, c.described)
		}
	}
}
