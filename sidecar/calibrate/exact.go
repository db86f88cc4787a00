package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

// exactSource answers queries exactly.
type exactSource interface {
	// name says where exact answers come from, for the report.
	name() string
	// prepare does the work that all queries share.
	prepare(ctx context.Context, all []rerank.Query, seen []seenItems, j *journal, p Progress) error
	// answer returns the best k items for query n.
	answer(ctx context.Context, n int, q rerank.Query, k int) (exactAnswer, error)
}

// exactSource chooses the route's table if it keeps full precision, else the collection.
func (r *run) exactSource() (exactSource, func(), error) {
	if t := r.route.CurrentTable(); t != nil {
		if Precise(t) {
			return &tableSource{route: &r.route, table: t}, t.Release, nil
		}
		t.Release()
	}
	scanner := adapters.AbilitiesOf(r.route.Store).Scan
	switch {
	case r.route.Reembeds():
		return nil, nil, fmt.Errorf("%w: route %q embeds its items again (reembed), so that its scores change; calibrate it when it no longer does", ErrInput, r.route.Name)
	case scanner == nil:
		return nil, nil, fmt.Errorf("%w: route %q has no table in full precision, and store %q cannot list all rows; build one with `likeness index --full-precision`",
			ErrInput, r.route.Name, r.route.StoreName)
	case r.route.Owner != "":
		return nil, nil, fmt.Errorf("%w: the items of route %q have several rows, which only a table keeps together; build one with `likeness index`", ErrInput, r.route.Name)
	}
	return &streamSource{
		route: &r.route, scanner: scanner, can: rerank.AbilitiesOf(r.route.Model.Similarity), k: r.Promise.K, rows: int(r.rows),
	}, func() {}, nil
}

// Precise reports whether a table can answer exactly: its rows are not rounded, or it keeps
// them in full precision as well.
func Precise(t *table.Table) bool {
	_, full := t.Full()
	return full || !t.Rounded()
}

// block is the number of items that one call scores.
const block = 512

// tableSource scores every item of a table.
type tableSource struct {
	route *route.Route
	table *table.Table
	seen  []seenItems   // of each query
	found []exactAnswer // for each query, once it was asked for
}

func (*tableSource) name() string { return "table" }

func (s *tableSource) prepare(_ context.Context, all []rerank.Query, seen []seenItems, _ *journal, _ Progress) error {
	s.seen, s.found = seen, make([]exactAnswer, len(all))
	return nil
}

// answer scans the table once for each query. A query is asked for by one goroutine at a time.
func (s *tableSource) answer(ctx context.Context, n int, q rerank.Query, k int) (exactAnswer, error) {
	if s.found[n].top != nil {
		return s.found[n], nil
	}
	found, err := scanTable(s.route.Model, s.table, q, k, s.seen[n], ctx.Err)
	if err == nil {
		s.found[n] = found
	}
	return found, err
}

// scanTable scores every item on one core, in full precision, and yields to other
// goroutines after each block. Seen items are in no answer. It stops with the error of proceed,
// if any.
func scanTable(m route.Model, t *table.Table, q rerank.Query, k int, seen seenItems, proceed func() error) (exactAnswer, error) {
	encoded, err := m.Similarity.Encode(q)
	if err != nil {
		return exactAnswer{}, err
	}
	top, scores := newExactTop(encoded, k, seen), make([]float32, block)
	var rows []int32
	for from := 0; from < t.Len(); from += block {
		if err := proceed(); err != nil {
			return exactAnswer{}, err
		}
		to := min(from+block, t.Len())
		items := t.Slice(from, to)
		if t.Rounded() {
			rows = rows[:0]
			for i := from; i < to; i++ {
				rows = append(rows, int32(i))
			}
			items, _ = t.FullItems(rows, &rerank.Items{}) // it is Precise
		}
		if err := encoded.Score(scores[:to-from], items); err != nil {
			return exactAnswer{}, err
		}
		err := top.add(items, scores[:to-from], func(i int) (rerank.ID, bool) { return t.ID(from + i), t.Alive(from + i) })
		if err != nil {
			return exactAnswer{}, err
		}
		runtime.Gosched()
	}
	return top.answer(), nil
}

// streamSource reads the collection once for all queries, and keeps the best k items for
// each query. It holds one batch of the store in memory.
type streamSource struct {
	route   *route.Route
	scanner adapters.Scanner
	can     rerank.Abilities
	k       int
	rows    int // of the collection, for the progress; −1: not known
	cores   int // how many score at the same time; 0: all
	// pace, if set, is called after each batch and waits until the next one may be read.
	pace    func(ctx context.Context, rows int) error
	answers []exactAnswer
}

func (*streamSource) name() string { return "collection" }

func (s *streamSource) answer(_ context.Context, n int, _ rerank.Query, _ int) (exactAnswer, error) {
	return s.answers[n], nil
}

func (s *streamSource) prepare(ctx context.Context, all []rerank.Query, seen []seenItems, j *journal, p Progress) error {
	s.answers = make([]exactAnswer, len(all))
	if s.resume(j) {
		return nil
	}
	queries, err := rerank.EncodeAll(s.route.Model.Similarity, s.can.EncodeBatch, all)
	if err != nil {
		return err
	}
	tops := make([]*exactTop, len(all))
	for n := range tops {
		tops[n] = newExactTop(queries[n], s.k, seen[n])
	}
	done := p.begin("scoring the collection", s.rows)
	scan := adapters.ScanRequest{Collection: s.route.Collection, Vectors: []string{s.route.ItemField()}}
	err = s.scanner.Scan(ctx, scan, func(rows adapters.Rows, _ string) error {
		defer done(len(rows.IDs))
		if err := s.score(ctx, rows, queries, tops); err != nil || s.pace == nil {
			return err
		}
		return s.pace(ctx, len(rows.IDs))
	})
	if err != nil {
		return err
	}
	entries := make([]entry, len(all))
	for n, top := range tops {
		s.answers[n] = top.answer()
		entries[n] = exactEntry(n, s.answers[n])
	}
	return j.write(entries...)
}

// resume takes the answers of an earlier run from the journal, if it has all.
func (s *streamSource) resume(j *journal) bool {
	for n := range s.answers {
		var ok bool
		if s.answers[n], ok = j.exact(n); !ok {
			return false
		}
	}
	return true
}

var errRows = errors.New("rows and vectors of a scan differ")

// queriesTogether is the number of queries that one call scores over the same rows, if the
// similarity can.
const queriesTogether = 32

// score scores a batch of rows for every query.
func (s *streamSource) score(ctx context.Context, rows adapters.Rows, queries []rerank.Encoded, tops []*exactTop) error {
	if len(rows.Vectors) != 1 || rows.Starts == nil && rows.Vectors[0].Rows != len(rows.IDs) {
		return fmt.Errorf("store %q: %w", s.route.StoreName, errRows)
	}
	similarity := s.route.Model.Similarity
	features := rerank.NewMatrix(rows.Vectors[0].Rows, similarity.Spec().Features)
	if err := similarity.EncodeItems(features, rows.Vectors[0]); err != nil {
		return err
	}
	items := rerank.Items{Features: features, Starts: rows.Starts}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(s.cores, runtime.GOMAXPROCS(0)))
	for from := 0; from < len(queries); from += queriesTogether {
		to := min(from+queriesTogether, len(queries))
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			scores := make([]float32, (to-from)*len(rows.IDs))
			if err := rerank.ScoreAll(scores, s.can.ScoreBatch, queries[from:to], items); err != nil {
				return err
			}
			for n := from; n < to; n++ {
				err := tops[n].add(items, scores[(n-from)*len(rows.IDs):][:len(rows.IDs)], func(i int) (rerank.ID, bool) { return rows.IDs[i], true })
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
