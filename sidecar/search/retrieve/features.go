package retrieve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

var errEncode = errors.New("feature rows were not computed")

// Reader reads feature rows of candidates from where the route's placement keeps them.
type Reader struct {
	View route.View
	// FullPrecision avoids rows that the table's format rounded, if unrounded ones exist.
	FullPrecision bool
	// Fetching is the time spent in the store so far.
	Fetching time.Duration
	// NotIndexed counts the candidates that the table or the companion lacked.
	NotIndexed int
	// New holds the candidates that have a vector of the new model, on a route that embeds its items
	// again.
	New map[rerank.ID]bool
	// Changed: a candidate got another vector after a list was read, on a route that embeds its items
	// again, so that the lists prove nothing.
	Changed bool

	// products holds for each probe its inner products with the candidates' feature rows; see noteChanged.
	products []map[rerank.ID]float64
}

// Candidates returns the feature rows of a round's new candidates, in one batch or two. Candidates
// that no longer exist are left out. It returns a *failure.Error, or an error of a store that broke
// its contract.
func (r *Reader) Candidates(ctx context.Context, p *plan.Plan, ids []rerank.ID, lists []rerank.List, round int) ([]score.Batch, error) {
	if len(ids) == 0 {
		r.noteChanged(p, lists, nil)
		return nil, nil
	}
	if withVectors(r.View, p, round) {
		r.View.Norms.See(ids, lists[0].Vectors)
		b, err := Encode(ctx, r.View.Checked, ids, nil, lists[0].Vectors)
		return []score.Batch{b}, featuresFailed(ctx, err)
	}
	batches, err := r.Read(ctx, ids)
	if err == nil {
		r.noteChanged(p, lists, batches)
	}
	return batches, featuresFailed(ctx, err)
}

// featuresFailed turns an error of reading or computing feature rows into an error that the route's
// failure policy handles.
func featuresFailed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errContract):
		return err
	case ctx.Err() != nil:
		return failure.TimedOut(ctx, err)
	case errors.Is(err, errEncode):
		return &failure.Error{Reason: failure.Scoring, Err: err}
	default:
		return &failure.Error{Reason: failure.Features, Err: err}
	}
}

// Read returns the feature rows of items, in one batch or two. Items that no longer exist are left
// out.
func (r *Reader) Read(ctx context.Context, ids []rerank.ID) ([]score.Batch, error) {
	var batches []score.Batch
	var missing []rerank.ID
	var err error
	switch r.View.Placement {
	case route.PlacementTable:
		batches, missing = r.fromTable(ids)
	case route.PlacementDerived:
		batches, missing, err = r.fromCompanion(ctx, ids)
	default:
		missing = ids
	}
	if err != nil || len(missing) == 0 || r.View.Store == nil {
		return batches, err
	}
	rest, err := r.fromStore(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, b := range rest {
		if !r.View.Placement.ScoresStored() {
			r.NotIndexed += len(b.IDs)
		}
	}
	return append(batches, rest...), nil
}

// Exact returns the feature rows of items in full precision, computed from their stored vectors. On a
// route that embeds its items again they come from the companion, which has the new vectors. It returns
// the same errors as Candidates.
func (r *Reader) Exact(ctx context.Context, ids []rerank.ID) (score.Batch, error) {
	if !r.View.Reembeds() {
		b, err := r.fromStored(ctx, ids)
		return b, featuresFailed(ctx, err)
	}
	batches, _, err := r.fromCompanion(ctx, ids)
	if err != nil || len(batches) == 0 {
		return score.Batch{}, featuresFailed(ctx, err)
	}
	return batches[0], nil
}

// fromStore returns the feature rows of items that the table lacks: from the companion if it holds
// the items' behavioural vectors, otherwise computed from their stored vectors.
func (r *Reader) fromStore(ctx context.Context, ids []rerank.ID) (batches []score.Batch, err error) {
	if v := r.View; v.Placement == route.PlacementTable && v.Behavioural && v.Companion != "" {
		if batches, ids, err = r.fromCompanion(ctx, ids); err != nil || len(ids) == 0 {
			return batches, err
		}
	}
	b, err := r.fromStored(ctx, ids)
	return append(batches, b), err
}

func (r *Reader) fromTable(ids []rerank.ID) ([]score.Batch, []rerank.ID) {
	t := r.View.Table
	numbers, places := t.Lookup(ids, make([]int32, 0, len(ids)), nil)
	have, missing := split(ids, places)
	if len(have) == 0 {
		return nil, missing
	}
	if r.FullPrecision && t.Rounded() {
		if full, ok := t.FullItems(numbers, &rerank.Items{}); ok {
			return []score.Batch{{IDs: have, Items: full}}, missing
		}
		if r.View.StoreCan.Fetch != nil {
			return nil, ids
		}
	}
	return []score.Batch{{IDs: have, Numbers: numbers, Items: t.Items(numbers, &rerank.Items{}), Rounded: t.Rounded()}}, missing
}

// split returns the ids at the given ascending positions as taken, and the others as rest, both in their order.
func split(ids []rerank.ID, places []int) (rest, taken []rerank.ID) {
	if len(places) == 0 {
		return ids, nil
	}
	from := 0
	for _, p := range places {
		rest = append(rest, ids[from:p]...)
		taken = append(taken, ids[p])
		from = p + 1
	}
	return append(rest, ids[from:]...), taken
}

// fromCompanion puts feature rows together from the derived fields.
func (r *Reader) fromCompanion(ctx context.Context, ids []rerank.ID) ([]score.Batch, []rerank.ID, error) {
	v := r.View
	rows, err := r.fetch(ctx, v.Companion, ids, v.FeatureFields)
	if err != nil {
		return nil, nil, err
	}
	have, starts, places, err := Align(rows, ids, v.FeatureFields, v.OwnerIn(v.Companion))
	if err != nil {
		return nil, nil, err
	}
	_, missing := split(ids, places)
	if len(have) == 0 {
		return nil, missing, nil
	}
	r.noteNew(rows)
	features := rerank.NewMatrix(len(rows.IDs), v.Spec.Features)
	if err := v.ModelCan.Derive.Features(features, rows.Vectors); err != nil {
		return nil, nil, fmt.Errorf("%w from companion %q: %w", errEncode, v.Companion, err)
	}
	return []score.Batch{{IDs: have, Items: rerank.Items{Features: features, Starts: starts}}}, missing, nil
}

// noteNew notes which rows of the companion hold a vector of the new model.
func (r *Reader) noteNew(rows adapters.Rows) {
	for i, p := range rows.Payloads {
		if derive.MarkOf(p) == "" {
			continue
		}
		if r.New == nil {
			r.New = map[rerank.ID]bool{}
		}
		r.New[rows.IDs[i]] = true
	}
}

// fromStored computes feature rows from the stored vectors.
func (r *Reader) fromStored(ctx context.Context, ids []rerank.ID) (score.Batch, error) {
	v := r.View
	if v.VectorsElsewhere { // the stored vectors are not the model's input
		return score.Batch{}, nil
	}
	field := v.ItemField()
	rows, err := r.fetch(ctx, v.Collection, ids, []string{field})
	if err != nil {
		return score.Batch{}, err
	}
	if len(rows.Vectors) == 1 && rows.Starts == nil {
		v.Norms.See(rows.IDs, rows.Vectors[0])
	}
	have, starts, _, err := Align(rows, ids, []string{field}, v.OwnerIn(v.Collection))
	if err != nil {
		return score.Batch{}, err
	}
	return Encode(ctx, v.Checked, have, starts, rows.Vectors[0])
}

func (r *Reader) fetch(ctx context.Context, collection string, ids []rerank.ID, fields []string) (adapters.Rows, error) {
	fetcher := r.View.StoreCan.Fetch
	if fetcher == nil {
		return adapters.Rows{}, fmt.Errorf("%w: %d of the candidates are not in the table, and the store cannot fetch vectors by id; build the table again with `likeness index`",
			adapters.ErrUnsupported, len(ids))
	}
	ctx, s := span.StoreCall(ctx, "fetch", "fetch", collection)
	defer s.End()
	began := time.Now()
	request := adapters.FetchRequest{
		Collection: collection, IDs: ids, Vectors: fields, Owner: r.View.OwnerIn(collection), Consistency: r.View.Consistency,
	}
	if r.View.Reembeds() && collection == r.View.Companion {
		request.Payload, request.PayloadFields = true, []string{derive.SourceField}
	}
	rows, err := fetcher.Fetch(ctx, request)
	r.Fetching += time.Since(began)
	span.Fail(ctx, s, err)
	return rows, err
}

// Align checks fetched rows against the contract of adapters.Fetcher: each id comes once, in the
// order asked; with owners, all rows of one owner come before the next owner's. It returns the ids
// that came, the first row of each id if ids are owners, and the places in asked of the missing
// ids.
func Align(rows adapters.Rows, asked []rerank.ID, fields []string, owner string) (have []rerank.ID, starts []int32, missing []int, err error) {
	if rows.Starts != nil {
		if rows, err = vectorRows(rows); err != nil {
			return nil, nil, nil, err
		}
	}
	keys := rows.IDs
	if owner != "" || rows.Owners != nil {
		keys, starts = rows.Owners, []int32{0}
	}
	if len(keys) != len(rows.IDs) || len(rows.Vectors) != len(fields) {
		return nil, nil, nil, fmt.Errorf("%w: %d rows with %d owners and %d of %d fields", errContract, len(rows.IDs), len(rows.Owners), len(rows.Vectors), len(fields))
	}
	for i, m := range rows.Vectors {
		if m.Rows != len(rows.IDs) || len(m.Data) != m.Rows*m.Cols {
			return nil, nil, nil, fmt.Errorf("%w: %d rows and %d vectors of field %q", errContract, len(rows.IDs), m.Rows, fields[i])
		}
	}
	next := 0
	for i, key := range keys {
		if starts != nil && i > 0 && key == keys[i-1] {
			starts[len(starts)-1]++
			continue
		}
		for next < len(asked) && asked[next] != key {
			missing = append(missing, next)
			next++
		}
		if next == len(asked) {
			return nil, nil, nil, fmt.Errorf("%w: it returned the row %s, which was not requested, or returned it out of order", errContract, key)
		}
		next++
		have = append(have, key)
		if starts != nil {
			starts = append(starts, int32(i+1))
		}
	}
	for ; next < len(asked); next++ {
		missing = append(missing, next)
	}
	return have, starts, missing, nil
}

// vectorRows makes a row of each vector of a field with several vectors a row. Its owner is the row
// that has it. A row without vectors vanishes.
func vectorRows(rows adapters.Rows) (adapters.Rows, error) {
	if len(rows.Vectors) != 1 || len(rows.Starts) != len(rows.IDs)+1 || rows.Starts[0] != 0 || int(rows.Starts[len(rows.IDs)]) != rows.Vectors[0].Rows {
		return rows, fmt.Errorf("%w: %d rows with %d starts of vectors, in %d fields", errContract, len(rows.IDs), len(rows.Starts), len(rows.Vectors))
	}
	out := adapters.Rows{Vectors: rows.Vectors}
	for i, id := range rows.IDs {
		for range rows.Starts[i+1] - rows.Starts[i] {
			out.IDs = append(out.IDs, id)
		}
	}
	out.Owners = out.IDs
	return out, nil
}

// minShare is the smallest number of vectors for which another processor is used.
const minShare = 64

// Encode computes the feature rows of base vectors, on all free processors.
func Encode(ctx context.Context, c *route.Checked, ids []rerank.ID, starts []int32, base rerank.Matrix) (score.Batch, error) {
	if base.Cols != c.Spec.ItemDim && base.Rows > 0 {
		return score.Batch{}, fmt.Errorf("%w: vectors of %d elements, the model takes %d", errContract, base.Cols, c.Spec.ItemDim)
	}
	workers, err := c.Turns.Some(ctx, (base.Rows+minShare-1)/minShare)
	if err != nil {
		return score.Batch{}, err
	}
	defer c.Turns.GiveAll(workers)
	b := score.NewBatch(ids, starts, base.Rows, c.Spec.Features)
	features := b.Items.Features
	var g errgroup.Group
	share := max(minShare, (base.Rows+workers-1)/workers)
	for from := 0; from < base.Rows; from += share {
		to := min(from+share, base.Rows)
		g.Go(func() error {
			return caught.Call(func() error { return c.Model.Similarity.EncodeItems(features.Slice(from, to), base.Slice(from, to)) })
		})
	}
	if err := g.Wait(); err != nil {
		return score.Batch{}, fmt.Errorf("%w: %w", errEncode, err)
	}
	return b, nil
}
