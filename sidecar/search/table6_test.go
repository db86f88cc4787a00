package search_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// given is a mixture of two inner products whose gates are stored with the item:
// the example of RAILS, appendix B. Its items are (l_0, l_1, π_0, π_1).
type given struct{ toy }

func (g *given) Spec() rerank.Spec {
	s := g.toy.Spec()
	s.QueryDim, s.PairsQuery = 1, 2
	return s
}

func (g *given) Encode(rerank.Query) (rerank.Encoded, error) { return givenQuery{}, nil }

func (g *given) EncodeItems(dst, base rerank.Matrix) error { copy(dst.Data, base.Data); return nil }

type givenQuery struct{}

func (givenQuery) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	return []rerank.Probe{
		{Vector: []float32{1, 0, 0, 0}, Depth: p.Depth, Target: rerank.TargetLogit, Pair: 0},
		{Vector: []float32{0, 1, 0, 0}, Depth: p.Depth, Target: rerank.TargetLogit, Pair: 1},
	}, nil
}

func (givenQuery) Score(dst []float32, items rerank.Items) error {
	for i := range dst {
		row := i
		if items.Rows != nil {
			row = int(items.Rows[i])
		}
		x := items.Features.Row(row)
		dst[i] = x[0]*x[2] + x[1]*x[3]
	}
	return nil
}

func (g givenQuery) ScoreWide(dst []float64, items rerank.Items) (float64, error) {
	return widened(g, dst, items)
}

func (givenQuery) Bound(_ []rerank.Probe, lists []rerank.List) rerank.Bound {
	return rerank.Bound{Max: max(lists[0].Threshold(), lists[1].Threshold()), Epsilon: lists[0].Epsilon}
}

// TestTable6 follows the worked example of docs/concepts.md: lists of two rows,
// then of three.
func TestTable6(t *testing.T) {
	b, err := os.ReadFile("../../testdata/golden/retrieval/table6.json")
	must(t, err)
	var example struct {
		DotProducts map[string][]float32 `json:"dot_products"`
		Gates       map[string][]float32
		Scores      map[string]float32
		Top         []string `json:"top_2"`
	}
	must(t, json.Unmarshal(b, &example))
	var items []float32
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		items = append(items, slices.Concat(example.DotProducts[name], example.Gates[name])...)
	}
	w := newWorld(t, &given{toy{dim: 4, blocks: 2}}, rerank.Matrix{Rows: 5, Cols: 4, Data: items})
	rt := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.PerEmbedding })
	for _, c := range []struct {
		depth  int
		hits   []string
		gap    float64
		status rerank.Status
	}{
		{2, []string{"a", "b"}, .4, rerank.StatusUnknown},
		{3, example.Top, 0, rerank.StatusExact},
	} {
		rt.Depth = c.depth
		a := searchRoute(t, rt, search.Request{Query: rerank.Query{Vector: []float32{1}}, K: 2})
		for i, h := range a.Hits {
			n, _ := h.ID.Uint64()
			if names[n] != c.hits[i] || !(math.Abs(float64(h.Score-example.Scores[c.hits[i]])) <= 1e-6) {
				t.Errorf("hit %d is %s with %v, want %s", i, names[n], h.Score, c.hits[i])
			}
		}
		if got := a.Certificate; got.Status != c.status || !(math.Abs(float64(got.Gap)-c.gap) <= 1e-5) {
			t.Errorf("depth %d: %+v, want %s with gap %v", c.depth, got, c.status, c.gap)
		}
	}
}
