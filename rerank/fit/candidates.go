package fit

import (
	"math"
	"math/rand/v2"
	"sort"

	"github.com/likenessdb/likeness/rerank"
)

// candidates are the items among which a pair's item is to be found: all that
// have pairs, where they are few, or the batch's own and a sample.
//
// Items without pairs are never candidates. As such they could only be wrong
// answers, and the fit would push down what the log does not know.
type candidates struct {
	items   rerank.Matrix // of the problem
	column  []int32       // by item row; −1: no candidate
	rows    []int32       // by column
	vectors rerank.Matrix
	// correction is −log of each candidate's chance to be one; nil: they are certain.
	correction []float32

	sampled    int // draws a batch; 0: all items are candidates
	cumulative []float64
	chance     []float32 // by item row: −log of its chance
	rng        *rand.Rand
}

// newCandidates takes the share of each item in the pairs: every query counts the
// same if starts says where theirs begin, and every pair if it is nil. Beyond limit items it samples
// with the root of the popularity: draws of them a batch, beside the batch's own.
func newCandidates(items rerank.Matrix, pairs []pair, starts []int, batch, limit, draws int, rng *rand.Rand) *candidates {
	c := &candidates{items: items, column: make([]int32, items.Rows), rng: rng}
	popularity := make([]float64, items.Rows)
	for i, share := range shares(len(pairs), starts) {
		popularity[pairs[i].item] += share
	}
	for x := range c.column {
		c.column[x] = -1
		if popularity[x] > 0 {
			c.rows = append(c.rows, int32(x))
		}
	}
	if len(c.rows) <= limit {
		c.place()
		return c
	}
	c.sampled = draws
	c.weigh(popularity, batch)
	c.rows = c.rows[:0]
	return c
}

// weigh computes the chance of each item to be in the batch or in the sample.
func (c *candidates) weigh(popularity []float64, batch int) {
	var total float64
	c.cumulative, c.chance = make([]float64, len(popularity)), make([]float32, len(popularity))
	for x, n := range popularity {
		total += math.Sqrt(n)
		c.cumulative[x] = total
	}
	for x, n := range popularity {
		if n == 0 {
			continue
		}
		absent := float64(batch)*math.Log1p(-min(n, 1-1e-9)) + float64(c.sampled)*math.Log1p(-math.Sqrt(n)/total)
		c.chance[x] = float32(-math.Log(-math.Expm1(absent)))
	}
}

// place numbers the candidates and copies their vectors.
func (c *candidates) place() {
	for i, x := range c.rows {
		c.column[x] = int32(i)
	}
	c.vectors = grown(c.vectors, len(c.rows), c.items.Cols)
	gather(c.vectors, c.items, c.rows)
}

// draw makes the candidates of a batch.
func (c *candidates) draw(batch []pair) {
	if c.sampled == 0 {
		return
	}
	for _, x := range c.rows {
		c.column[x] = -1
	}
	c.rows = c.rows[:0]
	for _, p := range batch {
		c.add(p.item)
	}
	total := c.cumulative[len(c.cumulative)-1]
	for range c.sampled {
		c.add(int32(sort.SearchFloat64s(c.cumulative, c.rng.Float64()*total)))
	}
	c.correction = c.correction[:0]
	for _, x := range c.rows {
		c.correction = append(c.correction, c.chance[x])
	}
	c.place()
}

func (c *candidates) add(item int32) {
	if c.column[item] < 0 {
		c.column[item] = int32(len(c.rows))
		c.rows = append(c.rows, item)
	}
}

// shares is what each of n pairs counts of all: every query the same, whose pairs
// begin at starts, or every pair where that is nil.
func shares(n int, starts []int) []float64 {
	out := make([]float64, n)
	if starts == nil {
		for i := range out {
			out[i] = 1 / float64(n)
		}
		return out
	}
	for q, from := range starts[:len(starts)-1] {
		own := out[from:starts[q+1]]
		for i := range own {
			own[i] = 1 / float64(len(own)*(len(starts)-1))
		}
	}
	return out
}
