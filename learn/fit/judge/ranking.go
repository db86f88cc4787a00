package judge

import (
	"math"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// top holds the first rows of a ranking, by descending score and then by row.
type top struct {
	rows   [Cutoff]int32
	scores [Cutoff]float32
	n      int
}

// add ranks the scores of the rows from first on. Rows are added in ascending order.
func (t *top) add(scores []float32, first int) {
	for x, v := range scores {
		if t.n == Cutoff && v <= t.scores[t.n-1] {
			continue
		}
		if t.n < Cutoff {
			t.n++
		}
		i := t.n - 1
		for ; i > 0 && t.scores[i-1] < v; i-- {
			t.rows[i], t.scores[i] = t.rows[i-1], t.scores[i-1]
		}
		t.rows[i], t.scores[i] = int32(first+x), v
	}
}

// ranking ranks all items for a block of queries. Its memory is reused.
type ranking struct {
	judge   *Judge
	queries []int32
	tops    []top
	// ceilings bounds the score of each query's best wanted item from above. A query is done once
	// ten items score more: none of its wanted items can be among the first ten.
	ceilings []float32

	open    []int         // queries that are not done, as places in queries
	vectors rerank.Matrix // of the open queries
	scores  rerank.Matrix
}

// begin starts the ranking of a block of queries by their vectors.
func (r *ranking) begin(j *Judge, vectors rerank.Matrix, queries []int32) {
	r.judge, r.queries = j, queries
	r.tops, r.ceilings = make([]top, len(queries)), make([]float32, len(queries))
	r.open = r.open[:0]
	for i := range queries {
		r.open = append(r.open, i)
	}
	r.vectors = linalg.Resize(r.vectors, vectors.Rows, vectors.Cols)
	copy(r.vectors.Data, vectors.Data)
	if j.log.Items.Rows <= itemBlock {
		return // all scores come at once
	}
	linalg.Parallel(len(queries), 16, func(a, b int) {
		for i := a; i < b; i++ {
			r.ceilings[i] = j.ceiling(vectors.Row(i), queries[i])
		}
	})
}

// ceiling returns a score that the best wanted item of query q does not exceed, however its
// inner product with the vector is rounded. It is NaN, which no score exceeds, if a score is not
// finite.
func (j *Judge) ceiling(vector []float32, q int32) float32 {
	best := math.Inf(-1)
	for _, x := range j.log.Relevant[q] {
		if !j.wants(q, x) {
			continue
		}
		row := j.log.Items.Row(int(x))
		slack := float64(len(row)+2) * 0x1p-23 * rerank.Norm(vector) * rerank.Norm(row)
		best = max(best, linalg.Dot(vector, row)+slack)
	}
	if math.IsInf(best, 0) {
		return float32(math.NaN())
	}
	return math.Nextafter32(float32(best), float32(math.Inf(1)))
}

// rank scores the items block by block until every query is done.
func (r *ranking) rank() {
	items := r.judge.log.Items
	for first := 0; first < items.Rows && len(r.open) > 0; first += itemBlock {
		block := items.Slice(first, min(first+itemBlock, items.Rows))
		r.scores = linalg.Resize(r.scores, len(r.open), block.Rows)
		linalg.Multiply(r.scores, r.vectors, false, block, true)
		linalg.Parallel(len(r.open), 16, func(a, b int) {
			for i := a; i < b; i++ {
				at := r.open[i]
				r.judge.hide(r.scores.Row(i), first, r.queries[at])
				r.tops[at].add(r.scores.Row(i), first)
			}
		})
		if first+itemBlock < items.Rows {
			r.dropDone()
		}
	}
}

// dropDone drops the queries that are done.
func (r *ranking) dropDone() {
	n := 0
	for i, at := range r.open {
		if t := &r.tops[at]; t.n == Cutoff && t.scores[Cutoff-1] > r.ceilings[at] {
			*t = top{} // no hits
			continue
		}
		copy(r.vectors.Row(n), r.vectors.Row(i))
		r.open[n] = at
		n++
	}
	r.open, r.vectors = r.open[:n], r.vectors.Slice(0, n)
}
