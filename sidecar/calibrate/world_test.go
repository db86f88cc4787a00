package calibrate_test

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

const dim, items, version = 8, 1000, "0123456789abcdef"

// lossy is a store that misses rows as an approximate index does: each row is in a list with a
// probability that grows with the depth, and that is lower for some queries. It can search
// exhaustively.
type lossy struct {
	*embedded.Store
	searches atomic.Int64
	// after, if set, is called before each search with the number of searches so far.
	after    func(n int64) error
	settings atomic.Pointer[map[string]string]
	indexing string // what it says that it still builds
	// neverExact: it misses rows also where it is asked for an exhaustive search.
	neverExact bool
}

func (l *lossy) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	n := l.searches.Add(1)
	if l.after != nil {
		if err := l.after(n); err != nil {
			return nil, err
		}
	}
	lists, err := l.Store.Search(ctx, r)
	if err != nil || r.Exact && !l.neverExact {
		return lists, err
	}
	for i := range lists {
		lists[i] = thin(lists[i], r.Probes[i])
	}
	return lists, nil
}

// thin drops rows from a list. For equal probes it drops the same rows.
func thin(list rerank.List, p rerank.Probe) rerank.List {
	lost := 2 / float64(p.Depth) * math.Exp(2*float64(p.Vector[0])) // queries differ in their first element
	out := rerank.List{Epsilon: list.Epsilon, Vectors: rerank.Matrix{Cols: list.Vectors.Cols}}
	var seed uint64
	for _, v := range p.Vector {
		seed = rand.NewPCG(seed, uint64(math.Float32bits(v))).Uint64()
	}
	for i, id := range list.IDs {
		n, _ := id.Uint64()
		if float64(rand.NewPCG(seed, n).Uint64()>>11)/(1<<53) >= lost {
			out.IDs, out.Scores = append(out.IDs, id), append(out.Scores, list.Scores[i])
			if list.Vectors.Cols > 0 {
				out.Vectors.Rows++
				out.Vectors.Data = append(out.Vectors.Data, list.Vectors.Row(i)...)
			}
		}
	}
	return out
}

func (l *lossy) Describe(ctx context.Context, collection string) (adapters.Description, error) {
	d, err := l.Store.Describe(ctx, collection)
	if s := l.settings.Load(); s != nil {
		d.Settings = *s
	}
	d.Indexing = l.indexing
	return d, err
}

// newRoute returns a route over a lossy store, with or without a table.
func newRoute(t testing.TB, withTable bool) (*route.Route, *lossy) {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: dim}, nil)
	must(t, err)
	vectors := normal(1, items)
	store := &lossy{Store: embedded.New()}
	must(t, store.Load("things", embedded.Collection{Fields: []embedded.Field{{Vectors: vectors}}}))
	r := &route.Route{
		Policy: route.Policy{Name: "things", Collection: "things", StoreName: "files", Placement: route.PlacementStored, Strategy: rerank.Average, Depth: 100},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "dot", Version: version, Similarity: sim}},
	}
	if withTable {
		features := rerank.NewMatrix(items, sim.Spec().Features)
		must(t, sim.EncodeItems(features, vectors))
		all := make([]rerank.ID, items)
		for i := range all {
			all[i] = rerank.UintID(uint64(i))
		}
		r.Table, err = table.FromMemory(table.Meta{Model: "dot", ModelVersion: version, Collection: "things"}, all, features, nil)
		must(t, err)
		r.Placement = route.PlacementTable
	}
	return r, store
}

func normal(seed uint64, rows int) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 7))
	m := rerank.NewMatrix(rows, dim)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// queries returns n queries whose first elements lie around shift.
func queries(seed uint64, n int, shift float32) []rerank.Query {
	m := normal(seed, n)
	out := make([]rerank.Query, n)
	for i := range out {
		out[i].Vector = m.Row(i)
		out[i].Vector[0] = out[i].Vector[0]/4 + shift
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
