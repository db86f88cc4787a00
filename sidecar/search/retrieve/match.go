package retrieve

import (
	"context"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Matching returns the items of the table that pass the filter of a scan, or nil without a filter.
// It also returns the feature rows of matching items that the table lacks.
func (r *Reader) Matching(ctx context.Context, p *plan.Plan) (*scan.Bitmap, []score.Batch, error) {
	if p.Request.Filter == "" {
		return nil, nil, nil
	}
	v := r.View
	ctx, s := span.StoreCall(ctx, "match", "match", v.Collection)
	defer s.End()
	began := time.Now()
	ids, err := r.match(ctx, p.Request.Filter)
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

// match lists every item with a row that passes the filter, once.
func (r *Reader) match(ctx context.Context, filter string) ([]rerank.ID, error) {
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
