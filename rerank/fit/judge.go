package fit

import (
	"math"
	"math/bits"
	"slices"

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
	count   []int32 // wanted items of each query
	weights []float64
	vectors rerank.Matrix
	// wanted says which of a query's items count; nil: all. The others neither
	// count nor stand in the way, nor do items with the query's own vector.
	wanted func(item int32) bool
}

func newJudge(p *problem, queries []int32, wanted func(item int32) bool) *judge {
	j := &judge{problem: p, wanted: wanted}
	most := max(200, budget/(p.items.Rows*p.items.Cols/64+1))
	step := max(1, len(queries)/most)
	for i := 0; i < len(queries); i += step {
		q := queries[i]
		var count int32
		var weight float64
		first := int32(-1)
		for k, x := range p.relevant[q] {
			if j.counts(q, x) {
				count, weight = count+1, weight+float64(p.weight(q, k))
				if first < 0 {
					first = x
				}
			}
		}
		if count > 0 {
			j.queries, j.items, j.count = append(j.queries, q), append(j.items, first), append(j.count, count)
			j.weights = append(j.weights, weight/float64(count))
		}
	}
	j.vectors = rerank.NewMatrix(len(j.queries), p.queries.Cols)
	gather(j.vectors, p.queries, j.queries)
	return j
}

func (j *judge) isOwn(q, x int32) bool {
	return j.problem.own != nil && slices.Contains(j.problem.own[q], x)
}

// counts: an item is wanted, and not the query itself unless that is all it found.
func (j *judge) counts(q, x int32) bool {
	return (j.wanted == nil || j.wanted(x)) && (!j.isOwn(q, x) || len(j.problem.relevant[q]) == 1)
}

// hits are the places of a ranking's first cutoff that hold wanted items: bit i
// is place i.
type hits uint16

// rankings returns the hits of each query under φ = ⟨probe(q), x⟩; equal scores
// rank by item row.
func (j *judge) rankings(probe func(u, q rerank.Matrix)) []hits {
	items := j.problem.items
	out := make([]hits, len(j.queries))
	block := max(1, min(512, (1<<22)/items.Rows))
	u, s := rerank.NewMatrix(block, items.Cols), rerank.NewMatrix(block, items.Rows)
	for from := 0; from < len(j.queries); from += block {
		to := min(from+block, len(j.queries))
		u, s := u.Slice(0, to-from), s.Slice(0, to-from)
		probe(u, j.vectors.Slice(from, to))
		multiply(s, u, false, items, true)
		spread(to-from, 16, func(a, b int) {
			for i := a; i < b; i++ {
				out[from+i] = j.rank(s.Row(i), j.queries[from+i])
			}
		})
	}
	return out
}

// rank destroys the scores of what is left out of the ranking.
func (j *judge) rank(scores []float32, q int32) hits {
	out := float32(math.Inf(-1))
	relevant := j.problem.relevant[q]
	for _, x := range relevant {
		if !j.counts(q, x) {
			scores[x] = out
		}
	}
	if j.problem.own != nil {
		for _, x := range j.problem.own[q] {
			if !j.counts(q, x) || !slices.Contains(relevant, x) {
				scores[x] = out
			}
		}
	}
	var found hits
	for place, x := range first(scores) {
		if x >= 0 && scores[x] > out {
			if _, in := slices.BinarySearch(relevant, x); in {
				found |= 1 << place
			}
		}
	}
	return found
}

// first are the rows of the greatest scores, in their order; −1 beyond them.
func first(scores []float32) [cutoff]int32 {
	var rows [cutoff]int32
	n := 0
	for x, v := range scores {
		if n == cutoff && v <= scores[rows[n-1]] {
			continue
		}
		if n < cutoff {
			n++
		}
		i := n - 1
		for ; i > 0 && scores[rows[i-1]] < v; i-- {
			rows[i] = rows[i-1]
		}
		rows[i] = int32(x)
	}
	for ; n < cutoff; n++ {
		rows[n] = -1
	}
	return rows
}

// marks are 1/rank of each query's best wanted item, and nDCG@10.
func (j *judge) marks(probe func(u, q rerank.Matrix)) (reciprocal, gain []float64) {
	for i, h := range j.rankings(probe) {
		reciprocal, gain = append(reciprocal, h.reciprocal()), append(gain, h.gain(j.count[i]))
	}
	return reciprocal, gain
}

// quality is the mean of MRR@10, which sees the first right place, and nDCG@10,
// which sees the whole first page.
func (j *judge) quality(probe func(u, q rerank.Matrix)) float64 {
	reciprocal, gain := j.marks(probe)
	return (j.mean(reciprocal) + j.mean(gain)) / 2
}

// mean is the weighted one over the queries.
func (j *judge) mean(v []float64) float64 { return weightedMean(v, j.weights) }

func (j *judge) compare(scores, baseline []float64) Comparison {
	return compareWeighted(scores, baseline, j.weights, j.items)
}

func (j *judge) reciprocal(probe func(u, q rerank.Matrix)) []float64 {
	h := j.rankings(probe)
	out := make([]float64, len(h))
	for i, v := range h {
		out[i] = v.reciprocal()
	}
	return out
}

// reciprocal is 1/rank of the best wanted item, 0 beyond the cutoff.
func (h hits) reciprocal() float64 {
	if h == 0 {
		return 0
	}
	return 1 / float64(1+bits.TrailingZeros16(uint16(h)))
}

// gain is the discounted gain of a ranking over that of a perfect one (nDCG@10,
// Järvelin and Kekäläinen 2002), for that many wanted items.
func (h hits) gain(wanted int32) float64 {
	var sum, ideal float64
	for i := range cutoff {
		d := 1 / math.Log2(float64(i+2))
		if h>>i&1 == 1 {
			sum += d
		}
		if int32(i) < wanted {
			ideal += d
		}
	}
	return sum / ideal
}

// plain is the probe of the inner product itself: cosine, on unit vectors.
func plain(u, q rerank.Matrix) { copy(u.Data, q.Data) }

func mean(v []float64) float64 { return weightedMean(v, nil) }

// weightedMean is 0 of nothing; nil weights are 1 each.
func weightedMean(v, weights []float64) float64 {
	var sum, total float64
	for i, x := range v {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		sum, total = sum+w*x, total+w
	}
	if total == 0 {
		return 0
	}
	return sum / total
}
