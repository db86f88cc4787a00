package fit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// teacher is the similarity that a probe learns to rank like.
type teacher struct {
	similarity rerank.Similarity
	base       rerank.Matrix // the items as they are stored
	features   rerank.Matrix
	queries    rerank.Matrix
	users      []int64
}

// ranked are the best items of a query by the similarity, best first.
type ranked struct {
	rows   []int32
	scores []float32
}

func newTeacher(m rerank.Similarity, d Data) (*teacher, error) {
	t := &teacher{similarity: m, base: d.Items, queries: d.Queries, users: d.UserIDs}
	t.features = rerank.NewMatrix(d.Items.Rows, m.Spec().Features)
	if err := m.EncodeItems(t.features, d.Items); err != nil {
		return nil, fmt.Errorf("%w: items: %w", ErrData, err)
	}
	return t, nil
}

func (t *teacher) encode(query int32) (rerank.Encoded, error) {
	q := rerank.Query{Vector: t.queries.Row(int(query))}
	if t.users != nil {
		q.UserID, q.HasUserID = t.users[query], true
	}
	e, err := t.similarity.Encode(q)
	if err != nil {
		return nil, fmt.Errorf("%w: query %d: %w", ErrData, query, err)
	}
	return e, nil
}

// teachBlock is the number of queries from one look at the context to the next.
const teachBlock = 64

// top ranks all items for each of the queries and keeps the best n. It returns
// ErrData or the context's error.
func (t *teacher) top(ctx context.Context, queries []int32, n int, done func(int)) ([]ranked, error) {
	return t.each(ctx, queries, done, func(i int, e rerank.Encoded, scores []float32) (ranked, error) {
		if err := e.Score(scores, rerank.Items{Features: t.features}); err != nil {
			return ranked{}, err
		}
		rows := bestRows(scores, n)
		return ranked{rows: rows, scores: picked(scores, rows)}, nil
	})
}

// rescore ranks the given items of each query, and keeps the best n.
func (t *teacher) rescore(ctx context.Context, queries []int32, lists [][]int32, n int, done func(int)) ([]ranked, error) {
	return t.each(ctx, queries, done, func(i int, e rerank.Encoded, scores []float32) (ranked, error) {
		scores = scores[:len(lists[i])]
		if err := e.Score(scores, rerank.Items{Features: t.features, Rows: lists[i]}); err != nil {
			return ranked{}, err
		}
		at := bestRows(scores, n)
		r := ranked{scores: picked(scores, at)}
		for _, k := range at {
			r.rows = append(r.rows, lists[i][k])
		}
		return r, nil
	})
}

// each calls f for every query, on every core; scores has room for all items.
func (t *teacher) each(ctx context.Context, queries []int32, done func(int), f func(i int, e rerank.Encoded, scores []float32) (ranked, error)) ([]ranked, error) {
	out, errs := make([]ranked, len(queries)), make([]error, len(queries))
	for from := 0; from < len(queries); from += teachBlock {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(from+teachBlock, len(queries))
		spread(to-from, 8, func(a, b int) {
			scores := make([]float32, t.base.Rows)
			for i := from + a; i < from+b; i++ {
				e, err := t.encode(queries[i])
				if err == nil {
					out[i], err = f(i, e, scores)
				}
				errs[i] = err
			}
		})
		for i, err := range errs[from:to] {
			if err != nil {
				return nil, err
			}
			if len(out[from+i].rows) == 0 {
				return nil, fmt.Errorf("%w: query %d has no item with a finite score", ErrData, queries[from+i])
			}
		}
		done(to - from)
	}
	return out, nil
}

// bestRows returns the places of the n greatest scores, greatest first, equal ones in
// their order. What is not a number is left out.
func bestRows(scores []float32, n int) []int32 {
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

func picked(scores []float32, rows []int32) []float32 {
	out := make([]float32, len(rows))
	for i, x := range rows {
		out[i] = scores[x]
	}
	return out
}

// temperature is the one at which the softmax of the lists has that perplexity,
// in the geometric mean: as if so many items shared the weight. A temperature
// does not depend on the scale of the similarity then.
func temperature(lists []ranked, perplexity float64) float64 {
	entropy := func(t float64) float64 {
		var sum float64
		for _, l := range lists {
			sum += l.entropy(t)
		}
		return sum / float64(len(lists))
	}
	low, high := 1e-9, 1.0
	for range 60 {
		if entropy(high) >= math.Log(perplexity) {
			break
		}
		low, high = high, high*2
	}
	for range 60 {
		if mid := math.Sqrt(low * high); entropy(mid) < math.Log(perplexity) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// weights writes the softmax of the scores at a temperature.
func (r ranked) weights(dst []float32, temperature float64) {
	var sum float64
	for i, s := range r.scores {
		w := math.Exp(float64(s-r.scores[0]) / temperature)
		dst[i] = float32(w)
		sum += w
	}
	for i := range dst[:len(r.scores)] {
		dst[i] = float32(float64(dst[i]) / sum)
	}
}

func (r ranked) entropy(temperature float64) float64 {
	var sum, first float64
	for _, s := range r.scores {
		d := float64(s-r.scores[0]) / temperature
		w := math.Exp(d)
		sum, first = sum+w, first+w*d
	}
	return math.Log(sum) - first/sum
}
