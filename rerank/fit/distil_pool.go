package fit

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/rerank"
)

// pool are the items over which the softmax of a batch runs: the whole
// collection, or, where it is large, the batch's targets and a uniform sample.
type pool struct {
	items   rerank.Matrix
	vectors rerank.Matrix // one row a candidate
	column  []int32       // of each item row; −1: no candidate
	rows    []int32       // of each column; nil: all items
	// correction is −log of each candidate's chance to be one; nil: they are certain.
	correction []float32

	sampled int // draws a batch; 0: all items are candidates
	chance  []float32
}

func newPool(items rerank.Matrix, lists []ranked, batch, limit, draws int) *pool {
	p := &pool{items: items, column: make([]int32, items.Rows)}
	if items.Rows <= limit {
		for x := range p.column {
			p.column[x] = int32(x)
		}
		p.vectors = items
		return p
	}
	p.sampled = draws
	for x := range p.column {
		p.column[x] = -1
	}
	listed := make([]float64, items.Rows)
	for _, l := range lists {
		for _, x := range l.rows {
			listed[x]++
		}
	}
	p.chance = make([]float32, items.Rows)
	for x, n := range listed {
		absent := float64(batch)*math.Log1p(-min(n/float64(len(lists)), 1-1e-9)) + float64(draws)*math.Log1p(-1/float64(items.Rows))
		p.chance[x] = float32(-math.Log(-math.Expm1(absent)))
	}
	return p
}

// draw makes the candidates of a batch, numbers of lists.
func (p *pool) draw(batch []int, lists []ranked, rng *rand.Rand) {
	if p.sampled == 0 {
		return
	}
	for _, x := range p.rows {
		p.column[x] = -1
	}
	p.rows, p.correction = p.rows[:0], p.correction[:0]
	for _, n := range batch {
		for _, x := range lists[n].rows {
			p.add(x)
		}
	}
	for range p.sampled {
		p.add(int32(rng.IntN(p.items.Rows)))
	}
	p.vectors = grown(p.vectors, len(p.rows), p.items.Cols)
	gather(p.vectors, p.items, p.rows)
}

func (p *pool) add(item int32) {
	if p.column[item] < 0 {
		p.column[item] = int32(len(p.rows))
		p.rows, p.correction = append(p.rows, item), append(p.correction, p.chance[item])
	}
}
