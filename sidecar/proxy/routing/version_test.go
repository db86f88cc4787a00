package routing_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// switching is a pipeline whose route is replaced after its first search.
type switching struct {
	*search.Engine
	versions []string // of the answers
	ended    <-chan struct{}
}

func (s *switching) Search(ctx context.Context, r search.Request) (search.Answer, error) {
	a, err := s.Engine.Search(ctx, r)
	s.versions = append(s.versions, a.Version)
	if s.ended != nil || err != nil {
		return a, err
	}
	rt, err := s.Route("r")
	if err != nil {
		return a, err
	}
	next := *rt
	next.Model.Version = "another"
	standby, err := s.Prepare(context.WithoutCancel(ctx), &next)
	if err != nil {
		return a, err
	}
	s.ended = standby.Switch()
	return a, nil
}

// TestACallHasOneVersion: if a route is replaced while a call is answered, the old version answers
// the whole call, including deeper rankings, and ends with it.
func TestACallHasOneVersion(t *testing.T) {
	const rows = 60
	store := embedded.New()
	vectors := rerank.NewMatrix(rows, 1)
	for i := range vectors.Data {
		vectors.Data[i] = float32(rows - i)
	}
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	if err == nil {
		err = store.Load("c", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Name: "v", Metric: adapters.InnerProduct}, Vectors: vectors}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := search.New([]*route.Route{{
		Policy: route.Policy{Name: "r", StoreName: "s", Ramp: 100, Collection: "c", Vector: "v", Placement: route.PlacementStored, Strategy: rerank.Average, Depth: 10, MaxK: 50},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "m", Version: "first", Similarity: sim}},
	}}, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &switching{Engine: p}
	r := router(t, s, nil)
	x := asks(plain(5))
	x.shown = func(id rerank.ID) bool { // so few of the first hits that more have to be ranked
		n, _ := id.Uint64()
		return n > 12
	}
	o := ask(t.Context(), r, x)
	if !o.Answered || !strings.HasPrefix(o.Status, "rescored; ") || len(s.versions) < 2 {
		t.Fatalf("%+v after %d searches", o, len(s.versions))
	}
	if slices.ContainsFunc(s.versions, func(v string) bool { return v != "first" }) {
		t.Errorf("one call is answered by the versions %q", s.versions)
	}
	<-s.ended
}

// asking is a store that records the metadata with which its names are read.
type asking struct {
	described
	seen *[]metadata.MD
	as   *[]bool
}

func (a asking) Identify(ctx context.Context, name string) (adapters.Identity, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	*a.seen, *a.as = append(*a.seen, md), append(*a.as, adapters.IsAsCaller(ctx))
	return a.described.Identify(ctx, name)
}

// TestNamesAreReadForAll: data that is cached for all callers is read without any caller's
// credentials.
func TestNamesAreReadForAll(t *testing.T) {
	var seen []metadata.MD
	var as []bool
	store := asking{described{aliases: []string{"alias"}}, &seen, &as}
	r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Store = store }), rows: 10}, nil)
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", "a caller's"))
	if _, ok := r.Names.Target(ctx, "alias"); !ok {
		t.Fatal("the alias is not known")
	}
	for i, md := range seen {
		if len(md.Get("api-key")) > 0 || as[i] {
			t.Errorf("names are read with %v, as the caller: %t", md, as[i])
		}
	}
	if len(seen) == 0 {
		t.Error("names are not read")
	}
}
