package retrieve

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Plain returns the store's own answer to the query vector: its first K items in its own
// order. depth is the number of rows of the first search. If items own several rows, Plain
// searches deeper until it has K items.
func Plain(ctx context.Context, v route.View, r plan.Request) (hits []rerank.Scored, depth int, err error) {
	ctx, s := span.StoreCall(ctx, "fallback", "search", v.Collection)
	defer s.End()
	owner := v.OwnerIn(v.Collection)
	first := plainDepth(v, r, owner)
	for depth := first; ; depth = min(4*depth, v.MaxDepth) {
		probes := []rerank.Probe{{Vector: r.Query.Vector, Depth: depth}}
		lists, err := v.Store.Search(ctx, adapters.SearchRequest{
			Collection: v.Collection, Vector: v.Vector, Probes: probes, Filter: r.Filter, Exclude: r.Exclude, Exact: v.ExactSearch,
			UnitVectors: v.UnitVectors, Owner: owner, Consistency: v.Consistency, Partitions: r.Partitions,
		})
		if err == nil {
			err = checkLists(v, probes, lists, owner)
		}
		if err != nil {
			span.Fail(ctx, s, err)
			return nil, first, err
		}
		hits, err := firstItems(v, lists[0], owner, r.K)
		if err != nil || owner == "" || len(hits) >= r.K || lists[0].Exhausted || depth >= v.MaxDepth {
			return hits, first, err
		}
	}
}

// plainDepth returns how many rows the first search asks for: more than K if items own several
// rows.
func plainDepth(v route.View, r plan.Request, owner string) int {
	if owner != "" {
		return min(4*r.K, v.MaxDepth)
	}
	return min(r.K, v.MaxDepth)
}

// firstItems returns the first k items of a list, each with its best row's score.
func firstItems(v route.View, l rerank.List, owner string, k int) ([]rerank.Scored, error) {
	keys := l.IDs
	if owner != "" {
		keys = l.Owners
	}
	seen := NewIDSet(len(keys))
	var hits []rerank.Scored
	for i, id := range keys {
		fresh, _ := seen.Add(id, 0)
		if !fresh && owner == "" {
			return nil, broken(v, "its list has the id %q twice", id)
		}
		if fresh && len(hits) < k {
			hits = append(hits, rerank.Scored{ID: id, Score: l.Scores[i]})
		}
	}
	return hits, nil
}
