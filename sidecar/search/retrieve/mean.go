package retrieve

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Mean returns the weighted mean of the items' stored vectors as a query of the route's model. A
// model that compares unit vectors gets the mean of unit vectors. An item of several rows counts
// with their mean. Items that the collection does not have are left out; without any other, and on
// a route whose queries are no stored vectors, Mean returns a *plan.FieldError. It also returns the
// store's error.
func Mean(ctx context.Context, v route.View, items []plan.WeightedID) ([]float32, error) {
	if err := plan.CheckHistory(v.Checked, items); err != nil {
		return nil, err
	}
	all := make([]rerank.ID, len(items))
	for i, it := range items {
		all[i] = it.ID
	}
	all, err := adapters.CanonicalIDs(v.SpellIDs, all)
	if err != nil {
		return nil, fmt.Errorf("query.item_ids: %w", err)
	}
	weights := make(map[rerank.ID]float64, len(items))
	ids := make([]rerank.ID, 0, len(items))
	for i, id := range all {
		if _, twice := weights[id]; !twice {
			ids = append(ids, id)
		}
		weights[id] += items[i].Weight
	}
	ctx, s := span.StoreCall(ctx, "history", "fetch", v.Collection, attribute.Int("likeness.items", len(ids)))
	defer s.End()
	owner := v.OwnerIn(v.Collection)
	rows, err := v.StoreCan.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: v.Collection, IDs: ids, Vectors: []string{v.Vector}, Owner: owner, Consistency: v.Consistency,
	})
	if err != nil {
		span.Fail(ctx, s, err)
		return nil, fmt.Errorf("vectors of query.item_ids: %w", err)
	}
	keys := rows.IDs
	if owner != "" {
		keys = rows.Owners
	}
	if len(rows.Vectors) != 1 || rows.Vectors[0].Rows != len(rows.IDs) || rows.Vectors[0].Cols != v.Spec.ItemDim || len(keys) != len(rows.IDs) {
		return nil, broken(v, "%d rows with vectors of another number or length", len(rows.IDs))
	}
	perItem := make(map[rerank.ID]float64, len(ids))
	for _, id := range keys {
		perItem[id]++
	}
	mean := rerank.Mean{Unit: v.Spec.Normalise}
	for i, id := range keys {
		x, weight := rows.Vectors[0].Row(i), weights[id]/perItem[id]
		if rerank.CheckFinite("vector", x) == nil {
			mean.Add(x, weight)
		}
	}
	query, ok := mean.Vector()
	if !ok {
		return nil, plan.BadField("query.item_ids", "collection %q has a vector of none of the %d items; give a vector", v.Collection, len(ids))
	}
	return query, nil
}
