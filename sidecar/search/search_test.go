package search_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Of the items of three rows, even lets all rows of every second one through,
// first the first row of each.
const (
	even  = `{"must": [{"key": "even", "match": {"value": true}}]}`
	first = `{"must": [{"key": "third", "match": {"value": 0}}]}`
)

func isEven(row int) bool  { return row/3%2 == 0 }
func isFirst(row int) bool { return row%3 == 0 }

// TestSearchAgreesWithBruteForce: every strategy in every placement, for an
// inner product, a mixture and items of several rows, with and without a filter.
// What is not exact must still carry true scores, in order.
func TestSearchAgreesWithBruteForce(t *testing.T) {
	sims := map[string]*toy{
		"inner product":    {dim: 6, blocks: 1},
		"unit vectors":     {dim: 6, blocks: 1, normalise: true},
		"mixture":          {dim: 6, blocks: 3},
		"mixture, unit":    {dim: 6, blocks: 3, normalise: true},
		"grouped":          {dim: 6, blocks: 1, grouped: true},
		"grouped, mixture": {dim: 6, blocks: 3, grouped: true},
	}
	for name, sim := range sims {
		w := newWorld(t, sim, random(1, 300, 6))
		for _, p := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived} {
			for _, s := range rerank.Strategies() {
				if s == rerank.Scan && p != route.PlacementTable {
					continue
				}
				for _, filter := range []string{"", even} {
					t.Run(fmt.Sprintf("%s/%s/%s/filter %t", name, p, s, filter != ""), func(t *testing.T) {
						agree(t, w, p, s, filter)
					})
				}
			}
		}
	}
}

func agree(t *testing.T, w *world, p route.Placement, s rerank.Strategy, filter string) {
	var keep func(int) bool
	if filter != "" {
		keep = isEven
	}
	queries := random(2, 5, w.vectors.Cols)
	for i := range queries.Rows {
		q := queries.Row(i)
		truth := w.exact(t, q, keep)
		for _, k := range []int{1, 7, 30} {
			a := searchRoute(t, w.route(p, func(r *route.Route) { r.Strategy = s }), search.Request{Query: rerank.Query{Vector: q}, K: k, Filter: filter})
			judge(t, a, truth, k)
			if sure := s == rerank.Scan || s == rerank.Average && w.sim.Spec().SingleInnerProduct && (filter == "" || !w.sim.Spec().GroupedRows); sure &&
				a.Certificate.Status != rerank.StatusExact {
				t.Errorf("K %d: %+v, want exact", k, a.Certificate)
			}
		}
	}
}

// judge holds an answer against the truth, every item best first.
func judge(t testing.TB, a search.Answer, truth []rerank.Scored, k int) {
	t.Helper()
	c := a.Certificate
	if a.Degraded != nil {
		t.Fatalf("degraded: %+v", a.Degraded)
	}
	scores := make(map[rerank.ID]float32, len(truth))
	for _, row := range truth {
		scores[row.ID] = row.Score
	}
	found := make(map[rerank.ID]bool, len(a.Hits))
	for i, h := range a.Hits {
		want, ok := scores[h.ID]
		if !ok || found[h.ID] || !(math.Abs(float64(h.Score-want)) <= float64(c.Epsilon)+1e-6) {
			t.Fatalf("hit %d: %s scores %v, want %v (found %t, twice %t)", i, h.ID, h.Score, want, ok, found[h.ID])
		}
		if i > 0 && h.Score > a.Hits[i-1].Score {
			t.Fatalf("hit %d scores %v, more than the one before it", i, h.Score)
		}
		found[h.ID] = true
	}
	if c.Status == rerank.StatusExact && len(a.Hits) != min(k, len(truth)) {
		t.Fatalf("%d hits are called exact, of %d items", len(a.Hits), len(truth))
	}
	if len(a.Hits) < k {
		return
	}
	kth := float64(a.Hits[k-1].Score)
	for _, row := range truth {
		if found[row.ID] {
			continue
		}
		missing := float64(row.Score) - kth
		if limit := math.Max(float64(c.Gap), 2*float64(c.Epsilon)); missing > limit {
			t.Fatalf("%s is missing and exceeds the K-th score by %v; the certificate allows %v: %+v", row.ID, missing, limit, c)
		}
		break // the others score less
	}
}

// TestTiesFallByID: rows that score the same come by id, however deep they lie.
func TestTiesFallByID(t *testing.T) {
	vectors := random(3, 200, 4)
	for r := 40; r < 170; r++ {
		copy(vectors.Row(r), vectors.Row(40))
	}
	for _, sim := range []*toy{{dim: 4, blocks: 1}, {dim: 4, blocks: 1, normalise: true}} {
		w := newWorld(t, sim, vectors)
		q := vectors.Row(40)
		truth := w.exact(t, q, nil)
		for _, p := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived} {
			a := searchRoute(t, w.route(p, func(r *route.Route) { r.Strategy, r.Depth = rerank.Average, 5 }), search.Request{Query: rerank.Query{Vector: q}, K: 3})
			sameHits(t, a.Hits, truth[:3])
			if a.Certificate.Rounds < 2 || a.Certificate.Status != rerank.StatusExact {
				t.Errorf("%s: %+v, want exact after more rounds", p, a.Certificate)
			}
		}
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Strategy, r.Depth, r.Store = rerank.Average, 5, &decorated{Store: w.store, lists: inexact}
		})
		if c := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: q}, K: 3}).Certificate; c.Rounds != 1 || c.Stop != rerank.StopFixed {
			t.Errorf("over approximate lists: %+v, want one round", c)
		}
	}
}

func TestItemsThatTheTableLacks(t *testing.T) {
	for _, sim := range []*toy{{dim: 6, blocks: 1}, {dim: 6, blocks: 3}, {dim: 6, blocks: 1, grouped: true}} {
		w := newWorld(t, sim, random(4, 90, 6))
		items := len(w.items())
		whole := w.table
		w.table = w.tabulate(t, whole.Features(), items/2)
		q := random(5, 1, 6).Row(0)
		for _, s := range []rerank.Strategy{rerank.PerEmbedding, rerank.Average} {
			a := searchRoute(t, w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Depth = s, 100 }), search.Request{Query: rerank.Query{Vector: q}, K: 9, Explain: true})
			sameHits(t, a.Hits, w.exact(t, q, nil)[:9])
			if a.NotIndexed != items-items/2 || a.Certificate.Candidates != items {
				t.Errorf("%s: %d candidates, %d not in the table; want %d, %d", s, a.Certificate.Candidates, a.NotIndexed, items, items-items/2)
			}
			addUp(t, a.Hits)
		}
		a := searchRoute(t, w.route(route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.Scan }), search.Request{Query: rerank.Query{Vector: q}, K: 9, Filter: even, Explain: true})
		sameHits(t, a.Hits, w.exact(t, q, isEven)[:9])
		if a.NotIndexed == 0 {
			t.Error("the scan found every item in a table of half of them")
		}
		addUp(t, a.Hits)
	}
}

// addUp wants the terms of every hit to add up to its score.
func addUp(t *testing.T, hits []search.Hit) {
	t.Helper()
	for _, h := range hits {
		if h.Explanation == nil {
			t.Fatalf("%s is not explained", h.ID)
		}
		var sum float64
		for _, term := range h.Explanation.Terms {
			sum += float64(term.Gate) * float64(term.Logit)
		}
		if h.Explanation.Score != h.Score || !(math.Abs(sum-float64(h.Score)) <= 1e-5) {
			t.Errorf("%s: terms add up to %v, explained score %v, score %v", h.ID, sum, h.Explanation.Score, h.Score)
		}
	}
}

// TestNotFinite: an item whose vector is not finite ranks last and is counted.
func TestNotFinite(t *testing.T) {
	vectors := random(6, 30, 4)
	vectors.Row(7)[1] = float32(math.NaN())
	vectors.Row(9)[0] = float32(math.Inf(1))
	w := newWorld(t, &toy{dim: 4, blocks: 1}, vectors)
	q := []float32{1, 1, 1, 1}
	for _, p := range []route.Placement{route.PlacementTable, route.PlacementStored} {
		for _, s := range []rerank.Strategy{rerank.Average, rerank.Scan} {
			if s == rerank.Scan && p == route.PlacementStored {
				continue
			}
			a := searchRoute(t, w.route(p, func(r *route.Route) { r.Strategy, r.Depth = s, 50 }), search.Request{Query: rerank.Query{Vector: q}, K: 30})
			if a.NotFinite != 2 || a.Hits[28].ID != rerank.UintID(7) || a.Hits[29].ID != rerank.UintID(9) {
				t.Errorf("%s, %s: %d not finite, last hits %v and %v; want rows 7 and 9", p, s, a.NotFinite, a.Hits[28], a.Hits[29])
			}
		}
	}
}

func TestPayloadAndExplanation(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 2}, random(7, 60, 6))
	q := random(8, 1, 6).Row(0)
	for _, p := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived} {
		for _, s := range rerank.Strategies() {
			if s == rerank.Scan && p != route.PlacementTable {
				continue
			}
			a := searchRoute(t, w.route(p, func(r *route.Route) { r.Strategy = s }), search.Request{
				Query: rerank.Query{Vector: q}, K: 5, Explain: true, Payload: true, PayloadFields: []string{"n"},
			})
			addUp(t, a.Hits)
			for _, h := range a.Hits {
				if want := fmt.Sprintf(`{"n":%s}`, h.ID); string(h.Payload) != want {
					t.Errorf("%s, %s: payload %s, want %s", p, s, h.Payload, want)
				}
			}
		}
	}
}

func TestEmptyCollection(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 1}, rerank.Matrix{Cols: 4})
	a := searchRoute(t, w.route(route.PlacementStored), search.Request{Query: rerank.Query{Vector: make([]float32, 4)}, K: 5})
	if len(a.Hits) != 0 || a.Certificate.Status != rerank.StatusExact || a.Certificate.Proof != rerank.ProofExhausted {
		t.Errorf("%d hits, %+v; want none, exact because nothing is there", len(a.Hits), a.Certificate)
	}
}

// TestTextIDs: ids that are strings, numbers at the end of their range, and
// strings that look like numbers, are kept apart.
func TestTextIDs(t *testing.T) {
	sim := &toy{dim: 6, blocks: 3}
	w := newWorld(t, sim, random(1, 120, 6))
	for r := range w.owners {
		w.owners[r] = []rerank.ID{
			rerank.TextID(fmt.Sprint(r)), rerank.UintID(math.MaxUint64 - uint64(r)), rerank.IntID(math.MinInt64 + int64(r)), rerank.TextID(fmt.Sprintf("π/%d", r)),
		}[r%4]
	}
	must(t, w.store.Load(collection, embedded.Collection{IDs: w.owners, Fields: []embedded.Field{{Vectors: w.vectors}}}))
	w.table = w.tabulate(t, w.table.Features(), len(w.owners))
	q := random(2, 1, 6).Row(0)
	for _, p := range []route.Placement{route.PlacementTable, route.PlacementStored} {
		a := searchRoute(t, w.route(p, func(r *route.Route) { r.Strategy = rerank.PerEmbedding }), search.Request{Query: rerank.Query{Vector: q}, K: 120, MaxGap: ptr(0)})
		sameHits(t, a.Hits, w.exact(t, q, nil))
	}
}

// Searches that compute features at the same time, and explain them, do not see each other's.
func TestFeaturesOfManySearches(t *testing.T) {
	w := newWorld(t, &toy{dim: 12, blocks: 2}, random(5, 300, 12))
	p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) { r.Strategy, r.Depth, r.MaxRounds = rerank.PerEmbedding, 40, 1 }))
	ask := func(i int) (search.Answer, error) {
		q := search.Request{Route: "r", Query: rerank.Query{Vector: random(uint64(i), 1, 12).Row(0)}, K: 5 + i%7, Explain: i%3 == 0}
		return p.Search(context.Background(), q)
	}
	const queries = 20
	var alone [queries]search.Answer
	for i := range alone {
		var err error
		alone[i], err = ask(i)
		must(t, err)
	}
	var g errgroup.Group
	for n := range 10 * queries {
		g.Go(func() error {
			i := n % queries
			a, err := ask(i)
			if err == nil && !reflect.DeepEqual(a.Hits, alone[i].Hits) {
				err = fmt.Errorf("query %d: %v among others, %v alone", i, a.Hits, alone[i].Hits)
			}
			return err
		})
	}
	must(t, g.Wait())
}
