package retrieve

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Payloads returns the payload of each item that the collection has: all of it, or the given
// fields. For an item with several rows it is the first row's payload. If vectors is set, rows
// holds the same rows with the route's vector field.
func Payloads(ctx context.Context, v route.View, ids []rerank.ID, fields []string, vectors bool) (payloads map[rerank.ID]json.RawMessage, rows adapters.Rows, err error) {
	ctx, s := span.StoreCall(ctx, "payload", "fetch", v.Collection)
	defer s.End()
	owner := v.OwnerIn(v.Collection)
	request := adapters.FetchRequest{
		Collection: v.Collection, IDs: ids, Owner: owner, Payload: true, PayloadFields: fields, Consistency: v.Consistency,
	}
	if vectors {
		request.Vectors = []string{v.Vector}
	}
	if rows, err = v.StoreCan.Fetch.Fetch(ctx, request); err != nil {
		span.Fail(ctx, s, err)
		return nil, rows, fmt.Errorf("payload: %w", err)
	}
	keys := rows.IDs
	if owner != "" {
		keys = rows.Owners
	}
	if len(rows.Payloads) != len(keys) {
		return nil, rows, broken(v, "%d payloads of %d rows", len(rows.Payloads), len(keys))
	}
	if vectors && (len(rows.Vectors) != 1 || rows.Vectors[0].Rows != len(rows.IDs)) {
		return nil, rows, broken(v, "%d rows and another number of vectors", len(rows.IDs))
	}
	payloads = make(map[rerank.ID]json.RawMessage, len(keys))
	for i, id := range keys {
		if _, known := payloads[id]; !known {
			payloads[id] = rows.Payloads[i]
		}
	}
	return payloads, rows, nil
}

// Existing returns which of the ids the collection still has.
func Existing(ctx context.Context, v route.View, ids []rerank.ID) (map[rerank.ID]bool, error) {
	ctx, s := span.StoreCall(ctx, "confirm", "fetch", v.Collection)
	defer s.End()
	rows, err := v.StoreCan.Fetch.Fetch(ctx, adapters.FetchRequest{Collection: v.Collection, IDs: ids, Consistency: v.Consistency})
	if err != nil {
		span.Fail(ctx, s, err)
		return nil, err
	}
	there := make(map[rerank.ID]bool, len(rows.IDs))
	for _, id := range rows.IDs {
		there[id] = true
	}
	return there, nil
}
