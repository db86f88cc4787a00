package search_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// graph is a store whose lists miss items as a graph index does: the missed items depend on the
// depth, so that a list is no prefix of a deeper one.
type graph struct{ *embedded.Store }

func (a graph) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	wide := r
	wide.Probes = slices.Clone(r.Probes)
	for i := range wide.Probes {
		wide.Probes[i].Depth *= 2
	}
	lists, err := a.Store.Search(ctx, wide)
	for i := range lists {
		l, depth := &lists[i], r.Probes[i].Depth
		var rows []int
		for row, id := range l.IDs {
			n, _ := id.Uint64()
			if missed := rand.New(rand.NewPCG(n, uint64(depth))).IntN(3) == 0; !missed && len(rows) < depth {
				rows = append(rows, row)
			}
		}
		kept := rerank.List{Epsilon: l.Epsilon, Exhausted: len(rows) < depth}
		for _, row := range rows {
			kept.IDs, kept.Scores = append(kept.IDs, l.IDs[row]), append(kept.Scores, l.Scores[row])
		}
		if r.WithVectors {
			kept.Vectors = rerank.NewMatrix(len(rows), l.Vectors.Cols)
			for to, row := range rows {
				copy(kept.Vectors.Row(to), l.Vectors.Row(row))
			}
		}
		*l = kept
	}
	return lists, err
}

// TestPagesOfOneList: the pages of a query, whatever their lengths, are parts of one list. No page
// repeats or skips an item, although the index is approximate, a calibration chose a depth for
// short answers, or a gap is requested.
func TestPagesOfOneList(t *testing.T) {
	inner, err := dot.New(dot.Config{Dim: 6}, nil)
	must(t, err)
	one, several := newWorld(t, inner, random(1, 500, 6)), newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 500, 6))
	gap := float32(.5)
	for name, c := range map[string]struct {
		world     *world
		placement route.Placement
		strategy  rerank.Strategy
		change    func(*route.Route)
	}{
		"stored":              {one, route.PlacementStored, rerank.Average, nil},
		"table":               {one, route.PlacementTable, rerank.Average, nil},
		"scan":                {one, route.PlacementTable, rerank.Scan, nil},
		"rounded table":       {one, route.PlacementTable, rerank.Average, func(r *route.Route) { r.Table = one.rounded(t, rerank.FormatInt8, table.LayoutRows, true) }},
		"several, average":    {several, route.PlacementTable, rerank.Average, nil},
		"several":             {several, route.PlacementTable, rerank.PerEmbedding, nil},
		"several, gap":        {several, route.PlacementTable, rerank.PerEmbedding, func(r *route.Route) { r.MaxGap = &gap }},
		"several, exact, gap": {several, route.PlacementTable, rerank.PerEmbedding, func(r *route.Route) { r.MaxGap, r.ExactSearch, r.Store = &gap, true, several.store }},
		"several, combined":   {several, route.PlacementTable, rerank.Combined, nil},
	} {
		for _, depth := range []int{10, 100} { // the depth of a calibration
			r := c.world.route(c.placement, func(r *route.Route) {
				r.Store, r.Strategy, r.Depth = graph{c.world.store}, c.strategy, 60
				r.Promise = &promise{c: &rerank.Calibration{
					Recall: .9, Share: .95, Alpha: .05, Queries: 400, K: 10,
					Rule: rerank.Rule{Strategy: c.strategy, Depth: depth, AverageDepth: depth, Weights: rerank.UniformWeights},
				}}
				if c.change != nil {
					c.change(r)
				}
			})
			for q := range 10 {
				checkPages(t, fmt.Sprintf("%s, calibrated at %d, query %d", name, depth, q), pipe(t, r), rerank.Query{Vector: random(uint64(50+q), 1, 6).Data})
			}
		}
	}
}

// checkPages cuts the first 60 ranks of a query into pages of random lengths.
func checkPages(t *testing.T, name string, p *search.Engine, q rerank.Query) {
	t.Helper()
	const maxRank = 60
	rng := rand.New(rand.NewPCG(5, 5))
	page := search.Request{Route: "r", Query: q, K: maxRank, MaxRank: maxRank}
	whole := rankedIDs(t, p, page)
	for offset := 0; offset < maxRank; offset = page.K {
		page.K = min(maxRank, offset+1+rng.IntN(20))
		if got := rankedIDs(t, p, page); !slices.Equal(got[offset:], whole[offset:page.K]) {
			t.Fatalf("%s: ranks %d to %d are %v, want %v", name, offset, page.K, got[offset:], whole[offset:page.K])
		}
	}
}

func rankedIDs(t *testing.T, p *search.Engine, r search.Request) (ids []rerank.ID) {
	t.Helper()
	a, err := p.Search(t.Context(), r)
	must(t, err)
	if len(a.Hits) != r.K {
		t.Fatalf("%d hits, want %d", len(a.Hits), r.K)
	}
	for _, h := range a.Hits {
		ids = append(ids, h.ID)
	}
	return ids
}

// TestAPageCarriesThePromise: a page of the calibrated length carries the promise, although its
// list is deeper than the calibrated depth.
func TestAPageCarriesThePromise(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Promise = rerank.PerEmbedding, promised() })
	for k, want := range map[int]rerank.Status{5: rerank.StatusCalibrated, 10: rerank.StatusUnknown} {
		got := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: k, MaxRank: 20})
		if got.Certificate.Status != want || got.Certificate.Depth != 20 || len(got.Hits) != k {
			t.Errorf("K %d: %d hits, %+v, want %s at depth 20", k, len(got.Hits), got.Certificate, want)
		}
	}
}
