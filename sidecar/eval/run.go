package eval

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// Input is what an evaluation compares.
type Input struct {
	Model   pipeline.Model
	Queries rerank.Matrix // Spec.QueryDim columns
	UserIDs []int64       // one a query row, where the model has user-id embeddings
	Items   rerank.Matrix // Spec.ItemDim columns
	ItemIDs []rerank.ID   // one an item row; nil: row numbers
	Pairs   *Pairs
	K       int
	Every   int // every nth query row; 0 and 1 are all
	// Baseline is what the model is compared with; a nil Similarity is nothing.
	Baseline pipeline.Model
	Trials   []Trial
	Progress Progress
}

// Run ranks all items for every query by the model and by the baseline, exactly,
// and runs each trial through the pipeline over an embedded store. It uses every
// core and holds all feature rows in memory. It returns ErrInput, the model's
// error, or the context's.
func Run(ctx context.Context, in Input) (*Report, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	rows, counts := in.Pairs.Choose(in.Every)
	counts.Items, counts.NotFiniteItems = in.Items.Rows, notFinite(in.Items)
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: no query that was chosen has a pair", ErrInput)
	}
	queries := in.queries(rows)
	spec := in.Model.Spec()
	report := &Report{
		Model: Model{Name: in.Model.Name, Version: in.Model.Version, Kind: spec.Kind},
		K:     in.K, Counts: counts, BaselineName: in.Baseline.Name,
	}
	features, err := Features(ctx, in.Model, in.Items, in.ItemIDs, in.Progress)
	if err != nil {
		return nil, err
	}
	b := &bench{in: in, table: features, rows: rows, queries: queries}
	if len(in.Trials) > 0 {
		if err := b.open(ctx); err != nil {
			return nil, errors.Join(err, b.store.Close())
		}
		defer b.store.Close()
	}
	if b.exact, err = Rank(ctx, in.Model, features, queries, in.K, in.Progress); err != nil {
		return nil, err
	}
	report.Metrics = Measure(b.exact, rows, in.Pairs, in.K)
	if in.Baseline.Similarity != nil {
		if report.Baseline, err = in.baseline(ctx, rows, queries); err != nil {
			return nil, err
		}
	}
	if len(in.Trials) == 0 {
		return report, nil
	}
	report.Strategies, err = b.run(ctx)
	return report, err
}

func (in Input) check() error {
	spec := in.Model.Spec()
	switch {
	case in.K < 1:
		return fmt.Errorf("%w: k is %d; ask for 1 at least", ErrInput, in.K)
	case in.Queries.Cols != spec.QueryDim:
		return fmt.Errorf("%w: queries have %d columns, model %s takes %d", ErrInput, in.Queries.Cols, in.Model.Name, spec.QueryDim)
	case in.Items.Cols != spec.ItemDim:
		return fmt.Errorf("%w: items have %d columns, model %s takes %d", ErrInput, in.Items.Cols, in.Model.Name, spec.ItemDim)
	case in.ItemIDs != nil && len(in.ItemIDs) != in.Items.Rows:
		return fmt.Errorf("%w: %d item ids for %d items", ErrInput, len(in.ItemIDs), in.Items.Rows)
	case in.UserIDs != nil && len(in.UserIDs) != in.Queries.Rows:
		return fmt.Errorf("%w: %d user ids for %d queries", ErrInput, len(in.UserIDs), in.Queries.Rows)
	case spec.UserIDs && in.UserIDs == nil:
		return fmt.Errorf("%w: model %s has user-id embeddings; give one user id a query (--user-ids)", ErrInput, in.Model.Name)
	case in.Baseline.Similarity != nil && in.Queries.Cols != in.Items.Cols:
		return fmt.Errorf("%w: queries have %d columns and items %d, so there is no inner product of them to compare with; turn the baseline off (--baseline none)",
			ErrInput, in.Queries.Cols, in.Items.Cols)
	}
	return nil
}

// notFinite counts the rows with an element that is not finite.
func notFinite(m rerank.Matrix) int {
	n := 0
	for r := range m.Rows {
		if rerank.CheckFinite("item", m.Row(r)) != nil {
			n++
		}
	}
	return n
}

func (in Input) queries(rows []int) []rerank.Query {
	queries := make([]rerank.Query, len(rows))
	for i, row := range rows {
		queries[i].Vector = in.Queries.Row(row)
		if in.UserIDs != nil {
			queries[i].UserID, queries[i].HasUserID = in.UserIDs[row], true
		}
	}
	return queries
}

func (in Input) baseline(ctx context.Context, rows []int, queries []rerank.Query) (Metrics, error) {
	features, err := Features(ctx, in.Baseline, in.Items, in.ItemIDs, in.Progress)
	if err != nil {
		return nil, err
	}
	ranked, err := Rank(ctx, in.Baseline, features, queries, in.K, in.Progress)
	if err != nil {
		return nil, err
	}
	return Measure(ranked, rows, in.Pairs, in.K), nil
}

// block is the number of rows that one call encodes or scores: few enough to
// stay in the second-level cache.
const block = 512

// Features computes every item's feature row, into a table in memory.
func Features(ctx context.Context, m pipeline.Model, items rerank.Matrix, ids []rerank.ID, p Progress) (*table.Table, error) {
	features := rerank.NewMatrix(items.Rows, m.Spec().Features)
	done := p.begin("encoding items with "+m.Name, items.Rows)
	err := parallel(ctx, (items.Rows+block-1)/block, func(_, b int) error {
		from, to := b*block, min((b+1)*block, items.Rows)
		if err := m.EncodeItems(features.Slice(from, to), items.Slice(from, to)); err != nil {
			return fmt.Errorf("encoding items %d to %d: %w", from, to-1, err)
		}
		done(to - from)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if ids == nil {
		ids = rowIDs(items.Rows)
	}
	meta := table.Meta{Model: m.Name, ModelVersion: m.Version, Kind: string(m.Spec().Kind), Collection: collection}
	return table.FromMemory(meta, ids, features, nil)
}

// Rank returns the exact first k items of every query under φ, ties by id.
func Rank(ctx context.Context, m pipeline.Model, t *table.Table, queries []rerank.Query, k int, p Progress) ([]Ranking, error) {
	rankings := make([]Ranking, len(queries))
	done := p.begin("ranking all items by "+m.Name, len(queries))
	scratch := make([][block]float32, runtime.GOMAXPROCS(0))
	err := parallel(ctx, len(queries), func(worker, i int) error {
		encoded, err := m.Encode(queries[i])
		if err != nil {
			return fmt.Errorf("query %d: %w", i, err)
		}
		top := rerank.NewTopK(k)
		for from := 0; from < t.Len(); from += block {
			to := min(from+block, t.Len())
			scores := scratch[worker][:to-from]
			if err := encoded.Score(scores, t.Slice(from, to)); err != nil {
				return fmt.Errorf("query %d: %w", i, err)
			}
			for j, score := range scores {
				top.Push(rerank.Scored{ID: t.ID(from + j), Score: score, Index: from + j})
			}
		}
		rankings[i] = top.Sorted()
		done(1)
		return nil
	})
	return rankings, err
}

// parallel calls f for every n below count, in order of n, from one goroutine a
// core. It stops at the first error or when the context ends.
func parallel(ctx context.Context, count int, f func(worker, n int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for worker := range min(runtime.GOMAXPROCS(0), count) {
		g.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= count {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(worker, n); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func rowIDs(n int) []rerank.ID {
	ids := make([]rerank.ID, n)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	return ids
}
