package eval

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Input holds the models, data and options of an evaluation.
type Input struct {
	Model  route.Model
	Traits Traits // traits of Model
	// Vectors holds the behavioural vectors of Model, or nil.
	Vectors *maxsim.Vectors
	Others  []Contender   // models to compare with Model
	Queries rerank.Matrix // one query a row, Spec.QueryDim columns
	// ItemStarts and QueryStarts divide the rows of Items and Queries among items and queries of several
	// vectors, as rerank.Items.Starts does; nil: each has one. Every other field, and a "row" of a query
	// or item, then means its number. A model of one vector, as the baseline is, ranks the means of their
	// vectors, and trials search the means as the stored vectors.
	ItemStarts, QueryStarts []int32
	// QueryIDs holds one id for each query row, for the list of regressions. If nil,
	// ids are row numbers.
	QueryIDs []rerank.ID
	UserIDs  []int64       // one for each query row, if the model has user embeddings
	Items    rerank.Matrix // one item a row, Spec.ItemDim columns
	ItemIDs  []rerank.ID   // one for each item row; nil: row numbers
	Pairs    *Pairs
	// Seen holds, for each query row, the rows of items that were seen before, ascending. Answers
	// and rankings leave them out. It never holds an item that is relevant to the query. If it is
	// nil, no items were seen.
	Seen [][]int32
	// Clicked is the log with positions; nil if the log has none.
	Clicked *Clicked
	// Popularity is the weight of each item row in the log to which the models were
	// fitted. An item of weight 0 is cold. If nil, popularity is taken from Pairs, and
	// warm and cold items are not told apart.
	Popularity []float64
	// Asked is how often each query row was asked; nil: once. With ByTraffic a query counts as
	// often in every mean, and so in the verdict.
	Asked     []float64
	ByTraffic bool
	// SeenBefore marks the query rows that the training log has. If nil, that is unknown. With NewOnly these rows are
	// left out, because a model may know them by heart.
	SeenBefore []bool
	NewOnly    bool
	K          int
	// Metric names the metric of differences, segments and the verdict: one of those that a report has.
	// If empty, it is mrr@K.
	Metric string
	Every  int // evaluates every nth query row; 0 and 1 mean all
	// Baseline is the model to which the others are compared. There is no baseline if
	// its Similarity is nil.
	Baseline route.Model
	Trials   []Trial
	// Resamples is the number of bootstrap samples; 0 means 2,000, or fewer for many
	// queries. Confidence is the confidence of the intervals; 0 means 0.95. Seed
	// determines the draws.
	Resamples  int
	Confidence float64
	Seed       uint64
	// Margin is the share of the best model's gain that a simpler model may lose and
	// still be as good; 0 means verdict.DefaultMargin. LeastGain is the smallest gain
	// worth having; 0 means verdict.LeastGainOf the baseline's metric.
	Margin, LeastGain float64
	// Power, if above 0, is a difference for which Report.Plan says how many queries
	// show it.
	Power    float64
	Progress Progress

	// itemVectors and queryVectors hold the several vectors of items and queries; Items and Queries then
	// hold their means. They are empty if each has one.
	itemVectors, queryVectors rerank.Items
}

// Contender is one of several models under evaluation.
type Contender struct {
	Model   route.Model
	Traits  Traits
	Vectors *maxsim.Vectors // behavioural vectors of Model, or nil
}

// Run ranks all items for every query by each model and by the baseline, exactly, and
// runs each trial through the search engine over an embedded store. It uses every core
// and holds the feature rows of one model in memory at a time. It returns ErrInput, a
// model's error, or the context's error.
func Run(ctx context.Context, in Input) (*Report, error) {
	in.Resamples, in.Confidence = cmp.Or(in.Resamples, 2000), cmp.Or(in.Confidence, verdict.DefaultConfidence)
	in.Margin = cmp.Or(in.Margin, verdict.DefaultMargin)
	contenders := append([]Contender{{in.Model, in.Traits, in.Vectors}}, in.Others...)
	if err := in.takeMeans(contenders); err != nil {
		return nil, err
	}
	for _, c := range contenders {
		if err := in.withModel(c.Model).check(); err != nil {
			return nil, err
		}
	}
	rows, counts := in.Pairs.Choose(in.Every)
	counts.Items, counts.NotFiniteItems = in.Items.Rows, countNotFinite(in.Items)
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: no query that was chosen has a pair", ErrInput)
	}
	rows, err := in.leaveOut(rows, &counts)
	if err != nil {
		return nil, err
	}
	j := newJudge(&in, rows)
	j.report.Counts = counts
	for _, c := range contenders {
		if err := j.measureModel(ctx, c, len(contenders) == 1); err != nil {
			return nil, err
		}
	}
	return j.finish(ctx)
}

// takeMeans replaces items and queries of several vectors by their means, and keeps the vectors beside
// them. It returns ErrInput if their starts do not divide the rows, or if no model takes several vectors.
func (in *Input) takeMeans(models []Contender) error {
	if in.ItemStarts == nil && in.QueryStarts == nil {
		return nil
	}
	if !slices.ContainsFunc(models, func(c Contender) bool { return c.Model.Similarity.Spec().ManyVectors }) {
		return fmt.Errorf("%w: items or queries have several vectors, and no model takes them; evaluate one of kind %s, or give one vector each",
			ErrInput, rerank.KindLate)
	}
	for _, side := range []struct {
		name    string
		rows    *rerank.Matrix
		starts  []int32
		vectors *rerank.Items
	}{{"items", &in.Items, in.ItemStarts, &in.itemVectors}, {"queries", &in.Queries, in.QueryStarts, &in.queryVectors}} {
		if side.starts == nil {
			continue
		}
		if err := rerank.CheckStarts(side.starts, side.rows.Rows); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInput, side.name, err)
		}
		*side.vectors = rerank.Items{Features: *side.rows, Starts: side.starts}
		*side.rows = late.Means(*side.rows, side.starts)
	}
	return nil
}

// withModel returns the input with another model in place of Model.
func (in Input) withModel(m route.Model) Input {
	in.Model = m
	return in
}

func (in Input) check() error {
	spec := in.Model.Similarity.Spec()
	switch {
	case in.K < 1:
		return fmt.Errorf("%w: k is %d; ask for 1 at least", ErrInput, in.K)
	case in.Queries.Cols != spec.QueryDim:
		return fmt.Errorf("%w: queries have %d columns, model %s takes %d", ErrInput, in.Queries.Cols, in.Model.Name, spec.QueryDim)
	case in.Items.Cols != spec.ItemDim:
		return fmt.Errorf("%w: items have %d columns, model %s takes %d", ErrInput, in.Items.Cols, in.Model.Name, spec.ItemDim)
	case in.Confidence <= 0 || in.Confidence >= 1:
		return fmt.Errorf("%w: confidence is %v; want above 0 and below 1", ErrInput, in.Confidence)
	case !(in.Margin >= 0 && in.Margin < 1) || !(in.LeastGain >= 0) || !(in.Power >= 0):
		return fmt.Errorf("%w: margin is %v, the least gain %v and the difference to plan for %v; want a margin from 0 to below 1, and differences of 0 at least",
			ErrInput, in.Margin, in.LeastGain, in.Power)
	case in.Metric != "" && !slices.Contains(metricNames(in.K), in.Metric):
		return fmt.Errorf("%w: metric %q is none of %s", ErrInput, in.Metric, strings.Join(metricNames(in.K), ", "))
	case in.Resamples < 1:
		return fmt.Errorf("%w: %d resamples; want 1 at least", ErrInput, in.Resamples)
	case in.Popularity != nil && len(in.Popularity) != in.Items.Rows:
		return fmt.Errorf("%w: popularity of %d items for %d", ErrInput, len(in.Popularity), in.Items.Rows)
	case in.Seen != nil && len(in.Seen) != in.Queries.Rows:
		return fmt.Errorf("%w: seen items of %d queries for %d", ErrInput, len(in.Seen), in.Queries.Rows)
	case in.Asked != nil && len(in.Asked) != in.Queries.Rows || in.SeenBefore != nil && len(in.SeenBefore) != in.Queries.Rows:
		return fmt.Errorf("%w: traffic of %d queries, %d marked as seen or not, for %d", ErrInput, len(in.Asked), len(in.SeenBefore), in.Queries.Rows)
	case in.QueryIDs != nil && len(in.QueryIDs) != in.Queries.Rows:
		return fmt.Errorf("%w: %d query ids for %d queries", ErrInput, len(in.QueryIDs), in.Queries.Rows)
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

// countNotFinite counts the rows with an element that is not finite.
func countNotFinite(m rerank.Matrix) int {
	n := 0
	for r := range m.Rows {
		if rerank.CheckFinite("item", m.Row(r)) != nil {
			n++
		}
	}
	return n
}

// queries returns the queries of the given rows, each with its several vectors if it has them and the
// model takes them.
func (in Input) queries(rows []int, s rerank.Spec) []rerank.Query {
	queries := make([]rerank.Query, len(rows))
	starts := in.queryVectors.Starts
	for i, row := range rows {
		if s.ManyVectors && starts != nil {
			queries[i].Vectors = in.queryVectors.Features.Slice(int(starts[row]), int(starts[row+1]))
		} else {
			queries[i].Vector = in.Queries.Row(row)
		}
		if in.UserIDs != nil {
			queries[i].UserID, queries[i].HasUserID = in.UserIDs[row], true
		}
	}
	return queries
}

// seen returns the rows of items that were seen before a query row.
func (in Input) seen(row int) []int32 {
	if in.Seen == nil {
		return nil
	}
	return in.Seen[row]
}

// blockRows is the number of rows that one call encodes or scores, which fit the
// second-level cache.
const blockRows = 512

// features computes the feature rows of every item and keeps them in an in-memory table. An item has
// a row for each of its vectors, if the model takes several, and for each of its behavioural vectors.
func (in Input) features(ctx context.Context, m route.Model, v *maxsim.Vectors) (*table.Table, error) {
	items, ids, starts := in.Items, in.ItemIDs, []int32(nil)
	if ids == nil {
		ids = rowIDs(items.Rows)
	}
	switch {
	case v != nil:
		items, starts = v.Behind(items, ids)
	case m.Similarity.Spec().ManyVectors && in.itemVectors.Starts != nil:
		items, starts = in.itemVectors.Features, in.itemVectors.Starts
	}
	features := rerank.NewMatrix(items.Rows, m.Similarity.Spec().Features)
	done := in.Progress.begin("encoding items with "+m.Name, items.Rows)
	err := runParallel(ctx, (items.Rows+blockRows-1)/blockRows, func(_, b int) error {
		from, to := b*blockRows, min((b+1)*blockRows, items.Rows)
		if err := m.Similarity.EncodeItems(features.Slice(from, to), items.Slice(from, to)); err != nil {
			return fmt.Errorf("encoding items %d to %d: %w", from, to-1, err)
		}
		done(to - from)
		return nil
	})
	if err != nil {
		return nil, err
	}
	meta := table.Meta{Model: m.Name, ModelVersion: m.Version, Kind: string(m.Similarity.Spec().Kind), Collection: collection}
	return table.FromMemory(meta, ids, features, starts)
}

// runParallel calls f for the numbers from 0 to count, in ascending order, on one
// goroutine for each core. It stops at the first error or when the context ends.
func runParallel(ctx context.Context, count int, f func(worker, n int) error) error {
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
