package distilled

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// pool holds the items over which the softmax of a batch runs: all items, or, if these
// are many, the targets of the batch and a uniform sample.
type pool struct {
	items   rerank.Matrix
	vectors rerank.Matrix // one candidate a row
	column  []int32       // the column of each item row in the scores; −1 if the item is no candidate
	rows    []int32       // the item row of each column; nil if all items are candidates
	// correction is −log of each candidate's chance of being one. It is nil if all items are
	// candidates.
	correction []float32

	draws    int       // sampled items per batch; 0 if all items are candidates
	rareness []float32 // −log of each item row's chance of being a candidate
}

// newPool makes a pool for batches of the lists. If there are at most limit items, all are
// candidates; otherwise draws items are sampled for each batch.
func newPool(items rerank.Matrix, lists []teacher.Ranked, batch, limit, draws int) *pool {
	p := &pool{items: items, column: make([]int32, items.Rows)}
	if items.Rows <= limit {
		for x := range p.column {
			p.column[x] = int32(x)
		}
		p.vectors = items
		return p
	}
	p.draws = draws
	for x := range p.column {
		p.column[x] = -1
	}
	listed := make([]float64, items.Rows)
	for _, l := range lists {
		for _, x := range l.Rows {
			listed[x]++
		}
	}
	p.rareness = make([]float32, items.Rows)
	for x, n := range listed {
		absent := float64(batch)*math.Log1p(-min(n/float64(len(lists)), 1-1e-9)) + float64(draws)*math.Log1p(-1/float64(items.Rows))
		p.rareness[x] = float32(-math.Log(-math.Expm1(absent)))
	}
	return p
}

// drawCandidates chooses the candidates of a batch, whose lists are given by number.
func (p *pool) drawCandidates(batch []int, lists []teacher.Ranked, rng *rand.Rand) {
	if p.draws == 0 {
		return
	}
	for _, x := range p.rows {
		p.column[x] = -1
	}
	p.rows, p.correction = p.rows[:0], p.correction[:0]
	for _, n := range batch {
		for _, x := range lists[n].Rows {
			p.add(x)
		}
	}
	for range p.draws {
		p.add(int32(rng.IntN(p.items.Rows)))
	}
	p.vectors = linalg.Resize(p.vectors, len(p.rows), p.items.Cols)
	linalg.GatherRows(p.vectors, p.items, p.rows)
}

// add makes an item a candidate, once.
func (p *pool) add(item int32) {
	if p.column[item] < 0 {
		p.column[item] = int32(len(p.rows))
		p.rows, p.correction = append(p.rows, item), append(p.correction, p.rareness[item])
	}
}
