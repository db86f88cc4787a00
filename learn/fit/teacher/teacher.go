// Package teacher asks a similarity for its ranking of a collection: fits of first stages learn from
// that ranking, and are judged by it.
package teacher

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// Teacher is a similarity with the collection and the queries that it ranks. It is immutable and safe
// for concurrent use.
type Teacher struct {
	Similarity rerank.Similarity
	Abilities  rerank.Abilities
	// Items holds the stored vectors, Encoded the items as feature rows.
	Items   rerank.Matrix
	Encoded rerank.Items
	// Queries holds the query vectors, as they are asked, and QueryStarts those of each query; see
	// fit.Data. Users holds the user of each query; nil if the users are not known.
	Queries     rerank.Matrix
	QueryStarts []int32
	Users       []int64
}

// New encodes the items of the data. It returns fit.ErrData.
func New(m rerank.Similarity, d fit.Data) (*Teacher, error) {
	t := &Teacher{
		Similarity: m, Abilities: rerank.AbilitiesOf(m), Items: d.Items,
		Encoded: rerank.Items{Features: rerank.NewMatrix(d.Items.Rows, m.Spec().Features), Starts: d.ItemStarts},
		Queries: d.Queries, QueryStarts: d.QueryStarts, Users: d.UserIDs,
	}
	if err := m.EncodeItems(t.Encoded.Features, d.Items); err != nil {
		return nil, fmt.Errorf("%w: items: %w", fit.ErrData, err)
	}
	return t, nil
}

// Encode encodes a query by its number. It returns fit.ErrData.
func (t *Teacher) Encode(query int32) (rerank.Encoded, error) {
	var q rerank.Query
	if t.QueryStarts != nil {
		q.Vectors = t.Queries.Slice(int(t.QueryStarts[query]), int(t.QueryStarts[query+1]))
	} else {
		q.Vector = t.Queries.Row(int(query))
	}
	if t.Users != nil {
		q.UserID, q.HasUserID = t.Users[query], true
	}
	e, err := t.Similarity.Encode(q)
	if err != nil {
		return nil, fmt.Errorf("%w: query %d: %w", fit.ErrData, query, err)
	}
	return e, nil
}

// Score writes the scores of all items, for one query after the other.
func (t *Teacher) Score(dst []float32, queries []rerank.Encoded) error {
	items, n := t.Encoded, t.Encoded.Len()
	if t.Abilities.ScoreBatch != nil {
		return t.Abilities.ScoreBatch.ScoreBatch(dst, queries, items)
	}
	for i, e := range queries {
		if err := e.Score(dst[i*n:(i+1)*n], items); err != nil {
			return err
		}
	}
	return nil
}

// scoreBatch is the number of queries that are scored together.
const scoreBatch = 8

// EachScored scores all items for each of the queries, on every core, and calls f with the place of
// the query in queries, the encoded query and the scores, which f may change. Calls of f and done
// run at the same time. It returns fit.ErrData, an error of f, or the context's error.
func (t *Teacher) EachScored(ctx context.Context, queries []int32, done func(int), f func(i int, e rerank.Encoded, scores []float32) error) error {
	return t.eachBatch(ctx, queries, done, func(from int, encoded []rerank.Encoded) error {
		n := t.Encoded.Len()
		scores := make([]float32, len(encoded)*n)
		if err := t.Score(scores, encoded); err != nil {
			return err
		}
		for i, e := range encoded {
			if err := f(from+i, e, scores[i*n:(i+1)*n]); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachBatch calls f for batches of encoded queries, on every core. from is the place of the batch's
// first query.
func (t *Teacher) eachBatch(ctx context.Context, queries []int32, done func(int), f func(from int, encoded []rerank.Encoded) error) error {
	return linalg.ParallelErr(len(queries), scoreBatch, func(from, to int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		for begin := from; begin < to; begin += scoreBatch { // one worker alone gets all queries in one call
			encoded := make([]rerank.Encoded, min(scoreBatch, to-begin))
			for i := range encoded {
				var err error
				if encoded[i], err = t.Encode(queries[begin+i]); err != nil {
					return err
				}
			}
			if err := f(begin, encoded); err != nil {
				return err
			}
			done(len(encoded))
		}
		return nil
	})
}

// Ranked holds the best items of a query by the similarity, best first.
type Ranked struct {
	Rows   []int32
	Scores []float32
}

// Rank ranks scores and keeps the best n. rows holds the row of each score; if it is nil, score i
// belongs to row i.
func Rank(scores []float32, rows []int32, n int) Ranked {
	best := BestRows(scores, n)
	r := Ranked{Rows: best, Scores: make([]float32, len(best))}
	for i, at := range best {
		r.Scores[i] = scores[at]
		if rows != nil {
			r.Rows[i] = rows[at]
		}
	}
	return r
}

// RankAll ranks all items for each of the queries and keeps the best n. It returns fit.ErrData or
// the context's error.
func (t *Teacher) RankAll(ctx context.Context, queries []int32, n int, done func(int)) ([]Ranked, error) {
	out := make([]Ranked, len(queries))
	err := t.EachScored(ctx, queries, done, func(i int, _ rerank.Encoded, scores []float32) error {
		out[i] = Rank(scores, nil, n)
		return checkRanked(out[i], queries[i])
	})
	return out, err
}

// Rescore ranks the given items of each query, and keeps the best n. It returns fit.ErrData or the
// context's error.
func (t *Teacher) Rescore(ctx context.Context, queries []int32, lists [][]int32, n int, done func(int)) ([]Ranked, error) {
	out := make([]Ranked, len(queries))
	return out, t.eachBatch(ctx, queries, done, func(from int, encoded []rerank.Encoded) error {
		for i, e := range encoded {
			list := lists[from+i]
			scores := make([]float32, len(list))
			if err := e.Score(scores, t.Encoded.Pick(list)); err != nil {
				return err
			}
			out[from+i] = Rank(scores, list, n)
			if err := checkRanked(out[from+i], queries[from+i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func checkRanked(r Ranked, query int32) error {
	if len(r.Rows) == 0 {
		return fmt.Errorf("%w: query %d has no item with a finite score", fit.ErrData, query)
	}
	return nil
}

// BestRows returns the places of the n greatest scores, greatest first, equal ones in their order.
// NaN and −Inf are left out.
func BestRows(scores []float32, n int) []int32 {
	order := func(a, b int32) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	}
	room := max(2*n, 64)
	rows, floor := make([]int32, 0, room), float32(math.Inf(-1))
	for x, v := range scores {
		if !(v > floor) {
			continue
		}
		rows = append(rows, int32(x))
		if len(rows) == room {
			slices.SortFunc(rows, order)
			rows = rows[:n]
			floor = scores[rows[n-1]]
		}
	}
	slices.SortFunc(rows, order)
	return slices.Clip(rows[:min(n, len(rows))])
}
