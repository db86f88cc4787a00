package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// versions makes routes of one name whose version v scores v times as much.
type versions struct {
	*world
	query []float32
	best  rerank.Scored // of version 1
}

func newVersions(t testing.TB) *versions {
	sim, err := dot.New(dot.Config{Dim: 4}, nil)
	must(t, err)
	v := &versions{world: newWorld(t, sim, random(1, 300, 4)), query: random(2, 1, 4).Row(0)}
	v.best = v.exact(t, v.query, nil)[0]
	return v
}

// route is a route of version v with a table of its own.
func (v *versions) route(t testing.TB, version int, s rerank.Strategy) (*route.Route, *table.Table) {
	scaled := rerank.NewMatrix(v.vectors.Rows, v.vectors.Cols)
	for i, x := range v.vectors.Data {
		scaled.Data[i] = float32(version) * x
	}
	name := fmt.Sprintf("v%d", version)
	tab, err := table.FromMemory(table.Meta{Model: "toy", ModelVersion: name, Collection: collection}, v.items(), scaled, nil)
	must(t, err)
	r := v.world.route(route.PlacementTable)
	r.Strategy, r.Table, r.Model.Version = s, tab, name
	return r, tab
}

// agrees says what an answer has that is not its version's.
func (v *versions) agrees(a search.Answer) error {
	var version int
	if _, err := fmt.Sscanf(a.Version, "v%d", &version); err != nil {
		return err
	}
	want := float64(version) * float64(v.best.Score)
	if h := a.Hits[0]; h.ID != v.best.ID || !(math.Abs(float64(h.Score)-want) <= 1e-4*math.Abs(want)) {
		return fmt.Errorf("version %s has %s with %v first, want %s with %v", a.Version, h.ID, h.Score, v.best.ID, want)
	}
	return nil
}

// TestSwitch replaces a route while it is searched. A table that nobody should read any more is
// filled with NaN, as if it had been unmapped.
func TestSwitch(t *testing.T) {
	v := newVersions(t)
	first, before := v.route(t, 1, rerank.Average)
	p := pipe(t, first)
	stop := make(chan struct{})
	var searchers sync.WaitGroup
	met := make([]map[string]bool, 4)
	for i := range met {
		met[i] = map[string]bool{}
		searchers.Go(func() {
			strategies := []rerank.Strategy{rerank.Scan, rerank.Average}
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				a, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: v.query}, K: 5, Strategy: strategies[n%2]})
				if err == nil {
					err = v.agrees(a)
				}
				if err != nil {
					t.Error(err)
					return
				}
				met[i][a.Version] = true
			}
		})
	}
	for version := 2; version < 60; version++ {
		r, tab := v.route(t, version, rerank.Average)
		next, err := p.Prepare(t.Context(), r)
		must(t, err)
		a, err := next.Search(t.Context(), search.Request{Query: rerank.Query{Vector: v.query}, K: 1})
		must(t, err)
		must(t, v.agrees(a))
		<-next.Switch()
		for i := range before.Features().Data {
			before.Features().Data[i] = float32(math.NaN())
		}
		before = tab
		if now, err := p.Route("r"); err != nil || now.Model.Version != r.Model.Version || p.Routes()[0].Model.Version != r.Model.Version {
			t.Fatalf("version %s is shown, want %s (%v)", now.Model.Version, r.Model.Version, err)
		}
	}
	close(stop)
	searchers.Wait()
	for i := range met {
		t.Logf("searcher %d met %d versions", i, len(met[i]))
	}
}

// TestPin: the searches of one call have one version, which ends with them; and
// Hold keeps one open.
func TestPin(t *testing.T) {
	v := newVersions(t)
	first, _ := v.route(t, 1, rerank.Scan)
	p := pipe(t, first)
	ctx, release := route.Pin(t.Context())
	ask := func(ctx context.Context) string {
		a, err := p.Search(ctx, search.Request{Route: "r", Query: rerank.Query{Vector: v.query}, K: 1})
		must(t, err)
		must(t, v.agrees(a))
		return a.Version
	}
	before := ask(ctx)
	_, letGo, err := p.Hold("r")
	must(t, err)
	second, _ := v.route(t, 2, rerank.Scan)
	next, err := p.Prepare(t.Context(), second)
	must(t, err)
	ended := next.Switch()
	if pinned, other := ask(ctx), ask(t.Context()); pinned != before || other != "v2" {
		t.Errorf("a pinned call has %s, another %s", pinned, other)
	}
	release()
	select {
	case <-ended:
		t.Error("the old version ended while it was held")
	default:
	}
	letGo()
	letGo()
	<-ended
}

func TestPrepareRefuses(t *testing.T) {
	v := newVersions(t)
	first, _ := v.route(t, 1, rerank.Scan)
	p := pipe(t, first)
	other, _ := v.route(t, 2, rerank.Scan)
	other.Name = "other"
	if _, err := p.Prepare(t.Context(), other); !errors.Is(err, route.ErrUnknown) {
		t.Errorf("an unknown route: %v", err)
	}
	wrong, _ := v.route(t, 2, rerank.Scan)
	wrong.Model.Version = "v3"
	if _, err := p.Prepare(t.Context(), wrong); !errors.Is(err, route.ErrSetup) {
		t.Errorf("a table of another version: %v", err)
	}
	gone, _ := v.route(t, 2, rerank.Average)
	gone.Collection = "gone"
	if _, err := p.Prepare(t.Context(), gone); err == nil {
		t.Error("a collection that is not there was taken")
	}
	if _, _, err := p.Hold("other"); !errors.Is(err, route.ErrUnknown) {
		t.Errorf("holding an unknown route: %v", err)
	}
	if now, err := p.Route("r"); err != nil || now.Model.Version != "v1" {
		t.Errorf("%v serves, %v", now, err)
	}
}
