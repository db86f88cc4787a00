package routing_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// graph is a store whose lists miss items as a graph index does: which items a list
// misses depends on its depth, so that a list is no prefix of a deeper one.
type graph struct{ *embedded.Store }

func (g graph) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	depth := r.Probes[0].Depth
	r.Probes = []rerank.Probe{{Vector: r.Probes[0].Vector, Depth: 2 * depth}}
	r.WithVectors = false
	lists, err := g.Store.Search(ctx, r)
	for i, l := range lists {
		var kept rerank.List
		for row, id := range l.IDs {
			n, _ := id.Uint64()
			if missed := rand.New(rand.NewPCG(n, uint64(depth))).IntN(3) == 0; !missed && len(kept.IDs) < depth {
				kept.IDs, kept.Scores = append(kept.IDs, id), append(kept.Scores, l.Scores[row])
			}
		}
		lists[i] = kept
	}
	return lists, err
}

// calibrated is a promise whose depth was chosen for ten rows.
type calibrated struct{ depth int }

func (c calibrated) Calibration() (*rerank.Calibration, string) {
	return &rerank.Calibration{Recall: .9, Share: .95, Alpha: .05, Queries: 400, K: 10, Rule: rerank.Rule{
		Strategy: rerank.Average, Depth: c.depth, AverageDepth: c.depth, Weights: rerank.UniformWeights,
	}}, ""
}

func (calibrated) Opened(*route.Route, map[string]string) {}

// TestPagesOfOneList: pages by limit and offset, whatever a calibration chose and
// whatever is ranked beyond them, are cut from one list.
func TestPagesOfOneList(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	vectors := rerank.NewMatrix(400, 4)
	for i := range vectors.Data {
		vectors.Data[i] = float32(rng.NormFloat64())
	}
	store := embedded.New()
	field := embedded.Field{VectorField: adapters.VectorField{Name: "v", Metric: adapters.InnerProduct}, Vectors: vectors}
	if err := store.Load("c", embedded.Collection{Fields: []embedded.Field{field}}); err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{10, 100} {
		p, err := search.New([]*route.Route{{
			Policy: route.Policy{Name: "r", StoreName: "s", Ramp: 100, Collection: "c", Vector: "v", Depth: 80, Placement: route.PlacementStored},
			Parts:  route.Parts{Store: fetched{graph{store}}, Promise: calibrated{depth}, Model: route.Model{Name: "dot", Version: "1", Similarity: sim}},
		}}, search.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := router(t, p, nil)
		for range 20 {
			query := []float32{rng.Float32(), rng.Float32(), -rng.Float32(), rng.Float32()}
			page := func(offset, limit uint64) []rerank.ID {
				o := ask(t.Context(), r, asks(routing.Search{Vector: "v", Query: query, Limit: limit, Offset: offset}))
				if !o.Answered || o.Answer.own || uint64(len(o.Answer.ids)) != limit {
					t.Fatalf("offset %d, limit %d: %+v", offset, limit, o)
				}
				return o.Answer.ids
			}
			whole := page(0, 80)
			for offset := uint64(0); offset < 80; {
				limit := min(80-offset, 1+rng.Uint64N(15))
				if got := page(offset, limit); !slices.Equal(got, whole[offset:offset+limit]) {
					t.Fatalf("calibrated at %d, ranks %d to %d are %v, want %v", depth, offset, offset+limit, got, whole[offset:offset+limit])
				}
				offset += limit
			}
		}
	}
}

// fetched adds the vectors of the rows that a list has.
type fetched struct{ graph }

func (f fetched) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	lists, err := f.graph.Search(ctx, r)
	if err != nil || !r.WithVectors {
		return lists, err
	}
	for i := range lists {
		rows, err := f.Fetch(ctx, adapters.FetchRequest{Collection: r.Collection, IDs: lists[i].IDs, Vectors: []string{r.Vector}})
		if err != nil {
			return nil, err
		}
		lists[i].Vectors = rows.Vectors[0]
	}
	return lists, nil
}
