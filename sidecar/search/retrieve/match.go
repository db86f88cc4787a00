package retrieve

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Matching returns the items of the table that a scan visits: items that pass its filter and are
// not excluded; nil stands for all. It also returns the feature rows of such items that the table
// lacks.
func (r *Reader) Matching(ctx context.Context, p *plan.Plan) (*scan.Bitmap, []score.Batch, error) {
	v := r.View
	if p.Request.Filter == "" {
		return without(v.Table, p.Request.Exclude), nil, nil
	}
	ctx, s := span.StoreCall(ctx, "match", "match", v.Collection)
	defer s.End()
	began := time.Now()
	ids, err := r.match(ctx, p.Request.Filter, p.Request.Exclude)
	r.Fetching += time.Since(began)
	if err != nil {
		span.Fail(ctx, s, err)
		return nil, nil, storeFailed(ctx, err, false)
	}
	numbers, places := v.Table.Lookup(ids, make([]int32, 0, len(ids)), nil)
	within := scan.NewBitmap(v.Table.Len())
	within.Add(numbers...)
	_, missing := split(ids, places)
	if len(missing) == 0 {
		return within, nil, nil
	}
	if len(missing) > v.MaxDepth {
		return nil, nil, &failure.Error{Reason: failure.Features, Err: fmt.Errorf(
			"the table lacks %d items that the filter lets through, more than max_depth %d can be fetched; build it again with `likeness index`", len(missing), v.MaxDepth)}
	}
	rest, err := r.fromStore(ctx, missing)
	for _, b := range rest {
		r.NotIndexed += len(b.IDs)
	}
	return within, rest, featuresFailed(ctx, err)
}

// without returns the items of a table but the excluded ones, or nil if none is excluded.
func without(t *table.Table, excluded []rerank.ID) *scan.Bitmap {
	if len(excluded) == 0 {
		return nil
	}
	items, _ := t.Lookup(excluded, nil, nil)
	return scan.Except(t, items)
}

// match lists every item with a row that passes the filter, once, but for the excluded items.
func (r *Reader) match(ctx context.Context, filter string, excluded []rerank.ID) ([]rerank.ID, error) {
	found, err := r.matchFilter(ctx, filter)
	if err != nil || len(excluded) == 0 {
		return found, err
	}
	out := NewIDSet(len(excluded))
	for _, id := range excluded {
		out.Add(id, 0)
	}
	return slices.DeleteFunc(found, out.Has), nil
}

func (r *Reader) matchFilter(ctx context.Context, filter string) ([]rerank.ID, error) {
	v, found := r.View, NewIDSet(0)
	if owner := v.OwnerIn(v.Collection); owner != "" {
		err := v.StoreCan.Scan.Scan(ctx, adapters.ScanRequest{Collection: v.Collection, Filter: filter, Owner: owner},
			func(rows adapters.Rows, _ string) error {
				for _, id := range rows.Owners {
					found.Add(id, 0)
				}
				return nil
			})
		return found.IDs, err
	}
	ids, err := v.StoreCan.Match.Match(ctx, v.Collection, filter)
	for _, id := range ids {
		found.Add(id, 0)
	}
	return found.IDs, err
}
