package fit

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// cutoff is the length of the rankings that judge a fit.
const cutoff = 10

// budget bounds the inner products of one judgement, so that a large
// collection is judged on fewer queries.
const budget = 1 << 28

// judge measures how well the held-out queries find their items among all items.
type judge struct {
	problem *problem
	queries []int32
	items   []int32 // the first wanted item of each query
	vectors rerank.Matrix
	// wanted says which of a query's items count; nil: all. The others neither
	// count nor stand in the way.
	wanted func(item int32) bool
}

func newJudge(p *problem, queries []int32, wanted func(item int32) bool) *judge {
	j := &judge{problem: p, wanted: wanted}
	most := max(200, budget/(p.items.Rows*p.items.Cols/64+1))
	step := max(1, len(queries)/most)
	for i := 0; i < len(queries); i += step {
		for _, x := range p.relevant[queries[i]] {
			if wanted == nil || wanted(x) {
				j.queries, j.items = append(j.queries, queries[i]), append(j.items, x)
				break
			}
		}
	}
	j.vectors = rerank.NewMatrix(len(j.queries), p.queries.Cols)
	gather(j.vectors, p.queries, j.queries)
	return j
}

// reciprocal returns 1/rank of each query's best wanted item, 0 beyond the
// cutoff, under φ = ⟨probe(q), x⟩; equal scores rank by item row.
func (j *judge) reciprocal(probe func(u, q rerank.Matrix)) []float64 {
	items := j.problem.items
	out := make([]float64, len(j.queries))
	block := max(1, min(512, (1<<22)/items.Rows))
	u, s := rerank.NewMatrix(block, items.Cols), rerank.NewMatrix(block, items.Rows)
	for from := 0; from < len(j.queries); from += block {
		to := min(from+block, len(j.queries))
		u, s := u.Slice(0, to-from), s.Slice(0, to-from)
		probe(u, j.vectors.Slice(from, to))
		multiply(s, u, false, items, true)
		spread(to-from, 16, func(a, b int) {
			for i := a; i < b; i++ {
				out[from+i] = j.rank(s.Row(i), j.problem.relevant[j.queries[from+i]])
			}
		})
	}
	return out
}

func (j *judge) rank(scores []float32, relevant []int32) float64 {
	best := int32(-1)
	top := float32(math.Inf(-1))
	for _, x := range relevant {
		if (j.wanted == nil || j.wanted(x)) && scores[x] > top {
			best, top = x, scores[x]
		}
	}
	if best < 0 {
		return 0
	}
	ahead := 0
	for x, v := range scores {
		if v > top || v == top && int32(x) < best {
			ahead++
		}
	}
	for _, x := range relevant { // no relevant item stands in the way of another
		if scores[x] > top || scores[x] == top && x < best {
			ahead--
		}
	}
	if ahead >= cutoff {
		return 0
	}
	return 1 / float64(ahead+1)
}

// plain is the probe of the inner product itself: cosine, on unit vectors.
func plain(u, q rerank.Matrix) { copy(u.Data, q.Data) }

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(len(v), 1))
}
