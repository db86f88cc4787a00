package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// excludeBest returns the ids of the first n items and of items that do not exist, and the other
// items.
func excludeBest(truth []rerank.Scored, n int) (excluded []rerank.ID, rest []rerank.Scored) {
	for _, row := range truth[:n] {
		excluded = append(excluded, row.ID)
	}
	return append(excluded, rerank.UintID(1<<40), rerank.TextID("nothing")), truth[n:]
}

// TestExcludedItems: in every placement and by every strategy, the answer is the answer over the
// other items, and it is exact where it is exact without exclusions.
func TestExcludedItems(t *testing.T) {
	for name, sim := range map[string]*toy{
		"inner product":    {dim: 6, blocks: 1},
		"mixture":          {dim: 6, blocks: 3, normalise: true},
		"grouped":          {dim: 6, blocks: 1, grouped: true},
		"grouped, mixture": {dim: 6, blocks: 3, grouped: true},
	} {
		w := newWorld(t, sim, random(1, 300, 6))
		for _, p := range everyPlacement {
			for _, s := range rerank.Strategies() {
				if s == rerank.Scan && p != route.PlacementTable {
					continue
				}
				for filter, keep := range map[string]func(int) bool{"": nil, even: isEven} {
					t.Run(fmt.Sprintf("%s/%s/%s/filter %t", name, p, s, filter != ""), func(t *testing.T) {
						r := w.route(p, func(r *route.Route) { r.Strategy = s })
						exact := s == rerank.Scan || s == rerank.Average && sim.blocks == 1 && (filter == "" || !sim.grouped)
						withoutBest(t, w, r, search.Request{K: 7, Filter: filter}, keep, exact)
					})
				}
			}
		}
	}
}

// withoutBest excludes 1, 20 and nearly all of the best items of a few queries.
func withoutBest(t *testing.T, w *world, r *route.Route, ask search.Request, keep func(int) bool, exact bool) {
	t.Helper()
	queries := random(2, 3, w.vectors.Cols)
	for i := range queries.Rows {
		ask.Query.Vector = queries.Row(i)
		truth := w.exact(t, ask.Query.Vector, keep)
		for _, n := range []int{1, 20, len(truth) - 8} {
			var rest []rerank.Scored
			ask.Exclude, rest = excludeBest(truth, n)
			a := searchRoute(t, r, ask)
			judge(t, a, rest, ask.K)
			if exact && a.Certificate.Status != rerank.StatusExact {
				t.Errorf("%d excluded: %+v, want exact", n, a.Certificate)
			}
		}
	}
}

// TestExcludedItemsAreNotRanked: a ranker is asked about other items only, in any number of
// rounds, and the support items of its model are no exception.
func TestExcludedItemsAreNotRanked(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	excluded, rest := excludeBest(w.exact(t, q.Vector, nil), 30)
	var ids []rerank.ID
	for _, h := range rest {
		ids = append(ids, h.ID)
	}
	for _, placement := range everyPlacement {
		j := &critic{relevance: opinion, wants: plugin.Description{Version: "3"}, batch: 8}
		r := w.route(placement, ranking(j, 90, 1), func(r *route.Route) { r.Strategy, r.Depth = rerank.Average, 90 })
		a := searchRoute(t, r, search.Request{Query: q, K: 10, Exclude: excluded})
		sameHits(t, a.Hits, judged(ids, 10, opinionOf))
		if len(j.asked()) != len(rest) {
			t.Errorf("%s: the ranker scored %d items, want the %d others", placement, len(j.asked()), len(rest))
		}
	}
	relevant := newRelevances(t, 120, 12)
	best := relevant.best("query 3", 120)
	excluded, rest = excludeBest(best, 60)
	r := relevant.route(route.PlacementTable, ranking(relevant.critic(), 120, 4), func(r *route.Route) { r.Strategy, r.Depth = rerank.Average, 120 })
	a := searchRoute(t, r, search.Request{Query: rerank.Query{Text: "query 3"}, K: 10, Exclude: excluded})
	for _, h := range a.Hits {
		if slices.Contains(excluded, h.ID) {
			t.Errorf("the answer has %s, which is excluded", h.ID)
		}
	}
	sameHits(t, a.Hits, rest[:10])
}

// TestFilterThatExcludes: ids that a filter excludes are excluded like ids of the request, so that
// a scan need not ask the store which rows the filter leaves.
func TestFilterThatExcludes(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	store := &decorated{Store: w.store, before: func(_ context.Context, call string) error {
		return fmt.Errorf("%w: called for %s", adapters.ErrStore, call)
	}}
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Store = rerank.Scan, store })
	q := random(2, 1, 6).Row(0)
	truth := w.exact(t, q, nil)
	filter := fmt.Sprintf(`{"must_not":[{"has_id":[%s,%s]}]}`, truth[0].ID, truth[2].ID)
	a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: q}, K: 5, Filter: filter, Exclude: []rerank.ID{truth[1].ID}})
	sameHits(t, a.Hits, truth[3:8])
	if a.Certificate.Status != rerank.StatusExact || a.Degraded != nil {
		t.Errorf("%+v, degraded %+v", a.Certificate, a.Degraded)
	}
}

// TestExcludedFromTheStoresOwnAnswer: an answer that is not rescored has no excluded item either.
func TestExcludedFromTheStoresOwnAnswer(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	store := &decorated{Store: w.store, before: func(_ context.Context, call string) error {
		if call == "plain" || call == "describe" {
			return nil
		}
		return fmt.Errorf("%w: called for %s", adapters.ErrStore, call)
	}}
	r := w.route(route.PlacementDerived, func(r *route.Route) { r.Strategy, r.Store, r.Failure = rerank.PerEmbedding, store, route.FailOpen })
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	all := searchRoute(t, r, search.Request{Query: q, K: 20})
	a := searchRoute(t, r, search.Request{Query: q, K: 10, Exclude: []rerank.ID{all.Hits[0].ID, all.Hits[3].ID}})
	if all.Degraded == nil || a.Degraded == nil {
		t.Fatalf("degraded %+v and %+v", all.Degraded, a.Degraded)
	}
	want := slices.Concat(all.Hits[1:3], all.Hits[4:12])
	if !slices.EqualFunc(a.Hits, want, func(a, b search.Hit) bool { return a.ID == b.ID && a.Score == b.Score }) {
		t.Errorf("the answer is %v, want %v", a.Hits, want)
	}
}

// TestBadExclusions: too many ids, and ids that the collection cannot hold, are named.
func TestBadExclusions(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 30, 6))
	p := pipe(t, w.route(route.PlacementTable))
	for _, ids := range [][]rerank.ID{make([]rerank.ID, plan.MaxExclude+1), {rerank.UintID(1), {}}} {
		_, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: w.vectors.Row(0)}, K: 1, Exclude: ids})
		var field *plan.FieldError
		if !errors.As(err, &field) || field.Field != "exclude_ids" {
			t.Errorf("%d ids: %v, want a *FieldError of exclude_ids", len(ids), err)
		}
	}
}

// TestLiveTableWithoutItems: items of a table that were deleted stay out.
func TestLiveTableWithoutItems(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 90, 6))
	live := w.live(t, 90)
	q := random(2, 1, 6).Row(0)
	truth := w.exact(t, q, nil)
	must(t, live.Delete([]rerank.ID{truth[1].ID}))
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Table, r.Live, r.Strategy = nil, live, rerank.Scan })
	a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: q}, K: 5, Exclude: []rerank.ID{truth[0].ID, truth[1].ID, truth[3].ID}})
	sameHits(t, a.Hits, []rerank.Scored{truth[2], truth[4], truth[5], truth[6], truth[7]})
}

// TestHistory: a query of items is the query of their weighted mean, and the answer is without
// them, unless the request keeps them.
func TestHistory(t *testing.T) {
	for name, sim := range map[string]*toy{
		"inner product": {dim: 6, blocks: 1},
		"unit vectors":  {dim: 6, blocks: 3, normalise: true},
		"grouped":       {dim: 6, blocks: 1, grouped: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sim, random(1, 300, 6))
			items := w.items()
			history := []plan.WeightedID{{ID: items[3], Weight: 1}, {ID: items[9], Weight: 0.25}, {ID: rerank.UintID(1 << 40), Weight: 5}, {ID: items[3], Weight: 0.5}}
			mean := make([]float32, 6)
			for row, id := range w.owners { // the sum over the weights is the same query
				for _, h := range history {
					x := slices.Clone(w.vectors.Row(row))
					if sim.normalise {
						rerank.Normalise(x)
					}
					rows := float32(1)
					if sim.grouped {
						rows = 3
					}
					for i := range x {
						if id == h.ID {
							mean[i] += float32(h.Weight) * x[i] / rows / 1.75
						}
					}
				}
			}
			truth := w.exact(t, mean, nil)
			r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.Scan })
			a := searchRoute(t, r, search.Request{History: history, K: 10, KeepHistory: true})
			judge(t, a, truth, 10)
			a = searchRoute(t, r, search.Request{History: history, K: 10, Exclude: []rerank.ID{truth[5].ID}})
			judge(t, a, slices.DeleteFunc(slices.Clone(truth), func(h rerank.Scored) bool {
				return h.ID == items[3] || h.ID == items[9] || h.ID == truth[5].ID
			}), 10)
			scores, err := pipe(t, r).Score(t.Context(), search.ScoreRequest{Route: "r", History: history, IDs: []rerank.ID{truth[0].ID}})
			if must(t, err); !(math.Abs(float64(scores.Scores[0]-truth[0].Score)) <= 1e-5) {
				t.Errorf("the best item scores %v, want %v", scores.Scores[0], truth[0].Score)
			}
		})
	}
}

// TestBadHistories: what makes no query is named.
func TestBadHistories(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 30, 6))
	p := pipe(t, w.route(route.PlacementStored))
	one := plan.WeightedID{ID: rerank.UintID(1), Weight: 1}
	for name, r := range map[string]search.Request{
		"too many":        {History: slices.Repeat([]plan.WeightedID{one}, plan.MaxHistory+1)},
		"no id":           {History: []plan.WeightedID{{Weight: 1}}},
		"negative weight": {History: []plan.WeightedID{one, {ID: one.ID, Weight: -1}}},
		"no weight":       {History: []plan.WeightedID{{ID: one.ID}}},
		"not a number":    {History: []plan.WeightedID{{ID: one.ID, Weight: math.NaN()}}},
		"gone":            {History: []plan.WeightedID{{ID: rerank.UintID(1 << 40), Weight: 1}}},
		"a vector too":    {History: []plan.WeightedID{one}, Query: rerank.Query{Vector: w.vectors.Row(0)}},
	} {
		r.Route, r.K = "r", 1
		_, err := p.Search(t.Context(), r)
		var field *plan.FieldError
		if !errors.As(err, &field) || field.Field != "query.item_ids" {
			t.Errorf("%s: %v, want a *FieldError of query.item_ids", name, err)
		}
	}
}
