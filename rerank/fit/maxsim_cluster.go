package fit

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// clusterBlock is the number of an item's queries that are in memory at a time.
const clusterBlock = 4096

// clusters are one item's queries on the unit sphere, in groups around centres:
// centre 0 is the item's own vector and stays where it is (MVG, section 5.2). An
// empty group keeps its centre, and so does one whose sum vanishes, which has no
// direction; a group that never had a centre draws nobody. It is not safe for
// concurrent use.
type clusters struct {
	source  rerank.Matrix // the query vectors of all items, of any norm
	rows    []int32       // of source: the item's own
	weights []float32     // of rows; nil: 1 each
	centres rerank.Matrix // of norm 1
	known   []bool        // which groups have a centre
	labels  []int32       // the group of each row

	block  rerank.Matrix // clusterBlock rows at most, of norm 1
	loaded int           // the first row of block; −1: none
	scores rerank.Matrix
	sums   []float64
}

// begin takes an item with room for that many groups beside its own vector.
func (c *clusters) begin(item []float32, rows []int32, weights []float32, groups int) {
	c.rows, c.weights, c.loaded = rows, weights, -1
	c.centres = grown(c.centres, groups+1, len(item))
	c.known = slices.Grow(c.known[:0], groups+1)[:groups+1]
	clear(c.known)
	c.known[0] = true
	copy(c.centres.Row(0), item)
	rerank.Normalise(c.centres.Row(0))
	c.labels = slices.Grow(c.labels[:0], len(rows))[:len(rows)]
	clear(c.labels)
}

// eachBlock calls f with the rows in pieces, of norm 1.
func (c *clusters) eachBlock(f func(from int, block rerank.Matrix)) {
	for from := 0; from < len(c.rows); from += clusterBlock {
		to := min(from+clusterBlock, len(c.rows))
		if c.loaded != from || c.block.Rows != to-from {
			c.block = grown(c.block, to-from, c.source.Cols)
			gather(c.block, c.source, c.rows[from:to])
			for r := range c.block.Rows {
				rerank.Normalise(c.block.Row(r))
			}
			c.loaded = from
		}
		f(from, c.block)
	}
}

func (c *clusters) weight(row int) float64 {
	if c.weights == nil {
		return 1
	}
	return float64(c.weights[row])
}

// seed makes the first groups: each centre is a query, drawn by its weight times
// its distance 1 − max ⟨x, v⟩ to the centres before (k-means++, Arthur and
// Vassilvitskii 2007, section 2.2). Where all queries lie on centres, the rest of
// the groups stay unknown.
func (c *clusters) seed(rng *rand.Rand) {
	clear(c.known[1:])
	clear(c.labels)
	best := make([]float32, len(c.rows))
	c.inner(best, 0)
	for j := 1; j < c.centres.Rows; j++ {
		row := c.draw(best, rng)
		if row < 0 {
			return
		}
		copy(c.centres.Row(j), c.source.Row(int(c.rows[row])))
		rerank.Normalise(c.centres.Row(j))
		c.known[j] = true
		nearer := make([]float32, len(c.rows))
		c.inner(nearer, j)
		for i, s := range nearer {
			if s > best[i] {
				best[i], c.labels[i] = s, int32(j)
			}
		}
	}
}

// inner writes ⟨x, v_j⟩ of every row.
func (c *clusters) inner(dst []float32, j int) {
	centre := c.centres.Slice(j, j+1)
	c.eachBlock(func(from int, block rerank.Matrix) {
		out := rerank.Matrix{Rows: block.Rows, Cols: 1, Data: dst[from : from+block.Rows]}
		multiply(out, block, false, centre, true)
	})
}

// sameDirection is the distance below which rounding may be all that parts two unit vectors.
const sameDirection = 1e-6

// draw is a row by weight and distance, −1 if all lie on centres.
func (c *clusters) draw(best []float32, rng *rand.Rand) int {
	distance := func(i int) float64 {
		if d := 1 - float64(best[i]); d > sameDirection {
			return d * c.weight(i)
		}
		return 0
	}
	var total float64
	for i := range best {
		total += distance(i)
	}
	if total == 0 {
		return -1
	}
	at, last := rng.Float64()*total, -1
	for i := range best {
		if d := distance(i); d > 0 {
			last = i
			if at -= d; at < 0 {
				return i
			}
		}
	}
	return last
}

// settle is Lloyd's algorithm from the labels: centres, then labels, until no label
// changes or that many passes were made. It returns Σ w·max ⟨x, v⟩ of the last
// centres, which no pass lowers.
func (c *clusters) settle(passes int) (objective float64) {
	for range passes {
		c.recentre()
		var changed bool
		if objective, changed = c.assign(); !changed {
			break
		}
	}
	return objective
}

// recentre puts each centre but the first in the middle of its group.
func (c *clusters) recentre() {
	groups, dim := c.centres.Rows, c.centres.Cols
	c.sums = slices.Grow(c.sums[:0], groups*dim)[:groups*dim]
	clear(c.sums)
	c.eachBlock(func(from int, block rerank.Matrix) {
		for r := range block.Rows {
			j, w := int(c.labels[from+r]), c.weight(from+r)
			if j == 0 {
				continue
			}
			sum := c.sums[j*dim : (j+1)*dim]
			for i, x := range block.Row(r) {
				sum[i] += w * float64(x)
			}
		}
	})
	totals := make([]float64, groups)
	for i, j := range c.labels {
		totals[j] += c.weight(i)
	}
	for j := 1; j < groups; j++ {
		c.move(j, c.sums[j*dim:(j+1)*dim], totals[j])
	}
}

// move puts a centre in the direction of the sum of unit vectors, if it has one.
func (c *clusters) move(j int, sum []float64, total float64) {
	var square float64
	for _, x := range sum {
		square += x * x
	}
	norm := math.Sqrt(square)
	if !(norm > sameDirection*total) {
		return
	}
	for i, x := range sum {
		c.centres.Row(j)[i] = float32(x / norm)
	}
	c.known[j] = true
}

// assign gives every row the nearest centre, the first of equal ones.
func (c *clusters) assign() (objective float64, changed bool) {
	c.eachBlock(func(from int, block rerank.Matrix) {
		c.scores = grown(c.scores, block.Rows, c.centres.Rows)
		multiply(c.scores, block, false, c.centres, true)
		for r := range block.Rows {
			best, at := float32(math.Inf(-1)), int32(0)
			for j, s := range c.scores.Row(r) {
				if c.known[j] && s > best {
					best, at = s, int32(j)
				}
			}
			objective += c.weight(from+r) * float64(best)
			changed = changed || c.labels[from+r] != at
			c.labels[from+r] = at
		}
	})
	return objective, changed
}

// found are the centres of the groups that are not empty, without the first.
func (c *clusters) found() rerank.Matrix {
	used := make([]bool, c.centres.Rows)
	for _, j := range c.labels {
		used[j] = true
	}
	out := rerank.Matrix{Cols: c.centres.Cols}
	for j := 1; j < c.centres.Rows; j++ {
		if used[j] {
			out.Data = append(out.Data, c.centres.Row(j)...)
			out.Rows++
		}
	}
	return out
}
