package search_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// taste is a world of plain vectors whose ranker knows more than the vectors: R is a nonlinear function of
// the sum of the item's inner products with the query and with a hidden direction of each query.
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

// TestMixing: a share of the first round is what the store ranks first, where the similarity's order is
// another; the other calls are the similarity's. The budget is kept, and a store that fails costs no
// call.
func TestMixing(t *testing.T) {
	turned := tensor.Tensor{Shape: []int{tasteDim, tasteDim}, Data: random(7, tasteDim, tasteDim).Data}
	sim, err := bilinear.New(bilinear.Config{QueryDim: tasteDim, ItemDim: tasteDim}, tensor.Set{"W": turned})
	must(t, err)
	w := newTaste(t, sim, 400)
	q := w.query(3)
	phi := w.exact(t, q.Vector, nil)
	byStore := func(v []float32) []rerank.Scored {
		return judged(w.world.items(), 400, func(id rerank.ID) float32 {
			row, _ := id.Uint64()
			return float32(dotOf(v, w.items.Row(int(row))))
		})
	}
	share := func(x float64) *float64 { return &x }
	other := random(77, 1, tasteDim).Row(0)
	for name, c := range map[string]struct {
		mix    *float64 // nil: the route's, a half
		stored []float32
		from   int // items of the store's order
	}{
		"the route's": {nil, nil, 10}, "none": {share(0), nil, 0}, "a quarter": {share(0.25), nil, 5}, "all": {share(1), nil, 20},
		"by another vector": {nil, other, 10},
	} {
		for _, placement := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementRewrite} {
			j := w.critic()
			r := w.route(placement, ranking(j, 20, 1), func(r *route.Route) { r.Mix, r.Depth = 0.5, 60 })
			a := searchRoute(t, r, search.Request{Query: q, K: 20, Mix: c.mix, StoredVector: c.stored, Explain: name == "all"})
			wantOrder(t, a)
			by := byStore(q.Vector)
			if c.stored != nil {
				by = byStore(c.stored)
			}
			want, next := map[rerank.ID]bool{}, 0
			for _, h := range by[:c.from] {
				want[h.ID] = true
			}
			for ; len(want) < 20; next++ {
				want[phi[next].ID] = true
			}
			for _, it := range j.asked() {
				if !want[it.ID] {
					t.Errorf("%s, %s: item %s was asked", name, placement, it.ID)
				}
			}
			if len(j.asked()) != 20 || a.Ranking.Calls != 20 || a.Ranking.Cut != 0 {
				t.Errorf("%s, %s: %d items asked, %+v", name, placement, len(j.asked()), a.Ranking)
			}
			for _, h := range a.Hits {
				if name == "all" && (h.Explanation == nil || !(math.Abs(float64(h.Explanation.Score-phiOf(phi, h.ID))) <= 1e-4)) {
					t.Errorf("%s: hit %s is explained by %+v, φ is %v", placement, h.ID, h.Explanation, phiOf(phi, h.ID))
				}
			}
		}
	}
	searches := 0
	store := &decorated{Store: w.store, before: func(_ context.Context, call string) error {
		if call != "plain" {
			return nil
		}
		if searches++; searches == 2 {
			return adapters.ErrUnavailable
		}
		return nil
	}}
	j := w.critic()
	a := searchRoute(t, w.route(route.PlacementTable, ranking(j, 20, 1), func(r *route.Route) { r.Store, r.Mix = store, 0.5 }), search.Request{Query: q, K: 20})
	if a.Degraded != nil || len(j.asked()) != 20 || a.Ranking.Cut != 0 || searches != 2 {
		t.Errorf("a store that fails: %d items asked in %d searches, %+v, %+v", len(j.asked()), searches, a.Ranking, a.Degraded)
	}
}

func dotOf(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

func phiOf(phi []rerank.Scored, id rerank.ID) float32 {
	for _, s := range phi {
		if s.ID == id {
			return s.Score
		}
	}
	return float32(math.NaN())
}

// TestMixRefused: a share is between 0 and 1, and the store must be able to compare the query.
func TestMixRefused(t *testing.T) {
	byScores := newRelevances(t, 60, 8)
	share := func(x float64) *float64 { return &x }
	text := rerank.Query{Text: "query 1"}
	plain := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 60, 6)).route(route.PlacementTable)
	byVector := rerank.Query{Vector: make([]float32, 6)}
	ranked := byScores.route(route.PlacementTable, ranking(byScores.critic(), 20, 1))
	for name, c := range map[string]struct {
		route  *route.Route
		query  rerank.Query
		mix    *float64
		stored []float32
		field  string
	}{
		"more than all":        {ranked, text, share(1.5), nil, "mix"},
		"less than none":       {ranked, text, share(-0.5), nil, "mix"},
		"no number":            {ranked, text, share(math.NaN()), nil, "mix"},
		"no vector to compare": {ranked, text, share(0.5), nil, "stored_vector"},
		"another dimension":    {ranked, text, share(0.5), make([]float32, 99), "stored_vector"},
		"not mixed":            {ranked, text, share(0), nil, ""},
		"no ranker":            {plain, byVector, share(0), nil, "mix"},
		"no ranker, a vector":  {plain, byVector, nil, []float32{1}, "stored_vector"},
	} {
		_, err := pipe(t, c.route).Search(t.Context(), search.Request{Route: "r", K: 5, Query: c.query, Mix: c.mix, StoredVector: c.stored})
		var field *plan.FieldError
		if c.field == "" && err != nil || c.field != "" && (!errors.As(err, &field) || field.Field != c.field) {
			t.Errorf("%s: %v, want field %q", name, err, c.field)
		}
	}
	for share, says := range map[float64]string{2: "mix is 2", math.NaN(): "mix is NaN"} {
		r := byScores.route(route.PlacementTable, ranking(byScores.critic(), 20, 1), func(r *route.Route) { r.Mix = share })
		if _, err := search.New([]*route.Route{r}, search.Options{}); !errors.Is(err, route.ErrSetup) || !strings.Contains(err.Error(), says) {
			t.Errorf("mix %g: %v", share, err)
		}
	}
}

// TestMixOfText: for a model whose query vectors are scores, the embedder makes the vector by which the
// store is searched. An embedder that fails costs no answer, and one that is not needed is not called.
func TestMixOfText(t *testing.T) {
	w := newRelevances(t, 200, 8)
	q := rerank.Query{Text: "query 1"}
	stored := random(78, 1, w.sim.Spec().ItemDim).Row(0)
	half, none := 0.5, 0.0
	askedWith := func(embedder embed.Embedder, r search.Request) (items []rerank.ID) {
		t.Helper()
		j := w.critic()
		rt := w.route(route.PlacementTable, ranking(j, 40, 1), func(r *route.Route) {
			if embedder != nil {
				r.EmbedderName, r.Embedder = "words", embedder
			}
		})
		r.Query, r.K = q, 10
		if a := searchRoute(t, rt, r); a.Degraded != nil || len(a.Hits) != 10 {
			t.Errorf("%d hits, %+v", len(a.Hits), a.Degraded)
		}
		for _, it := range j.asked() {
			items = append(items, it.ID)
		}
		slices.SortFunc(items, rerank.ID.Compare)
		return items
	}
	mixed, alone := askedWith(nil, search.Request{Mix: &half, StoredVector: stored}), askedWith(nil, search.Request{Mix: &none})
	if slices.Equal(mixed, alone) {
		t.Fatal("the store's order adds nothing, so that this proves nothing")
	}
	for name, c := range map[string]struct {
		embedder embed.Embedder
		request  search.Request
		want     []rerank.ID
	}{
		"text":                       {words{q.Text: stored}, search.Request{Mix: &half}, mixed},
		"a vector":                   {words{}, search.Request{Mix: &half, StoredVector: stored}, mixed},
		"not mixed":                  {words{q.Text: stored}, search.Request{Mix: &none}, alone},
		"an embedder fails":          {words{}, search.Request{Mix: &half}, alone},
		"the route's, which is none": {words{q.Text: stored}, search.Request{}, alone},
	} {
		if got := askedWith(c.embedder, c.request); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d items asked, want %d others", name, len(got), len(c.want))
		}
	}
	r := w.route(route.PlacementTable, func(r *route.Route) { r.EmbedderName, r.Embedder = "words", words{} })
	if _, err := search.New([]*route.Route{r}, search.Options{}); !errors.Is(err, route.ErrSetup) || !strings.Contains(err.Error(), "name a store and a ranker") {
		t.Errorf("an embedder without a ranker: %v", err)
	}
	r = w.route(route.PlacementTable, ranking(w.critic(), 20, 1), func(r *route.Route) {
		r.EmbedderName, r.Embedder = "words", words{"How long is a vector?": make([]float32, 3)}
	})
	if err := pipe(t, r).Open(t.Context()); !errors.Is(err, route.ErrSetup) || !strings.Contains(err.Error(), "its collection has") {
		t.Errorf("an embedder of another length: %v", err)
	}
}

// TestQueryFeatures: a model that reads the query's own vector beside the ranker's scores gets it as
// StoredVector or from the embedder, with the same answer as from scores and vector sent together.
func TestQueryFeatures(t *testing.T) {
	w := newRelevances(t, 60, 6)
	const dim, hidden, out = 5, 4, 3
	set := func(seed uint64, shape ...int) tensor.Tensor {
		rows, cols := shape[0], 1
		if len(shape) > 1 {
			cols = shape[1]
		}
		return tensor.Tensor{Shape: shape, Data: random(seed, rows, cols).Data}
	}
	var supports, queries []rerank.ID
	for i := range uint64(6) {
		supports = append(supports, rerank.UintID(i))
	}
	n := w.sim.Spec().ItemDim
	for i := range n {
		queries = append(queries, rerank.UintID(uint64(i)))
	}
	const m = 6
	sim, err := rbe.New(rbe.Config{SupportItems: supports, SupportQueries: queries, Hidden: hidden, Out: out, Features: dim}, tensor.Set{
		"projection":     set(1, m, n),
		"query.0.weight": set(2, hidden, m+dim), "query.0.bias": set(3, hidden), "query.1.weight": set(4, out, hidden), "query.1.bias": set(5, out),
		"item.0.weight": set(6, hidden, m), "item.0.bias": set(7, hidden), "item.1.weight": set(8, out, hidden), "item.1.bias": set(9, out),
		"offset.weight": set(10, m), "offset.bias": set(11, 1),
	})
	must(t, err)
	w.world = newWorld(t, sim, w.world.vectors)
	own := random(12, 1, dim).Row(0)
	none, zero := 0, 0.0
	ask := func(embedder embed.Embedder, q rerank.Query, stored []float32) (search.Answer, error) {
		r := w.route(route.PlacementTable, ranking(w.critic(), 20, 1), func(r *route.Route) {
			if embedder != nil {
				r.EmbedderName, r.Embedder = "words", embedder
			}
		})
		return pipe(t, r).Search(t.Context(), search.Request{Route: "r", K: 10, Query: q, Calls: &none, Mix: &zero, StoredVector: stored})
	}
	text := rerank.Query{Text: "query 1"}
	asked, err := sim.Ask(t.Context(), func(_ context.Context, items []rerank.ID, q rerank.Query) ([]float32, error) {
		scores := make([]float32, len(items))
		for i, id := range items {
			row, _ := id.Uint64()
			scores[i] = w.truth(text.Text, int(row))
		}
		return scores, nil
	}, rerank.Query{Vector: own})
	must(t, err)
	want, err := ask(nil, rerank.Query{Text: text.Text, Vector: asked.Vector}, nil)
	must(t, err)
	for name, c := range map[string]struct {
		embedder embed.Embedder
		stored   []float32
	}{"a vector": {nil, own}, "text": {words{text.Text: own}, nil}} {
		a, err := ask(c.embedder, text, c.stored)
		if err != nil || len(a.Hits) != 10 || !slices.EqualFunc(a.Hits, want.Hits, func(a, b search.Hit) bool { return a.ID == b.ID && a.Score == b.Score }) {
			t.Errorf("%s: %v, %v, want %v", name, a.Hits, err, want.Hits)
		}
	}
	var field *plan.FieldError
	if _, err := ask(nil, text, nil); !errors.As(err, &field) || field.Field != "stored_vector" {
		t.Errorf("no features: %v", err)
	}
	if _, err := ask(words{}, text, nil); !errors.Is(err, embed.ErrText) {
		t.Errorf("an embedder that fails: %v", err)
	}
}
