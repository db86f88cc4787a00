package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
)

// batch is candidates with their features, ready for one call of Score.
type batch struct {
	ids   []rerank.ID
	items rerank.Items
	// rounded: the features are those of a table whose format rounds.
	rounded bool
	// numbers are the items' in the table; nil: their features are not the table's own.
	numbers []int32
	room    *[]float32 // of the features, for later searches; nil: it is not theirs
}

// rooms are for feature rows that are computed, and looked at once.
var rooms = sync.Pool{New: func() any { return new([]float32) }}

// maxRoom bounds what is kept of one search, in numbers: 16 MiB.
const maxRoom = 4 << 20

// free lets later searches write where the features are; nobody reads them any more.
func (b *batch) free() {
	if b.room != nil && cap(*b.room) <= maxRoom {
		rooms.Put(b.room)
	}
	b.room = nil
}

// one is item i of the batch alone.
func (b batch) one(i int) rerank.Items {
	from, to := i, i+1
	if b.items.Starts != nil {
		from, to = int(b.items.Starts[i]), int(b.items.Starts[i+1])
	}
	out := rerank.Items{Features: b.items.Features, Packed: b.items.Packed}
	for r := from; r < to; r++ {
		row := int32(r)
		if b.items.Rows != nil {
			row = b.items.Rows[r]
		}
		out.Rows = append(out.Rows, row)
	}
	if b.items.Starts != nil {
		out.Starts = []int32{0, int32(to - from)}
	}
	return out
}

// source reads feature rows: one batch from the route's placement and, for what
// is not indexed there, one from the stored vectors.
type source struct {
	*opened
	resident
	tracer   trace.Tracer
	exact    bool          // rows that a format rounded do not do, where there are others
	fetching time.Duration // time spent in the store
	missing  int           // candidates that the table or companion did not have
}

// features returns the features of new candidates.
func (s *search) features(ctx context.Context, ids []rerank.ID, lists []rerank.List, round int) ([]batch, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if s.withVectors(round) {
		b, err := s.encode(ctx, ids, nil, lists[0].Vectors)
		return []batch{b}, s.featuresFailed(ctx, err)
	}
	src := source{opened: s.opened, resident: s.resident, tracer: s.tracer}
	batches, err := src.read(ctx, ids)
	s.answer.Timings.Retrieve += src.fetching
	s.answer.NotIndexed += src.missing
	return batches, s.featuresFailed(ctx, err)
}

// featuresFailed makes an error of reading or computing features a failure that
// the route's policy decides on.
func (s *search) featuresFailed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errBroken):
		return err
	case ctx.Err() != nil:
		return timedOut(ctx, err)
	case errors.Is(err, errEncode):
		return &failure{ReasonScoring, err}
	default:
		return &failure{ReasonFetch, err}
	}
}

var (
	errEncode = errors.New("feature rows were not computed")
	// errBroken is the error of a store that breaks the contract of its interface.
	errBroken = fmt.Errorf("%w: it broke its contract", adapters.ErrStore)
)

// read returns the features of ids, in one batch or two; ids that nobody has are left out.
func (s *source) read(ctx context.Context, ids []rerank.ID) ([]batch, error) {
	var batches []batch
	var missing []rerank.ID
	var err error
	switch s.Placement {
	case PlacementTable:
		batches, missing = s.fromTable(ids)
	case PlacementDerived:
		batches, missing, err = s.fromCompanion(ctx, ids)
	default:
		missing = ids
	}
	if err != nil || len(missing) == 0 || s.Store == nil {
		return batches, err
	}
	rest, err := s.fromStore(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, b := range rest {
		if s.Placement != PlacementStored {
			s.missing += len(b.ids)
		}
	}
	return append(batches, rest...), nil
}

// fromStore returns the features of items that the table does not have: of the
// rows that they own in the companion, where there are any, and of their stored
// vectors otherwise.
func (s *source) fromStore(ctx context.Context, ids []rerank.ID) (batches []batch, err error) {
	if s.Placement == PlacementTable && s.behavioural && s.Companion != "" {
		if batches, ids, err = s.fromCompanion(ctx, ids); err != nil || len(ids) == 0 {
			return batches, err
		}
	}
	b, err := s.fromStored(ctx, ids)
	return append(batches, b), err
}

func (s *source) fromTable(ids []rerank.ID) ([]batch, []rerank.ID) {
	items, places := s.Table.Lookup(ids, make([]int32, 0, len(ids)), nil)
	have, missing := split(ids, places)
	if len(have) == 0 {
		return nil, missing
	}
	if s.exact && s.Table.Rounded() {
		if full, ok := s.Table.FullItems(items, &rerank.Items{}); ok {
			return []batch{{ids: have, items: full}}, missing
		}
		if _, fetches := s.Store.(adapters.Fetcher); fetches {
			return nil, ids
		}
	}
	return []batch{{ids: have, numbers: items, items: s.Table.Items(items, &rerank.Items{}), rounded: s.Table.Rounded()}}, missing
}

// split takes the ids at the places out.
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
func (s *source) fromCompanion(ctx context.Context, ids []rerank.ID) ([]batch, []rerank.ID, error) {
	rows, err := s.fetch(ctx, s.Companion, ids, s.featureFields)
	if err != nil {
		return nil, nil, err
	}
	have, starts, places, err := s.align(rows, ids, s.featureFields, s.ownerIn(s.Companion))
	if err != nil {
		return nil, nil, err
	}
	_, missing := split(ids, places)
	if len(have) == 0 {
		return nil, missing, nil
	}
	features := rerank.NewMatrix(len(rows.IDs), s.spec.Features)
	if err := s.deriver.Features(features, rows.Vectors); err != nil {
		return nil, nil, fmt.Errorf("%w from companion %q: %w", errEncode, s.Companion, err)
	}
	return []batch{{ids: have, items: rerank.Items{Features: features, Starts: starts}}}, missing, nil
}

// fromStored computes feature rows from the stored vectors.
func (s *source) fromStored(ctx context.Context, ids []rerank.ID) (batch, error) {
	if s.elsewhere { // they cannot be scored
		return batch{}, nil
	}
	rows, err := s.fetch(ctx, s.Collection, ids, []string{s.Vector})
	if err != nil {
		return batch{}, err
	}
	have, starts, _, err := s.align(rows, ids, []string{s.Vector}, s.ownerIn(s.Collection))
	if err != nil {
		return batch{}, err
	}
	return s.encode(ctx, have, starts, rows.Vectors[0])
}

func (s *source) fetch(ctx context.Context, collection string, ids []rerank.ID, fields []string) (adapters.Rows, error) {
	fetcher, ok := s.Store.(adapters.Fetcher)
	if !ok {
		return adapters.Rows{}, fmt.Errorf("%w: %d of the candidates are not in the table, and the store cannot fetch vectors by id; build the table again with `likeness index`",
			adapters.ErrUnsupported, len(ids))
	}
	ctx, span := s.storeSpan(ctx, s.tracer, "fetch", collection, "fetch")
	defer span.End()
	began := time.Now()
	rows, err := fetcher.Fetch(ctx, adapters.FetchRequest{
		Collection: collection, IDs: ids, Vectors: fields, Owner: s.ownerIn(collection), Consistency: s.Consistency,
	})
	s.fetching += time.Since(began)
	if err != nil {
		fail(span, err)
	}
	return rows, err
}

// align holds fetched rows to the contract of adapters.Fetcher: they come in
// the order asked, once each, or for owners one after the other. It returns the
// ids that came, the starts of their rows where they are owners, and the places
// in asked of those that did not.
func (o *opened) align(rows adapters.Rows, asked []rerank.ID, fields []string, owner string) (have []rerank.ID, starts []int32, missing []int, err error) {
	keys := rows.IDs
	if owner != "" {
		keys, starts = rows.Owners, []int32{0}
	}
	if len(keys) != len(rows.IDs) || len(rows.Vectors) != len(fields) {
		return nil, nil, nil, fmt.Errorf("%w: %d rows with %d owners and %d of %d fields", errBroken, len(rows.IDs), len(rows.Owners), len(rows.Vectors), len(fields))
	}
	for i, m := range rows.Vectors {
		if m.Rows != len(rows.IDs) || len(m.Data) != m.Rows*m.Cols {
			return nil, nil, nil, fmt.Errorf("%w: %d rows and %d vectors of field %q", errBroken, len(rows.IDs), m.Rows, fields[i])
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
			return nil, nil, nil, fmt.Errorf("%w: it returned the row %s, which was not asked, or not there", errBroken, key)
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

// minShare is the fewest vectors that are worth a core of their own.
const minShare = 64

// encode computes feature rows of base vectors, on every processor that is free.
func (o *opened) encode(ctx context.Context, ids []rerank.ID, starts []int32, base rerank.Matrix) (batch, error) {
	if base.Cols != o.spec.ItemDim && base.Rows > 0 {
		return batch{}, fmt.Errorf("%w: vectors of %d elements, the model takes %d", errBroken, base.Cols, o.spec.ItemDim)
	}
	workers, err := o.turns.Some(ctx, (base.Rows+minShare-1)/minShare)
	if err != nil {
		return batch{}, err
	}
	defer o.turns.GiveAll(workers)
	room, n := rooms.Get().(*[]float32), base.Rows*o.spec.Features
	*room = slices.Grow((*room)[:0], n)[:n]
	features := rerank.Matrix{Rows: base.Rows, Cols: o.spec.Features, Data: *room}
	var g errgroup.Group
	share := max(minShare, (base.Rows+workers-1)/workers)
	for from := 0; from < base.Rows; from += share {
		to := min(from+share, base.Rows)
		g.Go(func() error {
			return caught.Call(func() error { return o.Model.EncodeItems(features.Slice(from, to), base.Slice(from, to)) })
		})
	}
	if err := g.Wait(); err != nil {
		return batch{}, fmt.Errorf("%w: %w", errEncode, err)
	}
	return batch{ids: ids, items: rerank.Items{Features: features, Starts: starts}, room: room}, nil
}

// score scores batches and ranks them among the candidates of earlier rounds.
func (s *search) score(ctx context.Context, batches []batch) error {
	ctx, span := s.span(ctx, "score")
	defer span.End()
	began := time.Now()
	defer func() { s.answer.Timings.Score += time.Since(began) }()
	few, scores, err := s.scoreOnDevice(ctx, batches)
	if err == nil && scores == nil {
		few = batches
		scores, err = s.scoreHere(ctx, batches)
	}
	if err != nil {
		fail(span, err)
		return err
	}
	span.SetAttributes(attribute.Int("likeness.candidates", s.merge(few, scores)))
	return s.refine(ctx)
}

// scoreHere returns the scores of batches.
func (s *search) scoreHere(ctx context.Context, batches []batch) ([][]float32, error) {
	// Scoring keeps a core busy: more at a time would only take turns, and every
	// one of them end late.
	if err := s.turns.Take(ctx); err != nil {
		return nil, timedOut(ctx, err)
	}
	defer s.turns.Give()
	scores := make([][]float32, len(batches))
	for i, b := range batches {
		scores[i] = make([]float32, len(b.ids))
		if err := s.enc.Score(scores[i], b.items); err != nil {
			return nil, &failure{ReasonScoring, err}
		}
	}
	return scores, nil
}

// merge puts what was scored among the best, and returns how many that were.
func (s *search) merge(batches []batch, scores [][]float32) (n int) {
	top := rerank.NewTopK(s.rough.keep(s.r.K))
	for _, h := range s.hits {
		top.Push(h)
	}
	for _, h := range s.rough.spare {
		top.Push(h)
	}
	scored := s.scored
	for i, b := range batches {
		for j, id := range b.ids {
			if !finite(scores[i][j]) {
				s.answer.NotFinite++
			}
			if s.rough.by > 0 && !b.rounded {
				s.rough.exact[id] = true
			}
			top.Push(rerank.Scored{ID: id, Score: scores[i][j], Index: scored})
			scored++
		}
	}
	n = scored - s.scored
	s.split(top.Sorted(), scored)
	if s.keeps {
		s.kept = append(s.kept, batches...)
	}
	return n
}
