package train

import (
	"math"
	"math/rand/v2"
	"sort"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// Candidates are the items over which the softmax of a pair runs: all items with pairs
// if these are few, otherwise the items of the batch and a random sample.
//
// Items without pairs are candidates only if people looked at them. Others could only be wrong
// answers, and the fit would lower the scores of items about which the log says nothing.
type Candidates struct {
	// Vectors holds one candidate a row, Rows the item row of each.
	Vectors rerank.Matrix
	Rows    []int32
	// Columns has the place of each item row among the candidates, −1 if the item is no
	// candidate.
	Columns []int32
	// Correction is −log of each candidate's chance of being one. It is nil if every item with
	// pairs is a candidate.
	Correction []float32

	items      rerank.Matrix
	draws      int       // sampled items per batch; 0 if every item with pairs is a candidate
	cumulative []float64 // sums of the sampling weights of the items up to each row
	rareness   []float32 // of each item row: −log of its chance to be a candidate
	looks      [][]clicks.Look
}

// looksPerPair is the number of items that people looked at for the query of a pair, and that are
// candidates with it. They are the hardest to tell from the chosen one.
const looksPerPair = 8

// CandidateLimits says when candidates are sampled.
type CandidateLimits struct {
	// All is the number of items with pairs up to which all of them are candidates.
	All int
	// Draws is the number of sampled items per batch, if there are more items.
	Draws int
	// Batch is the size of a batch.
	Batch int
	// Looks says at which items people looked for each query; nil if unknown.
	Looks [][]clicks.Look
}

// NewCandidates makes candidates for batches of the pairs, which list the pairs query
// by query. A sample draws each item with the square root of its popularity, in which
// every query counts the same.
func NewCandidates(items rerank.Matrix, pairs []samples.Pair, limits CandidateLimits) *Candidates {
	c := &Candidates{items: items, Columns: make([]int32, items.Rows), looks: limits.Looks}
	popularity := make([]float64, items.Rows) // how often a pair of a batch brings each item, on the mean
	for i, share := range pairShares(samples.PairStarts(pairs)) {
		popularity[pairs[i].Item] += share
		for _, l := range c.looksOf(pairs[i]) {
			if l.Item != pairs[i].Item {
				popularity[l.Item] += share * min(1, looksPerPair/float64(len(c.looksOf(pairs[i]))))
			}
		}
	}
	for x := range c.Columns {
		c.Columns[x] = -1
		if popularity[x] > 0 {
			c.Rows = append(c.Rows, int32(x))
		}
	}
	if len(c.Rows) <= limits.All {
		c.numberColumns()
		return c
	}
	c.draws = limits.Draws
	c.weighItems(popularity, limits.Batch)
	c.Rows = c.Rows[:0]
	return c
}

// weighItems computes the chance of each item to be in a batch or in its sample.
func (c *Candidates) weighItems(popularity []float64, batch int) {
	var total float64
	c.cumulative, c.rareness = make([]float64, len(popularity)), make([]float32, len(popularity))
	for x, share := range popularity {
		total += math.Sqrt(share)
		c.cumulative[x] = total
	}
	for x, share := range popularity {
		if share == 0 {
			continue
		}
		logAbsent := float64(batch)*math.Log1p(-min(share, 1-1e-9)) + float64(c.draws)*math.Log1p(-math.Sqrt(share)/total)
		c.rareness[x] = float32(-math.Log(-math.Expm1(logAbsent)))
	}
}

// numberColumns gives each candidate its column and copies its vector.
func (c *Candidates) numberColumns() {
	for i, x := range c.Rows {
		c.Columns[x] = int32(i)
	}
	c.Vectors = linalg.Resize(c.Vectors, len(c.Rows), c.items.Cols)
	linalg.GatherRows(c.Vectors, c.items, c.Rows)
}

// Draw chooses the candidates of a batch, if they are sampled.
func (c *Candidates) Draw(batch []samples.Pair, rng *rand.Rand) {
	if c.draws == 0 {
		return
	}
	for _, x := range c.Rows {
		c.Columns[x] = -1
	}
	c.Rows = c.Rows[:0]
	for _, p := range batch {
		c.add(p.Item)
		looks := c.looksOf(p)
		for _, l := range looks {
			if len(looks) <= looksPerPair || rng.IntN(len(looks)) < looksPerPair {
				c.add(l.Item)
			}
		}
	}
	total := c.cumulative[len(c.cumulative)-1]
	for range c.draws {
		c.add(int32(sort.SearchFloat64s(c.cumulative, rng.Float64()*total)))
	}
	c.Correction = c.Correction[:0]
	for _, x := range c.Rows {
		c.Correction = append(c.Correction, c.rareness[x])
	}
	c.numberColumns()
}

// looksOf returns the looks for the query of a pair.
func (c *Candidates) looksOf(p samples.Pair) []clicks.Look {
	if c.looks == nil {
		return nil
	}
	return c.looks[p.Query]
}

// add makes an item a candidate, once.
func (c *Candidates) add(item int32) {
	if c.Columns[item] < 0 {
		c.Columns[item] = int32(len(c.Rows))
		c.Rows = append(c.Rows, item)
	}
}

// pairShares returns the share of each pair in all, where every query has the same
// share and divides it among its pairs. starts says where the pairs of each query
// begin, and where all end.
func pairShares(starts []int) []float64 {
	queries := len(starts) - 1
	shares := make([]float64, starts[queries])
	for q, from := range starts[:queries] {
		own := shares[from:starts[q+1]]
		for i := range own {
			own[i] = 1 / float64(len(own)*queries)
		}
	}
	return shares
}
