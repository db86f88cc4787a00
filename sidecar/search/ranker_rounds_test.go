package search_test

import (
	"math"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// taste is a world of plain vectors and a ranker that sees more than they show: R is a bent sum of
// the vectors' inner product with the query and with a direction of the query's own.
type taste struct {
	*world
	items rerank.Matrix
}

const tasteDim = 12

func newTaste(t testing.TB, sim rerank.Similarity, items int) *taste {
	t.Helper()
	x := random(8, items, tasteDim)
	return &taste{newWorld(t, sim, x), x}
}

func (w *taste) query(n int) rerank.Query {
	return rerank.Query{Vector: random(uint64(500+n), 1, tasteDim).Row(0)}
}

func (w *taste) truth(q rerank.Query, item int) float32 {
	own := random(uint64(math.Float32bits(q.Vector[0])), 1, tasteDim).Row(0)
	var sum float64
	for i, x := range w.items.Row(item) {
		sum += float64(x) * (float64(q.Vector[i]) + float64(own[i]))
	}
	return float32(40 + 9*math.Tanh(sum/6))
}

func (w *taste) critic() *critic {
	return &critic{wants: plugin.Description{Version: "1"}, relevance: func(q plugin.Query, it plugin.Item) float32 {
		return w.truth(rerank.Query{Vector: q.Vector}, number(it))
	}}
}

// found returns the share of the ranker's k best items among the hits.
func (w *taste) found(q rerank.Query, hits []search.Hit) float64 {
	n := 0
	for _, want := range judged(w.world.items(), len(hits), func(id rerank.ID) float32 {
		row, _ := id.Uint64()
		return w.truth(q, int(row))
	}) {
		for _, h := range hits {
			if h.ID == want.ID {
				n++
			}
		}
	}
	return float64(n) / float64(len(hits))
}

// TestRoundsOfEveryKind: whatever inner product a route has and wherever its items are, four rounds
// find more of the ranker's best items than one round of as many calls. They spend no more calls, ask
// of no item twice, and nothing is proved of the answer.
func TestRoundsOfEveryKind(t *testing.T) {
	plain, err := dot.New(dot.Config{Dim: tasteDim}, nil)
	must(t, err)
	w := tensor.Tensor{Shape: []int{tasteDim, tasteDim}, Data: random(6, tasteDim, tasteDim).Data}
	for i := range w.Data { // nearly the identity
		w.Data[i] *= 0.05
		if i%(tasteDim+1) == 0 {
			w.Data[i]++
		}
	}
	form, err := bilinear.New(bilinear.Config{QueryDim: tasteDim, ItemDim: tasteDim}, tensor.Set{"W": w})
	must(t, err)
	const calls, queries = 60, 20
	for kind, sim := range map[string]rerank.Similarity{"dot": plain, "bilinear": form} {
		w := newTaste(t, sim, 600)
		for _, placement := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementRewrite} {
			var found [2]float64
			for i, rounds := range []int{1, 4} {
				j := w.critic()
				p := pipe(t, w.route(placement, ranking(j, calls, rounds)))
				for n := range queries {
					before := len(j.asked())
					a, err := p.Search(t.Context(), search.Request{Route: "r", Query: w.query(n), K: 10, Explain: n == 0})
					must(t, err)
					wantOrder(t, a)
					asked := map[rerank.ID]bool{}
					for _, it := range j.asked()[before:] {
						asked[it.ID] = true
					}
					if spent := len(j.asked()) - before; spent > calls || rounds == 1 && spent < calls || a.Ranking.Calls != spent || len(asked) != spent || a.Ranking.Rounds > rounds {
						t.Fatalf("%s, %s: %d items asked, %d of them distinct: %+v", kind, placement, spent, len(asked), a.Ranking)
					}
					if a.Certificate.Status != rerank.StatusUnknown || a.Degraded != nil {
						t.Fatalf("%s, %s: %+v, %+v", kind, placement, a.Certificate, a.Degraded)
					}
					found[i] += w.found(w.query(n), a.Hits) / queries
				}
			}
			if t.Logf("%s, %s: %.3f of the best 10 in one round, %.3f in four", kind, placement, found[0], found[1]); found[1] < found[0]+0.05 {
				t.Errorf("%s, %s: four rounds find %.3f of the best 10, one round %.3f", kind, placement, found[1], found[0])
			}
		}
	}
}
