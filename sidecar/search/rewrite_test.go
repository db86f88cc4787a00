package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

const rewriteDim = 6

// newBilinear returns qᵀWx of a random W.
func newBilinear(t testing.TB, form bilinear.Form, normalise bool) rerank.Similarity {
	t.Helper()
	set := tensor.Set{}
	add := func(name string, seed uint64, shape ...int) {
		cols := 1
		if len(shape) > 1 {
			cols = shape[1]
		}
		set[name] = tensor.Tensor{Shape: shape, Data: random(seed, shape[0], cols).Data}
	}
	switch form {
	case bilinear.Full:
		add("W", 31, rewriteDim, rewriteDim)
	case bilinear.Diagonal:
		add("w", 32, rewriteDim)
	default:
		add("P", 33, rewriteDim, 2)
		add("Q", 34, rewriteDim, 2)
	}
	s, err := bilinear.New(bilinear.Config{QueryDim: rewriteDim, ItemDim: rewriteDim, Form: form, Normalise: normalise}, set)
	must(t, err)
	return s
}

// newMoL returns a mixture whose gates depend on the query alone, over a linear item side
// with a bias.
func newMoL(t testing.TB, normalise bool) rerank.Similarity {
	t.Helper()
	set := tensor.Set{}
	for name, shape := range map[string][]int{
		"_query_embeddings_fn._query_emb_proj_module.1.weight": {6, rewriteDim}, "_query_embeddings_fn._query_emb_proj_module.1.bias": {6},
		"_item_embeddings_fn._item_emb_proj_module.1.weight": {6, rewriteDim}, "_item_embeddings_fn._item_emb_proj_module.1.bias": {6},
		"_gating_fn._query_only_partial_module.0.weight": {5, rewriteDim}, "_gating_fn._query_only_partial_module.0.bias": {5},
		"_gating_fn._query_only_partial_module.2.weight": {4, 5},
	} {
		n := 1
		for _, d := range shape {
			n *= d
		}
		set[name] = tensor.Tensor{Shape: shape, Data: random(uint64(len(name)), 1, n).Data}
	}
	s, err := mol.New(mol.Config{
		QueryDim: rewriteDim, ItemDim: rewriteDim, Dim: 3, PairsQuery: 2, PairsItem: 2, Temperature: 16, GatingQueryHidden: 5, Combination: mol.None, Normalise: normalise,
	}, set)
	must(t, err)
	return s
}

// unitRows divides the rows of m by their norms.
func unitRows(m rerank.Matrix) rerank.Matrix {
	for i := range m.Rows {
		row := m.Row(i)
		norm := float32(rerank.Norm(row))
		for j := range row {
			row[j] /= norm
		}
	}
	return m
}

// rewritable are similarities that are one inner product with the stored vector.
func rewritable(t testing.TB) map[string]rerank.Similarity {
	t.Helper()
	all := map[string]rerank.Similarity{}
	for _, normalise := range []bool{false, true} {
		for _, form := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
			all[fmt.Sprintf("%s, normalised %t", form, normalise)] = newBilinear(t, form, normalise)
		}
		d, err := dot.New(dot.Config{Dim: rewriteDim, Normalise: normalise}, nil)
		must(t, err)
		all[fmt.Sprintf("dot, normalised %t", normalise)] = d
		all[fmt.Sprintf("mol, normalised %t", normalise)] = newMoL(t, normalise)
	}
	return all
}

// TestARewrittenSearchIsOneSearch: the answer is the exact one, from one call that
// reads no vector and has every field of the request.
func TestARewrittenSearchIsOneSearch(t *testing.T) {
	for name, sim := range rewritable(t) {
		for _, exact := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, exact %t", name, exact), func(t *testing.T) {
				w := newRecorded(t, sim, unitRows(random(1, 90, rewriteDim))) // as the route declares
				p := w.pipe(t, "", func(r *route.Route) { r.ExactSearch, r.EF = exact, 50 })
				if got := p.Routes()[0].Placement; got != route.PlacementRewrite {
					t.Fatalf("placement %q: %s", got, p.Routes()[0].WhyNotRewritten)
				}
				q := random(2, 1, rewriteDim).Row(0)
				a := w.search(t, p, search.Request{
					Query: rerank.Query{Vector: q}, K: 3, Filter: even, Exclude: nothing(), Partitions: []string{partition}, Payload: true, PayloadFields: []string{"n", "third"},
				})
				want := w.exact(t, q, func(row int) bool { return row/3%2 == 0 })[:3]
				sameHits(t, a.Hits, want)
				if status := a.Certificate.Status; status != rerank.StatusExact {
					t.Errorf("status %q over exact lists", status)
				}
				for _, h := range a.Hits {
					if n, _ := h.ID.Uint64(); !strings.Contains(string(h.Payload), fmt.Sprintf(`"n":%d`, n)) || strings.Contains(string(h.Payload), "even") {
						t.Errorf("hit %s has the payload %s", h.ID, h.Payload)
					}
				}
				if calls := w.calls.Calls(); len(calls) != 1 {
					t.Fatalf("%d calls, want one", len(calls))
				}
				got := of[adapters.SearchRequest](t, w, recorder.Search)[0]
				wants := adapters.SearchRequest{
					Collection: collection, Vector: vectorField, Filter: even, Exclude: nothing(), Exact: exact, UnitVectors: true, Consistency: consistency,
					Partitions: []string{partition}, Payload: true, PayloadFields: []string{"n", "third"}, Rescore: true, EF: 50,
				}
				except := map[string]string{"WithVectors": "no vector is needed", "Owner": "items are rows", "Versions": "the answer is made of hits"}
				if !exact {
					except["Exact"] = "it was not asked for"
				}
				wantSearch(t, "the search", got, wants, except)
				depth := 3
				if exact { // the row behind the last shows a tie
					depth = 4
				}
				if len(got.Probes) != 1 || got.Probes[0].Depth != depth || a.Certificate.Depth != depth {
					t.Errorf("%d probes of depth %d, certificate %d; want one of %d", len(got.Probes), got.Probes[0].Depth, a.Certificate.Depth, depth)
				}
			})
		}
	}
}

// TestRewrittenScores holds the certificate's ε to what the scores are off, in float64,
// on vectors of all lengths.
func TestRewrittenScores(t *testing.T) {
	for name, sim := range rewritable(t) {
		if sim.Spec().Normalise {
			continue // their vectors have one length
		}
		vectors := random(5, 200, rewriteDim)
		for r := range vectors.Rows {
			for i := range vectors.Row(r) {
				vectors.Row(r)[i] *= float32(math.Pow(10, float64(r%9)-4))
			}
		}
		w := newWorld(t, sim, vectors)
		for seed := range uint64(20) {
			q := random(100+seed, 1, rewriteDim).Row(0)
			a := searchRoute(t, w.route(route.PlacementRewrite, func(r *route.Route) { r.ExactSearch = true }), search.Request{Query: rerank.Query{Vector: q}, K: 150})
			e, err := sim.Encode(rerank.Query{Vector: q})
			must(t, err)
			p, ok := rerank.EncodedAbilitiesOf(e).PullBack.PullBack()
			if !ok {
				t.Fatal("it cannot be pulled back")
			}
			for _, h := range a.Hits {
				n, _ := h.ID.Uint64()
				var phi float64
				for i, x := range vectors.Row(int(n)) {
					phi += float64(p.Vector[i]) * float64(x)
				}
				if off := math.Abs(float64(h.Score) - (float64(p.Scale)*phi + float64(p.Offset))); off > float64(a.Certificate.Epsilon) {
					t.Fatalf("%s: row %s is off by %v, ε is %v", name, h.ID, off, a.Certificate.Epsilon)
				}
			}
		}
	}
}

// TestRewrittenTies: a tie at the K-th row is the store's to break, and the certificate
// says that there is one.
func TestRewrittenTies(t *testing.T) {
	d, err := dot.New(dot.Config{Dim: rewriteDim}, nil)
	must(t, err)
	for _, c := range []struct {
		vectors     rerank.Matrix
		k           int
		exact, tied bool
	}{
		{tied(40, rewriteDim), 5, true, true}, {tied(40, rewriteDim), 40, true, false}, {random(1, 40, rewriteDim), 5, true, false},
		{random(1, 40, rewriteDim), 5, false, false}, // nothing was asked for after the fifth row, so nothing is known of it
	} {
		w := newWorld(t, d, c.vectors)
		a := searchRoute(t, w.route(route.PlacementRewrite, func(r *route.Route) { r.ExactSearch = c.exact }), search.Request{Query: rerank.Query{Vector: []float32{1, 1, 1, 1, 1, 1}}, K: c.k})
		if a.Certificate.Tied != c.tied || a.Certificate.Status != rerank.StatusExact || a.Certificate.Rounds != 1 || len(a.Hits) != c.k {
			t.Errorf("k %d: tied is %t, want %t: %+v", c.k, a.Certificate.Tied, c.tied, a.Certificate)
		}
	}
}

// approximating is a store whose lists are not exact.
type approximating struct{ *embedded.Store }

func (s approximating) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	lists, err := s.Store.Search(ctx, r)
	for i := range lists {
		lists[i].Exact, lists[i].Exhausted = false, false
	}
	return lists, err
}

// TestRewrittenProofs: without exact lists nothing is proved, whatever gap is asked for,
// and one search is the end of it.
func TestRewrittenProofs(t *testing.T) {
	w := newWorld(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
	q := rerank.Query{Vector: random(2, 1, rewriteDim).Row(0)}
	for _, c := range []struct {
		store  adapters.Store
		maxGap *float32
		status rerank.Status
		stop   rerank.Stop
	}{
		{w.store, nil, rerank.StatusExact, rerank.StopFixed},
		{w.store, ptr(0.1), rerank.StatusExact, rerank.StopGap},
		{approximating{w.store}, nil, rerank.StatusUnknown, rerank.StopFixed},
		{approximating{w.store}, ptr(0.1), rerank.StatusUnknown, rerank.StopUnbounded},
	} {
		a := searchRoute(t, w.route(route.PlacementRewrite, func(r *route.Route) { r.Store, r.ExactSearch = c.store, true }), search.Request{Query: q, K: 5, MaxGap: c.maxGap})
		if a.Certificate.Status != c.status || a.Certificate.Stop != c.stop || a.Certificate.Rounds != 1 {
			t.Errorf("%T, max_gap %v: %+v; want %q, %q", c.store, c.maxGap, a.Certificate, c.status, c.stop)
		}
		sameHits(t, a.Hits, w.exact(t, q.Vector, nil)[:5])
	}
}

// TestRewrittenRequestsThatNeedVectors: the terms of a score, another strategy and a
// query whose vector is zero are answered as on a stored placement.
func TestRewrittenRequestsThatNeedVectors(t *testing.T) {
	q := random(2, 1, rewriteDim).Row(0)
	for name, c := range map[string]struct {
		request search.Request
		vectors bool
	}{
		"a plain request": {search.Request{Query: rerank.Query{Vector: q}}, false},
		"another depth":   {search.Request{Query: rerank.Query{Vector: q}, Depth: 50}, false},
		"explain":         {search.Request{Query: rerank.Query{Vector: q}, Explain: true}, true},
		"zero":            {search.Request{Query: rerank.Query{Vector: make([]float32, rewriteDim)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRecorded(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
			p := w.pipe(t, route.PlacementRewrite)
			c.request.K = 4
			a := w.search(t, p, c.request)
			sameHits(t, a.Hits, w.exact(t, c.request.Query.Vector, nil)[:4])
			got := of[adapters.SearchRequest](t, w, recorder.Search)[0]
			if got.WithVectors != c.vectors || got.Rescore == c.vectors {
				t.Errorf("vectors are asked for: %t, want %t", got.WithVectors, c.vectors)
			}
			if want := max(c.request.Depth, 5); got.Probes[0].Depth != want {
				t.Errorf("depth %d, want %d", got.Probes[0].Depth, want)
			}
			if said := a.Plan == "not rewritten: explaining scores takes the vectors of the items"; said != c.request.Explain {
				t.Errorf("plan %q", a.Plan)
			}
			for _, h := range a.Hits {
				if c.request.Explain && (h.Explanation == nil || len(h.Explanation.Terms) != 1) {
					t.Errorf("hit %s is explained by %+v", h.ID, h.Explanation)
				}
			}
		})
	}
}

// TestRewrittenPages: the pages of a query are cut from one list, and read the payload
// of their own rows alone.
func TestRewrittenPages(t *testing.T) {
	w := newRecorded(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
	p := w.pipe(t, route.PlacementRewrite)
	q := random(2, 1, rewriteDim).Row(0)
	want := w.exact(t, q, nil)
	for _, k := range []int{2, 5, 20} {
		w.calls.Forget()
		a := w.search(t, p, search.Request{Query: rerank.Query{Vector: q}, K: k, MaxRank: 20, Payload: true})
		sameHits(t, a.Hits, want[:k])
		if got := of[adapters.SearchRequest](t, w, recorder.Search)[0]; got.Probes[0].Depth != 21 || got.Payload != (k == 20) {
			t.Errorf("k %d: depth %d with payload: %t", k, got.Probes[0].Depth, got.Payload)
		}
		for _, f := range w.calls.Calls(recorder.Fetch) {
			if r := f.Argument.(adapters.FetchRequest); len(r.IDs) != k || k == 20 {
				t.Errorf("k %d: the payload of %d rows is read apart", k, len(r.IDs))
			}
		}
	}
}

// TestRewrittenPayloadTooLong: rows that are too long for one message with their payload
// are found without it.
func TestRewrittenPayloadTooLong(t *testing.T) {
	w := newRecorded(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
	w.hooks.Before = refusing(recorder.Search, &adapters.LimitError{Limit: "max_message_bytes", Value: 9, Max: 8})(1)
	q := random(2, 1, rewriteDim).Row(0)
	a := w.search(t, w.pipe(t, route.PlacementRewrite), search.Request{Query: rerank.Query{Vector: q}, K: 4, Payload: true})
	sameHits(t, a.Hits, w.exact(t, q, nil)[:4])
	for _, h := range a.Hits {
		if len(h.Payload) == 0 {
			t.Errorf("hit %s has no payload", h.ID)
		}
	}
}

// TestRewriteScores: φ of an item does not depend on how the route searches.
func TestRewriteScores(t *testing.T) {
	w := newWorld(t, newBilinear(t, bilinear.IdentityLowRank, false), random(1, 30, rewriteDim))
	q := rerank.Query{Vector: random(2, 1, rewriteDim).Row(0)}
	p := pipe(t, w.route(route.PlacementRewrite))
	a, err := p.Score(t.Context(), search.ScoreRequest{Route: "r", Query: q, IDs: []rerank.ID{rerank.UintID(3), rerank.UintID(99)}, Explain: true})
	must(t, err)
	for _, h := range w.exact(t, q.Vector, nil) {
		if h.ID == rerank.UintID(3) && a.Scores[0] != h.Score || !slices.Equal(a.Missing, []rerank.ID{rerank.UintID(99)}) {
			t.Errorf("%+v, want %v", a, h.Score)
		}
	}
}

// observed keeps what an observer is told.
type observed struct {
	request search.Request
	answer  search.Answer
	err     error
	times   int
}

func (o *observed) Searched(_ context.Context, _ string, r search.Request, a search.Answer, err error) {
	o.request, o.answer, o.err = r, a, err
	o.times++
}

// describing is a store that says other things of its field.
type describing struct {
	*embedded.Store
	change func(*adapters.VectorField)
}

func (s describing) Describe(ctx context.Context, name string) (adapters.Description, error) {
	d, err := s.Store.Describe(ctx, name)
	for i := range d.Fields {
		s.change(&d.Fields[i])
	}
	return d, err
}

// undescribed is a store that says nothing of its fields.
type undescribed struct {
	adapters.Store
	adapters.Fetcher
}

// TestPlacementRewrite: the placement is the default where model and field permit it.
// A route that named it and cannot have it is refused; another keeps the reason.
func TestPlacementRewrite(t *testing.T) {
	plain, unit := newBilinear(t, bilinear.Full, false), newBilinear(t, bilinear.Full, true)
	field := func(change func(*adapters.VectorField)) func(*world, *route.Route) {
		return func(w *world, r *route.Route) { r.Store = describing{w.store, change} }
	}
	for name, c := range map[string]struct {
		sim    rerank.Similarity
		change func(*world, *route.Route)
		why    string // "": it is rewritten
	}{
		"inner product": {plain, nil, ""},
		"cosine":        {unit, nil, ""},
		"unit vectors in a dot field": {unit, func(w *world, r *route.Route) {
			r.UnitVectors = true
			field(func(f *adapters.VectorField) { f.Metric = adapters.InnerProduct })(w, r)
		}, ""},
		"rescored quantization": {plain, field(func(f *adapters.VectorField) { f.Quantized, f.Rescores = "scalar", true }), ""},
		"L2": {unit, func(w *world, r *route.Route) {
			r.UnitVectors = true
			field(func(f *adapters.VectorField) { f.Metric = adapters.L2 })(w, r)
		}, "compared by l2"},
		"uint8":           {plain, field(func(f *adapters.VectorField) { f.Datatype = adapters.UInt8 }), `datatype "uint8"`},
		"float16":         {plain, field(func(f *adapters.VectorField) { f.Datatype = adapters.Float16 }), ""},
		"a new datatype":  {plain, field(func(f *adapters.VectorField) { f.Datatype = "Int4" }), `datatype "Int4"`},
		"no description":  {plain, func(w *world, r *route.Route) { r.Store = undescribed{w.store, w.store} }, "does not say how it compares"},
		"gates of items":  {&toy{dim: 6, blocks: 3}, func(_ *world, r *route.Route) { r.Strategy = rerank.PerEmbedding }, "gates of its model"},
		"rows of an item": {&toy{dim: 6, blocks: 1, grouped: true}, nil, "best of several rows"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.sim, random(1, 9, 6))
			change := func(r *route.Route) {
				if c.change != nil {
					c.change(w, r)
				}
			}
			r := w.route("", change)
			opened, err := route.Open(t.Context(), r)
			must(t, err)
			want := route.PlacementRewrite
			if c.why != "" {
				want = route.PlacementStored
			}
			if opened.Placement != want || !strings.Contains(opened.WhyNotRewritten, c.why) || (c.why == "") != (opened.WhyNotRewritten == "") {
				t.Errorf("placement %q since %q, want %q since %q", opened.Placement, opened.WhyNotRewritten, want, c.why)
			}
			_, err = route.Open(t.Context(), w.route(route.PlacementRewrite, change))
			if refused := errors.Is(err, route.ErrSetup); refused != (c.why != "") || refused && (!strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), `use placement "stored"`)) {
				t.Errorf("placement rewrite by name: %v", err)
			}
		})
	}
	lossy := func(f *adapters.VectorField) { f.Quantized = "IVF_PQ" }
	w := newWorld(t, plain, random(1, 9, 6))
	for placement, want := range map[route.Placement]route.Placement{"": route.PlacementStored, route.PlacementRewrite: route.PlacementRewrite} {
		r, err := route.Open(t.Context(), w.route(placement, func(r *route.Route) { r.Store = describing{w.store, lossy} }))
		if must(t, err); r.Placement != want || (want == route.PlacementStored) != strings.Contains(r.WhyNotRewritten, `"IVF_PQ"`) {
			t.Errorf("over rounded scores, placement %q becomes %q: %s", placement, r.Placement, r.WhyNotRewritten)
		}
	}
	for name, r := range map[string]*route.Route{
		"table":     w.route("", func(r *route.Route) { r.Table = w.table }),
		"companion": newWorld(t, newBilinear(t, bilinear.LowRank, false), random(1, 9, 6)).route("", func(r *route.Route) { r.Companion = companion }),
		"distilled": w.route("", func(r *route.Route) { r.Strategy = rerank.Scan; r.Table = w.table }),
	} {
		if opened, err := route.Open(t.Context(), r); err != nil || opened.Placement == route.PlacementRewrite {
			t.Errorf("%s: placement %q, %v", name, opened.Placement, err)
		}
	}
}

// TestRewrite: a database that searches by the vector of a rewritten query, and states
// the scores of its metric, gives the exact answer.
func TestRewrite(t *testing.T) {
	for name, sim := range rewritable(t) {
		w := newWorld(t, sim, random(1, 90, rewriteDim))
		o := &observed{}
		onRequest := func(f *adapters.VectorField) { f.AlwaysExact = false }
		p, err := search.New([]*route.Route{w.route("", func(r *route.Route) { r.Store = describing{w.store, onRequest} })}, search.Options{Observer: o})
		must(t, err)
		q := random(2, 1, rewriteDim).Row(0)
		got, err := p.Rewrite(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: q}, K: 5})
		must(t, err)
		if got.Collection != collection || got.Route != "r" || o.times != 0 {
			t.Errorf("%s: %q, %q, observed %d times", name, got.Route, got.Collection, o.times)
		}
		var hits []search.Hit
		for r := range w.vectors.Rows {
			x := w.vectors.Row(r)
			score := inner(got.Vector, x)
			if w.metric == adapters.Cosine {
				score /= rerank.Norm(got.Vector) * rerank.Norm(x)
			}
			hits = append(hits, search.Hit{ID: rerank.UintID(uint64(r)), Score: got.Score(float32(score))})
		}
		slices.SortFunc(hits, func(a, b search.Hit) int {
			if a.Score > b.Score {
				return -1
			}
			return 1
		})
		hits = hits[:5]
		want := w.exact(t, q, nil)[:5]
		sameHits(t, hits, want)
		for _, exact := range []bool{true, false} {
			c := got.Answered(t.Context(), search.DatabaseAnswer{Hits: hits, Exact: exact})
			if status := c.Status; (status == rerank.StatusExact) != exact || o.answer.Certificate.Status != status {
				t.Errorf("%s: %+v for an answer that is exact: %t", name, c, exact)
			}
		}
		if c := got.Answered(t.Context(), search.DatabaseAnswer{Hits: hits, Exact: true, Staged: true}); c.Status != rerank.StatusUnknown {
			t.Errorf("%s: %+v for one stage of an answer", name, c)
		}
		if o.times != 3 || o.request.Route != "r" || len(o.answer.Hits) != 5 || o.answer.Strategy != rerank.Average || o.err != nil {
			t.Errorf("%s: observed %+v", name, o)
		}
		failed := errors.New("gone")
		if _ = got.Answered(t.Context(), search.DatabaseAnswer{Err: failed}); !errors.Is(o.err, failed) {
			t.Errorf("%s: the observer is told of %v", name, o.err)
		}
	}
}

func inner(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// TestNotRewritten: a query or a route that is no one search says so.
func TestNotRewritten(t *testing.T) {
	w := newWorld(t, newBilinear(t, bilinear.Full, false), random(1, 9, rewriteDim))
	zero := rerank.Query{Vector: make([]float32, rewriteDim)}
	some := rerank.Query{Vector: random(2, 1, rewriteDim).Row(0)}
	for name, c := range map[string]struct {
		placement route.Placement
		query     rerank.Query
		want      error
	}{
		"a zero vector":     {route.PlacementRewrite, zero, search.ErrNotRewritten},
		"another placement": {route.PlacementStored, some, search.ErrNotRewritten},
		"a wrong query":     {route.PlacementRewrite, rerank.Query{Vector: []float32{1}}, rerank.ErrQuery},
	} {
		p := pipe(t, w.route(c.placement))
		if got, err := p.Rewrite(t.Context(), search.Request{Route: "r", Query: c.query, K: 3}); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, c.want)
		}
	}
	huge := tensor.Set{"W": {Shape: []int{rewriteDim, rewriteDim}, Data: slices.Repeat([]float32{1.2e38}, rewriteDim*rewriteDim)}}
	sim, err := bilinear.New(bilinear.Config{QueryDim: rewriteDim, ItemDim: rewriteDim, Form: bilinear.Full, Normalise: true}, huge)
	must(t, err)
	ones := rerank.Query{Vector: slices.Repeat([]float32{1}, rewriteDim)}
	if got, err := pipe(t, newWorld(t, sim, random(1, 9, rewriteDim)).route(route.PlacementRewrite)).Rewrite(t.Context(), search.Request{Route: "r", Query: ones, K: 3}); !errors.Is(err, search.ErrNotRewritten) {
		t.Errorf("a vector that is longer than a float32: %+v, %v", got, err)
	}
	if _, err := pipe(t, w.route("")).Rewrite(t.Context(), search.Request{Route: "none", Query: some, K: 3}); !errors.Is(err, route.ErrUnknown) {
		t.Errorf("a route that does not exist: %v", err)
	}
}

// TestRewrittenRanker: a ranker orders the rows of a rewritten search as it orders the
// candidates of a stored placement, and the hits have their own payload.
func TestRewrittenRanker(t *testing.T) {
	w := newWorld(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
	q := rerank.Query{Vector: random(2, 1, rewriteDim).Row(0)}
	answers := map[route.Placement]search.Answer{}
	for _, placement := range []route.Placement{route.PlacementRewrite, route.PlacementStored} {
		j := &critic{relevance: opinion, wants: plugin.Description{Version: "3"}, batch: 8}
		answers[placement] = searchRoute(t, w.route(placement, ranking(j, 10, 1)), search.Request{Query: q, K: 10, Payload: true})
	}
	got, want := answers[route.PlacementRewrite], answers[route.PlacementStored]
	if len(got.Hits) != 10 || got.Ranking.Calls != 10 || got.Ranking.Calls != want.Ranking.Calls {
		t.Fatalf("%d hits, %+v; want %+v", len(got.Hits), got.Ranking, want.Ranking)
	}
	for i, h := range want.Hits {
		if g := got.Hits[i]; g.ID != h.ID || g.Score != h.Score || g.Ranked != h.Ranked || string(g.Payload) != string(h.Payload) {
			t.Errorf("hit %d is %+v, want %+v", i, g, h)
		}
	}
}

// TestTraceOfARewrittenSearch: one span, which ends when the database has answered and says
// what the answer proves.
func TestTraceOfARewrittenSearch(t *testing.T) {
	w := newWorld(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	p, err := search.New([]*route.Route{w.route("")}, search.Options{Tracer: provider.Tracer("test")})
	must(t, err)
	for _, failed := range []error{nil, adapters.ErrUnavailable} {
		spans.Reset()
		got, err := p.Rewrite(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, rewriteDim).Row(0)}, K: 5})
		must(t, err)
		if n := len(spans.Ended()); n != 0 {
			t.Errorf("%d spans ended before the answer", n)
		}
		got.Answered(t.Context(), search.DatabaseAnswer{Hits: make([]search.Hit, 5), Err: failed})
		var lines []string
		for _, s := range spans.Ended() {
			lines = append(lines, s.Name())
			for _, kv := range s.Attributes() {
				lines = append(lines, fmt.Sprintf("  %s=%s", kv.Key, kv.Value.String()))
			}
		}
		want := []string{"likeness.rewrite", "  likeness.route=r", "  likeness.certificate=exact", "  likeness.hits=5"}
		if failed != nil {
			want = []string{"likeness.rewrite", "  likeness.route=r", "  error.type=unavailable"}
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
	}
	must(t, provider.Shutdown(t.Context()))
}

// TestRewrittenOverRoundedScores: where a named placement makes scores of rounded vectors
// the answer, nothing bounds what they are off.
func TestRewrittenOverRoundedScores(t *testing.T) {
	w := newWorld(t, newBilinear(t, bilinear.Full, false), random(1, 90, rewriteDim))
	lossy := describing{w.store, func(f *adapters.VectorField) { f.Quantized, f.AlwaysExact = "IVF_PQ", false }}
	r := w.route(route.PlacementRewrite, func(r *route.Route) { r.Store = lossy })
	req := search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, rewriteDim).Row(0)}, K: 5}
	if c := searchRoute(t, r, req).Certificate; c.Status != rerank.StatusUnknown || !math.IsInf(float64(c.Epsilon), 1) {
		t.Errorf("%+v, want unknown with an ε of +Inf", c)
	}
	got, err := pipe(t, r).Rewrite(t.Context(), req)
	must(t, err)
	if c := got.Answered(t.Context(), search.DatabaseAnswer{Hits: make([]search.Hit, 5)}); got.Quantized != "IVF_PQ" || c.Status != rerank.StatusUnknown || !math.IsInf(float64(c.Epsilon), 1) {
		t.Errorf("index %q: %+v, want unknown with an ε of +Inf", got.Quantized, c)
	}
	if c := got.Answered(t.Context(), search.DatabaseAnswer{Hits: make([]search.Hit, 5), Exact: true}); c.Status != rerank.StatusExact {
		t.Errorf("an exhaustive search of the vectors themselves: %+v", c)
	}
}
