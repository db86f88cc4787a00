package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// TestSupportsMakeTheQuery: without a vector the first calls compute it, and the rest are spent on
// the best candidates; with a vector they are saved. With 0 calls only the support items are
// scored, and the answer is φ's, as if the client had sent their scores.
func TestSupportsMakeTheQuery(t *testing.T) {
	const supports = 10
	w := newRelevances(t, 150, supports)
	q := rerank.Query{Text: "query 77"}
	for _, placement := range everyPlacement {
		t.Run(string(placement), func(t *testing.T) {
			j := w.critic()
			r := w.route(placement, ranking(j, 30, 1))
			p := pipe(t, r)
			ask := func(change func(*search.Request)) (search.Answer, []plugin.Item) {
				before := len(j.asked())
				req := search.Request{Route: "r", Query: q, K: 5}
				change(&req)
				a, err := p.Search(t.Context(), req)
				must(t, err)
				wantOrder(t, a)
				return a, j.asked()[before:]
			}
			a, asked := ask(func(*search.Request) {})
			if len(asked) != 30 || a.Ranking.Calls != 30 || a.Ranking.Budget != 30 || a.Ranking.Cut != 0 {
				t.Errorf("%d items asked, %+v", len(asked), a.Ranking)
			}
			var made []float32
			for i, id := range w.sim.Supports() {
				if asked[i].ID != id {
					t.Errorf("item %d asked of is %s, support item %s", i, asked[i].ID, id)
				}
				made = append(made, w.truth(q.Text, number(asked[i])))
			}
			for _, h := range a.Hits {
				if n, _ := h.ID.Uint64(); !h.Ranked || h.Score != w.truth(q.Text, int(n)) {
					t.Errorf("%+v", h)
				}
			}
			phi := w.exact(t, made, nil)
			alone, asked := ask(func(r *search.Request) { none := 0; r.Calls = &none })
			if len(asked) != supports || alone.Ranking.Calls != supports || alone.Ranking.Budget != supports || alone.Ranking.Rounds != 0 {
				t.Errorf("0 calls: %d items asked, %+v", len(asked), alone.Ranking)
			}
			sameHits(t, alone.Hits, phi[:5])
			if placement == route.PlacementTable && alone.Certificate.Status != rerank.StatusExact {
				t.Errorf("the similarity's own answer: %+v", alone.Certificate)
			}
			given, asked := ask(func(r *search.Request) { r.Query.Vector = made })
			if len(asked) != 30 || given.Ranking.Calls != 30 {
				t.Errorf("a vector that is given: %d items asked, %+v", len(asked), given.Ranking)
			}
			for i, it := range asked {
				if it.ID != phi[i].ID {
					t.Errorf("item %d asked of is %s, by φ it is %s", i, it.ID, phi[i].ID)
				}
			}
		})
	}
}

// TestSupportsThatFail: without the support items' scores there is no vector and therefore no
// answer.
func TestSupportsThatFail(t *testing.T) {
	w := newRelevances(t, 120, 8)
	for _, c := range []struct {
		name   string
		change func(*critic, *decorated)
		want   error
		says   string
	}{
		{"down", func(j *critic, _ *decorated) { j.down = ranker.ErrUnavailable }, failure.ErrDegraded, "no vector"},
		{"no score", func(j *critic, _ *decorated) {
			j.relevance = func(_ plugin.Query, it plugin.Item) float32 {
				if it.ID == w.sim.Supports()[2] {
					return float32(math.NaN())
				}
				return 1
			}
		}, ranker.ErrAnswer, "no score"},
		{"cannot read it", func(j *critic, _ *decorated) {
			j.before = func(context.Context, int, []plugin.Item) error { return ranker.ErrQuery }
		}, ranker.ErrQuery, ""},
		{"gone", func(j *critic, s *decorated) {
			j.wants.Payload = true
			s.rows = func(rows adapters.Rows) adapters.Rows {
				rows.IDs, rows.Payloads = rows.IDs[1:], rows.Payloads[1:]
				return rows
			}
		}, failure.ErrDegraded, "1 of the 8 support items"},
		{"not fetched", func(j *critic, s *decorated) {
			j.wants.Payload = true
			s.before = failing(adapters.ErrUnavailable, "payload")
		}, failure.ErrDegraded, "rows for ranker"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, store := w.critic(), &decorated{Store: w.store}
			c.change(j, store)
			r := w.route(route.PlacementTable, ranking(j, 30, 1), func(r *route.Route) { r.Store = store })
			_, err := pipe(t, r).Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Text: "query 3"}, K: 5})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestSupportsAreHeld: the rows of the support items are read once for many searches.
func TestSupportsAreHeld(t *testing.T) {
	w := newRelevances(t, 120, 8)
	j := w.critic()
	j.wants.PayloadFields = []string{"n"}
	fetches := 0
	store := &decorated{Store: w.store, before: func(_ context.Context, call string) error {
		if call == "payload" {
			fetches++
		}
		return nil
	}}
	p := pipe(t, w.route(route.PlacementTable, ranking(j, 20, 1), func(r *route.Route) { r.Store = store }))
	for i := range 5 {
		_, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Text: fmt.Sprintf("query %d", i)}, K: 5})
		must(t, err)
	}
	if fetches != 6 {
		t.Errorf("%d fetches of payload by 5 searches, want one of the supports and one each of candidates", fetches)
	}
	for _, it := range j.asked() {
		if payloadNumber(t, it.Payload) != number(it) {
			t.Fatalf("item %s has payload %s", it.ID, it.Payload)
		}
	}
}

// TestRoundsFindMore: with equal calls, several rounds find more of the true best items than one
// round, and never spend more calls.
func TestRoundsFindMore(t *testing.T) {
	w := newRelevances(t, 600, 8)
	const calls, queries = 80, 30
	for _, placement := range everyPlacement {
		var found [3]float64
		for i, rounds := range []int{1, 2, 4} {
			j := w.critic()
			p := pipe(t, w.route(placement, ranking(j, calls, rounds)))
			for n := range queries {
				q := fmt.Sprintf("query %d", 200+n)
				before := len(j.asked())
				a, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Text: q}, K: 20, Explain: n == 0})
				must(t, err)
				wantOrder(t, a)
				asked := j.asked()[before:]
				if len(asked) > calls || a.Ranking.Calls != len(asked) || a.Ranking.Rounds > rounds {
					t.Fatalf("%d items asked, %+v", len(asked), a.Ranking)
				}
				distinct := map[rerank.ID]bool{}
				for _, it := range asked {
					distinct[it.ID] = true
				}
				if len(distinct) != len(asked) {
					t.Fatalf("%d items asked, %d of them distinct", len(asked), len(distinct))
				}
				found[i] += w.found(q, a.Hits) / queries
			}
		}
		t.Logf("%s: %.3f of the best 20 in one round, %.3f in two, %.3f in four", placement, found[0], found[1], found[2])
		if found[2] <= found[0] || found[1] <= found[0] {
			t.Errorf("%s: rounds find less", placement)
		}
	}
}

// TestRoundsOutliveTheStore: if a later round cannot search, its calls are spent on the first
// round's candidates.
func TestRoundsOutliveTheStore(t *testing.T) {
	w := newRelevances(t, 300, 8)
	searches := 0
	store := &decorated{Store: w.store, before: func(_ context.Context, call string) error {
		if call == "search" || call == "plain" {
			if searches++; searches > 1 {
				return adapters.ErrUnavailable
			}
		}
		return nil
	}}
	j := w.critic()
	r := w.route(route.PlacementTable, ranking(j, 40, 3), func(r *route.Route) { r.Store = store })
	a := searchRoute(t, r, search.Request{Query: rerank.Query{Text: "query 9"}, K: 10})
	wantOrder(t, a)
	if a.Degraded != nil || a.Ranking.Cut != 0 || !a.Hits[9].Ranked || a.Ranking.Calls <= 20 {
		t.Errorf("%+v, %+v", a.Ranking, a.Degraded)
	}
}

// TestSupportsJoin: a support item among the true best is a hit, whatever its φ, and under a filter
// only if it passes.
func TestSupportsJoin(t *testing.T) {
	w := newRelevances(t, 200, 8)
	favourite := w.sim.Supports()[3]
	for _, placement := range everyPlacement {
		j := w.critic()
		j.relevance = func(q plugin.Query, it plugin.Item) float32 {
			if it.ID == favourite {
				return 100
			}
			return -w.truth(q.Text, number(it))
		}
		r := w.route(placement, ranking(j, 12, 1), func(r *route.Route) { r.Depth = 5 })
		a := searchRoute(t, r, search.Request{Query: rerank.Query{Text: "query 5"}, K: 2, Explain: true})
		wantOrder(t, a)
		if a.Hits[0].ID != favourite || a.Hits[0].Score != 100 || !a.Hits[0].Ranked || a.Hits[0].Explanation == nil {
			t.Errorf("%s: %+v", placement, a.Hits)
		}
	}
}

// TestRankedRequests: the ranker settings that a request may have. Others are refused before any
// call.
func TestRankedRequests(t *testing.T) {
	w := newRelevances(t, 60, 8)
	plain := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 60, 6))
	number := func(n int) *int { return &n }
	some := float32(1)
	text, vector := rerank.Query{Text: "query 1"}, rerank.Query{Vector: make([]float32, 6)}
	readsText := ranking(w.critic(), 20, 1)
	for _, c := range []struct {
		name  string
		route *route.Route
		r     search.Request
		field string
	}{
		{"more calls than the route's", w.route(route.PlacementTable, readsText), search.Request{Query: text, Calls: number(21)}, "calls"},
		{"fewer than none", w.route(route.PlacementTable, readsText), search.Request{Query: text, Calls: number(-1)}, "calls"},
		{"fewer than the supports", w.route(route.PlacementTable, readsText), search.Request{Query: text, Calls: number(7)}, "calls"},
		{"too many rounds", w.route(route.PlacementTable, readsText), search.Request{Query: text, Rounds: 17}, "rounds"},
		{"a gap", w.route(route.PlacementTable, readsText), search.Request{Query: text, MaxGap: &some}, "max_gap"},
		{"no text", w.route(route.PlacementTable, readsText), search.Request{}, "query.text"},
		{"no vector", plain.route(route.PlacementTable, readsText), search.Request{Query: text}, "query.vector"},
		{"no text for another kind", plain.route(route.PlacementTable, readsText), search.Request{Query: vector}, "query.text"},
		{"rounds of a kind that cannot be fitted", plain.route(route.PlacementTable, readsText), search.Request{Query: vector, Rounds: 2}, "rounds"},
		{"calls without a ranker", plain.route(route.PlacementTable), search.Request{Query: vector, Calls: number(1)}, "calls"},
		{"rounds without a ranker", plain.route(route.PlacementTable), search.Request{Query: vector, Rounds: 1}, "rounds"},
		{"text without a ranker", plain.route(route.PlacementTable), search.Request{Query: rerank.Query{Vector: vector.Vector, Text: "a"}}, "query.text"},
		{"context without a ranker", plain.route(route.PlacementTable), search.Request{Query: rerank.Query{Vector: vector.Vector, Context: map[string]float32{"a": 1}}}, "query.context"},
		{"no vector and no ranker", w.route(route.PlacementTable), search.Request{}, "query.vector"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.Route, c.r.K = "r", 5
			_, err := pipe(t, c.route).Search(t.Context(), c.r)
			var field *plan.FieldError
			if !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("%v, want field %s", err, c.field)
			}
		})
	}
}

// TestRankedRoutes: a route whose calls cannot be spent is refused at the start, whether or not its
// ranker runs.
func TestRankedRoutes(t *testing.T) {
	w := newRelevances(t, 60, 8)
	plain := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 60, 6))
	some := float32(1)
	named := func(calls, rounds int) func(*route.Route) { return ranking(nil, calls, rounds) }
	for name, c := range map[string]struct {
		route *route.Route
		says  string
	}{
		"calls for the supports alone": {w.route(route.PlacementTable, named(8, 1)), "calls is 8 and its model \"toy\" has 8 support items"},
		"rounds of a kind that cannot": {plain.route(route.PlacementTable, named(9, 2)), "rank_rounds is 2"},
		"too many rounds":              {w.route(route.PlacementTable, named(9, 17)), "rank_rounds is 17"},
		"calls below 0":                {plain.route(route.PlacementTable, named(-1, 1)), "calls is -1"},
		"a gap":                        {plain.route(route.PlacementTable, named(9, 1), func(r *route.Route) { r.MaxGap = &some }), "max_gap"},
	} {
		if _, err := search.New([]*route.Route{c.route}, search.Options{}); !errors.Is(err, route.ErrSetup) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoMixture: in every answer, ranked hits come before the others, and each hit has a score of
// its own kind, whatever is asked and whatever fails.
func TestNoMixture(t *testing.T) {
	w := newRelevances(t, 150, 8)
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 3))
		j := w.critic()
		j.batch = 1 + rng.IntN(12)
		stop := rng.IntN(10)
		j.before = func(_ context.Context, batch int, _ []plugin.Item) error {
			if stop > 3 && batch >= stop {
				return fmt.Errorf("%w: by order of the test", ranker.ErrUnavailable)
			}
			return nil
		}
		calls := 9 + rng.IntN(60)
		r := w.route(everyPlacement[rng.IntN(3)], ranking(j, calls, 1+rng.IntN(4)), func(r *route.Route) {
			r.Failure = []route.FailurePolicy{route.FailOpen, route.FailClosed}[rng.IntN(2)]
			r.Depth = 1 + rng.IntN(80)
		})
		req := search.Request{Route: "r", Query: rerank.Query{Text: fmt.Sprintf("query %d", 300+rng.IntN(50))}, K: 1 + rng.IntN(40), Explain: rng.IntN(2) == 0}
		if rng.IntN(3) == 0 {
			req.Filter = even
		}
		a, err := pipe(t, r).Search(t.Context(), req)
		if err != nil {
			if !errors.Is(err, failure.ErrDegraded) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		wantOrder(t, a)
		wantScores(t, w, req, a)
		if len(j.asked()) > calls || a.Ranking.Calls != len(j.asked()) {
			t.Fatalf("seed %d: %d items asked of %d, %+v", seed, len(j.asked()), calls, a.Ranking)
		}
		if !slices.ContainsFunc(a.Hits, func(h search.Hit) bool { return h.Ranked }) != (a.Degraded != nil) && len(a.Hits) > 0 {
			t.Fatalf("seed %d: %+v, degraded %+v", seed, a.Hits, a.Degraded)
		}
	}
}

// wantScores compares each hit's score with R, or with φ of the query that the support items make.
func wantScores(t *testing.T, w *relevances, req search.Request, a search.Answer) {
	t.Helper()
	var made []float32
	for _, id := range w.sim.Supports() {
		n, _ := id.Uint64()
		made = append(made, w.truth(req.Query.Text, int(n)))
	}
	phi := map[rerank.ID]float32{}
	for _, h := range w.exact(t, made, nil) {
		phi[h.ID] = h.Score
	}
	for i, h := range a.Hits {
		n, _ := h.ID.Uint64()
		want := phi[h.ID]
		if h.Ranked {
			want = w.truth(req.Query.Text, int(n))
		}
		if d := h.Score - want; d > 1e-4 || d < -1e-4 {
			t.Fatalf("hit %d is %+v, want %v", i, h, want)
		}
		if req.Filter != "" && n/3%2 != 0 {
			t.Fatalf("hit %d is %s, which the filter keeps out", i, h.ID)
		}
		if req.Explain {
			if e := h.Explanation; e == nil || e.Score-phi[h.ID] > 1e-4 || phi[h.ID]-e.Score > 1e-4 {
				t.Fatalf("hit %d is explained by %+v, φ is %v", i, e, phi[h.ID])
			}
		}
	}
}
