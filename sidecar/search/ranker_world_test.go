package search_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

var _ ranker.Ranker = (*critic)(nil)

// critic is an exact ranker: R is a function of the query and the item. It scores in batches, and
// counts its items.
type critic struct {
	relevance func(q plugin.Query, it plugin.Item) float32
	wants     plugin.Description
	batch     int // items per batch; 0: all at once
	// before is called with every batch; its error is the ranker's.
	before func(ctx context.Context, batch int, items []plugin.Item) error
	down   error // error of Describe

	mu    sync.Mutex
	items []plugin.Item
	calls int
}

func (j *critic) Describe(context.Context) (plugin.Description, error) { return j.wants, j.down }

func (j *critic) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	out := ranker.Result{Version: j.wants.Version, Scores: make([]float32, len(items))}
	for i := range out.Scores {
		out.Scores[i] = float32(math.NaN())
	}
	size := j.batch
	if size == 0 {
		size = len(items)
	}
	for from := 0; from < len(items); from += size {
		batch := items[from:min(from+size, len(items))]
		j.mu.Lock()
		j.items = append(j.items, batch...)
		j.calls++
		n := j.calls
		j.mu.Unlock()
		out.Calls += len(batch)
		if j.before != nil {
			if err := j.before(ctx, n, batch); err != nil {
				return out, err
			}
		}
		for i, it := range batch {
			out.Scores[from+i] = j.relevance(q, it)
		}
	}
	return out, nil
}

func (j *critic) asked() []plugin.Item {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.items)
}

// number returns an item's number.
func number(it plugin.Item) int {
	n, _ := it.ID.Uint64()
	return int(n)
}

// opinion is a relevance that hardly depends on any vector: a hash of the item.
func opinion(_ plugin.Query, it plugin.Item) float32 {
	rng := rand.New(rand.NewPCG(uint64(number(it)), 11))
	return float32(rng.IntN(1000)) / 8 // some tie
}

// judged returns the first k of the items in the order of a relevance.
func judged(ids []rerank.ID, k int, relevance func(rerank.ID) float32) []rerank.Scored {
	top := rerank.NewTopK(k)
	for _, id := range ids {
		top.Push(rerank.Scored{ID: id, Score: relevance(id)})
	}
	return top.Sorted()
}

func opinionOf(id rerank.ID) float32 { return opinion(plugin.Query{}, plugin.Item{ID: id}) }

// ranking sets a route's ranker.
func ranking(j ranker.Ranker, calls, rounds int) func(*route.Route) {
	return func(r *route.Route) { r.Ranker, r.RankerName, r.Calls, r.RankRounds = j, "critic", calls, rounds }
}

// relevances is a world of relevance-based embeddings: R(x, q) for items and for queries that are
// named by their text.
type relevances struct {
	*world
	sim   *rbe.Similarity
	truth func(q string, item int) float32
}

// newRelevances makes an R of a few directions, bent so that no inner product equals R, and fits a
// CUR approximation to it.
func newRelevances(t testing.TB, items, supports int) *relevances {
	t.Helper()
	const dim, queries = 12, 40
	x := random(5, items, dim)
	truth := func(q string, item int) float32 {
		var n uint64
		_, err := fmt.Sscanf(q, "query %d", &n)
		must(t, err)
		v := random(100+n, 1, dim).Row(0)
		var sum, other float64
		for i, w := range v {
			sum += float64(w) * float64(x.Row(item)[i])
			other += math.Abs(float64(w) - float64(x.Row(item)[i]))
		}
		return float32(4/(1+math.Exp(-sum/2)) - other/16)
	}
	scores := rerank.NewMatrix(items, queries)
	for i := range items {
		for q := range queries {
			scores.Row(i)[q] = truth(fmt.Sprintf("query %d", q), i)
		}
	}
	o := fitrbe.DefaultOptions()
	o.Supports, o.Lambda, o.Judged = supports, 0.1, nil
	fitted, err := fitrbe.Fit(t.Context(), scores, o)
	must(t, err)
	uintID := func(n int) rerank.ID { return rerank.UintID(uint64(n)) }
	sim, err := rbe.New(fitted.Config(uintID, uintID), fitted.Tensors)
	must(t, err)
	base := rerank.NewMatrix(items, len(fitted.SupportQueries))
	for i := range items {
		for c, q := range fitted.SupportQueries {
			base.Row(i)[c] = scores.Row(i)[q]
		}
	}
	return &relevances{world: newWorld(t, sim, base), sim: sim, truth: truth}
}

// critic is the ranker itself.
func (r *relevances) critic() *critic {
	return &critic{
		relevance: func(q plugin.Query, it plugin.Item) float32 { return r.truth(q.Text, number(it)) },
		wants:     plugin.Description{Version: "1", Text: true},
	}
}

// best returns the first k items of a query by R.
func (r *relevances) best(q string, k int) []rerank.Scored {
	return judged(r.items(), k, func(id rerank.ID) float32 {
		n, _ := id.Uint64()
		return r.truth(q, int(n))
	})
}

// found returns the share of the first k items by R among the hits.
func (r *relevances) found(q string, hits []search.Hit) float64 {
	n := 0
	for _, want := range r.best(q, len(hits)) {
		if slices.ContainsFunc(hits, func(h search.Hit) bool { return h.ID == want.ID }) {
			n++
		}
	}
	return float64(n) / float64(len(hits))
}

// wantOrder checks the order of a ranker's answer: first ranked hits by R, then the others by φ,
// and no item twice.
func wantOrder(t testing.TB, a search.Answer) {
	t.Helper()
	seen := map[rerank.ID]bool{}
	for i, h := range a.Hits {
		if seen[h.ID] {
			t.Fatalf("hit %d is %s, which was one before", i, h.ID)
		}
		seen[h.ID] = true
		if i == 0 {
			continue
		}
		last := a.Hits[i-1]
		switch {
		case h.Ranked && !last.Ranked:
			t.Fatalf("hit %d has the ranker's score and the one before has not", i)
		case h.Ranked == last.Ranked && rerank.Better(rerank.Scored{ID: h.ID, Score: h.Score}, rerank.Scored{ID: last.ID, Score: last.Score}):
			t.Fatalf("hit %d, %s with %v, comes behind %s with %v", i, h.ID, h.Score, last.ID, last.Score)
		}
	}
}

// payloadNumber reads "n" of a payload.
func payloadNumber(t testing.TB, payload json.RawMessage) int {
	t.Helper()
	var fields struct{ N int }
	must(t, json.Unmarshal(payload, &fields))
	return fields.N
}
