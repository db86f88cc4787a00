package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

var everyPlacement = []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived}

// TestRankerOrders: with calls for every item the answer has R's order, wherever candidates come
// from. With fewer calls, it has the best candidates by φ in R's order, followed by the others in
// φ's. The ranker scores exactly that many items.
func TestRankerOrders(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	phi := w.exact(t, q.Vector, nil)
	for _, placement := range everyPlacement {
		for _, strategy := range []rerank.Strategy{rerank.Average, rerank.PerEmbedding, rerank.Scan} {
			if strategy == rerank.Scan && placement != route.PlacementTable {
				continue
			}
			for _, calls := range []int{90, 500, 20, 7} {
				t.Run(fmt.Sprint(placement, strategy, calls), func(t *testing.T) {
					j := &critic{relevance: opinion, wants: plugin.Description{Version: "3"}, batch: 8}
					r := w.route(placement, ranking(j, calls, 1), func(r *route.Route) { r.Strategy, r.Depth = strategy, 90 })
					a := searchRoute(t, r, search.Request{Query: q, K: 10})
					wantOrder(t, a)
					best := min(calls, 90)
					if len(j.asked()) != best || a.Ranking.Calls != best || a.Ranking.Budget != calls || a.Ranking.Rounds != 1 || a.Ranking.Version != "3" || a.Ranking.Ranker != "critic" {
						t.Errorf("%d items asked, %+v", len(j.asked()), a.Ranking)
					}
					var ids []rerank.ID
					for _, h := range phi[:best] {
						ids = append(ids, h.ID)
					}
					want := judged(ids, min(10, best), opinionOf)
					sameHits(t, a.Hits[:len(want)], want)
					if len(a.Hits) != 10 {
						t.Fatalf("%d hits", len(a.Hits))
					}
					sameHits(t, a.Hits[len(want):], phi[len(want):10])
					cut := rank.Ranking{Cut: 10 - len(want)}
					if cut.Cut > 0 {
						cut.Reason = rank.CutBudget
					}
					if a.Ranking.Cut != cut.Cut || a.Ranking.Reason != cut.Reason || a.Degraded != nil {
						t.Errorf("%+v, degraded %+v", a.Ranking, a.Degraded)
					}
					if c := a.Certificate; c.Status != rerank.StatusUnknown || c.Stop == "" || c.Gap < 1e30 || c.Candidates < best {
						t.Errorf("%+v", c)
					}
				})
			}
		}
	}
}

// TestRankerReads: the ranker gets the parts of an item that it asked for and no others, and the
// query as the client sent it.
func TestRankerReads(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 60, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0), Text: "red shoes", Context: map[string]float32{"hour": 12}}
	for name, wants := range map[string]plugin.Description{
		"ids": {}, "payload": {Payload: true}, "fields": {PayloadFields: []string{"n"}}, "vectors": {Vectors: true}, "both": {Payload: true, Vectors: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := &critic{wants: wants}
			j.relevance = func(asked plugin.Query, it plugin.Item) float32 {
				if asked.Text != q.Text || asked.Context["hour"] != 12 || !slices.Equal(asked.Vector, q.Vector) {
					t.Errorf("asked %+v", asked)
				}
				if payload := wants.Payload || len(wants.PayloadFields) > 0; payload != (it.Payload != nil) || payload && payloadNumber(t, it.Payload) != number(it) {
					t.Errorf("item %s has payload %s", it.ID, it.Payload)
				}
				if strings.Contains(string(it.Payload), "even") != wants.Payload {
					t.Errorf("item %s has payload %s", it.ID, it.Payload)
				}
				if wants.Vectors != (it.Vector != nil) || wants.Vectors && !slices.Equal(it.Vector, w.vectors.Row(number(it))) {
					t.Errorf("item %s has vector %v", it.ID, it.Vector)
				}
				return opinion(asked, it)
			}
			r := w.route(route.PlacementTable, ranking(j, 30, 1))
			a := searchRoute(t, r, search.Request{Query: q, K: 10, Payload: true, Explain: true})
			wantOrder(t, a)
			if len(j.asked()) != 30 {
				t.Errorf("%d items asked", len(j.asked()))
			}
			for _, h := range a.Hits {
				phi := w.exact(t, q.Vector, func(row int) bool { return w.owners[row] == h.ID })[0].Score
				if !h.Ranked || payloadNumber(t, h.Payload) != number(plugin.Item{ID: h.ID}) || h.Explanation == nil || h.Explanation.Score-phi > 1e-5 || phi-h.Explanation.Score > 1e-5 {
					t.Errorf("hit %+v, φ is %v", h, phi)
				}
			}
		})
	}
}

// TestRankerFails: an answer says which items the ranker did not score and why, however it fails.
// Scores before the failure count.
func TestRankerFails(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	down := fmt.Errorf("%w: by order of the test", ranker.ErrUnavailable)
	fails := func(from int, err error) func(context.Context, int, []plugin.Item) error {
		return func(_ context.Context, batch int, _ []plugin.Item) error {
			if batch >= from {
				return err
			}
			return nil
		}
	}
	for _, c := range []struct {
		name   string
		critic *critic
		ranked int // ranked hits
		cut    int
		reason string
		closed error // of a fail_closed route
		both   error // of any route
	}{
		{"down", &critic{down: down}, 0, 40, rank.CutFailed, failure.ErrDegraded, nil},
		{"fails", &critic{before: fails(1, down)}, 0, 40, rank.CutFailed, ranker.ErrUnavailable, nil},
		{"fails in the middle", &critic{before: fails(2, down)}, 8, 32, rank.CutFailed, nil, nil},
		{"fails late", &critic{before: fails(3, down)}, 10, 24, rank.CutFailed, nil, nil},
		{"no scores", &critic{relevance: always(math.NaN())}, 0, 40, rank.CutFailed, ranker.ErrAnswer, nil},
		{"infinite scores", &critic{relevance: always(math.Inf(1))}, 0, 40, rank.CutFailed, ranker.ErrAnswer, nil},
		{"scores of some", &critic{relevance: func(q plugin.Query, it plugin.Item) float32 {
			if number(it)%10 > 0 {
				return float32(math.NaN())
			}
			return opinion(q, it)
		}}, -1, -1, rank.CutFailed, nil, nil},
		{"cannot read the query", &critic{before: fails(1, ranker.ErrQuery)}, 0, 0, "", ranker.ErrQuery, ranker.ErrQuery},
	} {
		for _, failed := range []route.FailurePolicy{route.FailOpen, route.FailClosed} {
			t.Run(c.name+"/"+string(failed), func(t *testing.T) {
				j := &critic{relevance: c.critic.relevance, before: c.critic.before, down: c.critic.down, batch: 8}
				if j.relevance == nil {
					j.relevance = opinion
				}
				r := w.route(route.PlacementTable, ranking(j, 40, 1), func(r *route.Route) { r.Failure = failed })
				a, err := pipe(t, r).Search(t.Context(), search.Request{Route: "r", Query: q, K: 10})
				want := c.both
				if want == nil && failed == route.FailClosed {
					want = c.closed
				}
				if want != nil {
					if !errors.Is(err, want) || len(a.Hits) > 0 {
						t.Fatalf("%v, want %v", err, want)
					}
					return
				}
				must(t, err)
				wantOrder(t, a)
				ranked := 0
				for _, h := range a.Hits {
					if h.Ranked {
						ranked++
					}
				}
				if c.ranked >= 0 && (ranked != c.ranked || a.Ranking.Cut != c.cut) || a.Ranking.Reason != c.reason || a.Ranking.Cut == 0 {
					t.Errorf("%d hits ranked, %+v", ranked, a.Ranking)
				}
				if wholly := c.ranked == 0; wholly != (a.Degraded != nil) || wholly && a.Degraded.Reason != failure.Ranker {
					t.Errorf("degraded %+v", a.Degraded)
				}
				if c.ranked == 0 {
					sameHits(t, a.Hits, w.exact(t, q.Vector, nil)[:10])
				}
			})
		}
	}
}

// TestRankerLies: a ranker that returns a wrong number of scores, or changes its version during a
// search, is not trusted.
func TestRankerLies(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	r := w.route(route.PlacementTable, ranking(liar{}, 40, 1))
	a := searchRoute(t, r, search.Request{Query: q, K: 5})
	if a.Degraded == nil || a.Degraded.Reason != failure.Ranker || !strings.Contains(a.Degraded.Detail, "39 scores of 40 items") {
		t.Errorf("%+v", a.Degraded)
	}
	world := newRelevances(t, 120, 8)
	j := &changing{critic: world.critic()}
	r = world.route(route.PlacementTable, ranking(j, 40, 1))
	a = searchRoute(t, r, search.Request{Query: rerank.Query{Text: "query 50"}, K: 5})
	if a.Ranking.Reason != rank.CutFailed || a.Ranking.Version != "1" {
		t.Errorf("two versions in one search: %+v", a.Ranking)
	}
	for _, h := range a.Hits {
		if n, _ := h.ID.Uint64(); h.Ranked && h.Score != world.truth("query 50", int(n)) {
			t.Errorf("%+v has a score of another version", h)
		}
	}
}

// always returns a relevance with a constant score.
func always(score float64) func(plugin.Query, plugin.Item) float32 {
	return func(plugin.Query, plugin.Item) float32 { return float32(score) }
}

type liar struct{}

func (liar) Describe(context.Context) (plugin.Description, error) { return plugin.Description{}, nil }

func (liar) Rank(_ context.Context, _ plugin.Query, items []plugin.Item) (ranker.Result, error) {
	return ranker.Result{Scores: make([]float32, len(items)-1), Calls: len(items)}, nil
}

// changing changes its version, and its scores, with every call.
type changing struct {
	*critic
	calls int
}

func (c *changing) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	c.calls++
	got, err := c.critic.Rank(ctx, q, items)
	got.Version = fmt.Sprint(c.calls)
	for i := range got.Scores {
		got.Scores[i] *= float32(c.calls)
	}
	return got, err
}

// TestRankerDeadline: the scores before the deadline make the answer, which is in time and says
// what is missing. The clock is a bubble's.
func TestRankerDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
		q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
		for _, failed := range []route.FailurePolicy{route.FailOpen, route.FailClosed} {
			j := &critic{relevance: opinion, batch: 8, before: func(ctx context.Context, batch int, _ []plugin.Item) error {
				if batch < 3 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}}
			r := w.route(route.PlacementTable, ranking(j, 40, 1), func(r *route.Route) { r.Timeout, r.Failure = 500*time.Millisecond, failed })
			a := searchRoute(t, r, search.Request{Query: q, K: 20, Payload: true})
			wantOrder(t, a)
			if a.Ranking.Cut != 24 || a.Ranking.Reason != rank.CutDeadline || a.Ranking.Calls != 24 || a.Degraded != nil || !a.Hits[15].Ranked || a.Hits[16].Ranked || a.Hits[19].Payload == nil {
				t.Errorf("%s: %+v, %+v", failed, a.Ranking, a.Degraded)
			}
			ctx, cancel := context.WithCancel(t.Context())
			j.before = func(context.Context, int, []plugin.Item) error {
				cancel()
				return ctx.Err()
			}
			if _, err := pipe(t, r).Search(ctx, search.Request{Route: "r", Query: q, K: 5}); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that went away: %v", err)
			}
		}
	})
}

// TestRankerGone: an item that is no longer in the collection is no hit, and costs no call.
func TestRankerGone(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	gone := w.exact(t, q.Vector, nil)[0].ID
	store := &decorated{Store: w.store}
	store.rows = func(rows adapters.Rows) adapters.Rows {
		if i := slices.Index(rows.IDs, gone); i >= 0 {
			rows.IDs = slices.Delete(rows.IDs, i, i+1)
			for f, m := range rows.Vectors {
				rows.Vectors[f] = rerank.Matrix{Rows: m.Rows - 1, Cols: m.Cols, Data: slices.Concat(m.Data[:i*m.Cols], m.Data[(i+1)*m.Cols:])}
			}
		}
		return rows
	}
	j := &critic{relevance: opinion, wants: plugin.Description{Vectors: true}}
	r := w.route(route.PlacementTable, ranking(j, 40, 1), func(r *route.Route) { r.Store, r.Depth = store, 90 })
	a := searchRoute(t, r, search.Request{Query: q, K: 90})
	wantOrder(t, a)
	if a.Ranking.Calls != 40 || a.Ranking.Reason != rank.CutBudget || len(a.Hits) != 89 || slices.ContainsFunc(a.Hits, func(h search.Hit) bool { return h.ID == gone }) {
		t.Errorf("%d hits, %+v", len(a.Hits), a.Ranking)
	}
}

// TestRankerOfGroups: an item with several rows is scored once, by its first row, and is one hit.
func TestRankerOfGroups(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1, grouped: true}, random(1, 90, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	for _, placement := range everyPlacement {
		j := &critic{wants: plugin.Description{Payload: true, Vectors: true}}
		j.relevance = func(asked plugin.Query, it plugin.Item) float32 {
			first := 3 * (number(it) - 1000)
			if payloadNumber(t, it.Payload) != first || !slices.Equal(it.Vector, w.vectors.Row(first)) {
				t.Errorf("item %s has row %s", it.ID, it.Payload)
			}
			return opinion(asked, it)
		}
		a := searchRoute(t, w.route(placement, ranking(j, 30, 1)), search.Request{Query: q, K: 8, Payload: true})
		wantOrder(t, a)
		sameHits(t, a.Hits, judged(w.items(), 8, opinionOf))
		if len(j.asked()) != 30 || a.Ranking.Calls != 30 {
			t.Errorf("%s: %d items asked, %+v", placement, len(j.asked()), a.Ranking)
		}
	}
}
