package maxsim

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// clusterBlock is the number of queries of an item whose unit vectors are in memory at
// a time.
const clusterBlock = 4096

// clustering divides the queries of one item, as points on the unit sphere, into
// groups around centres. Centre 0 is the item's own vector and never moves (MVG,
// section 5.2). An empty group keeps its centre, and so does a group whose vectors sum
// to zero, which has no direction. A group that never had a centre gets no query. A
// clustering is reused for item after item; it is not safe for concurrent use.
type clustering struct {
	source    rerank.Matrix // the query vectors of all items, of any norm
	rows      []int32       // rows of source that are the item's queries
	weights   []float32     // of these queries; if nil, every weight is 1
	centres   rerank.Matrix // of norm 1
	hasCentre []bool        // of each group
	labels    []int32       // the group of each query

	block      rerank.Matrix // unit vectors of clusterBlock queries at most
	blockStart int           // the first query of block; −1 if block is empty
	scores     rerank.Matrix
	sums       []float64
}

// begin resets c to cluster the queries of another item around its vector and groups further centres. rows and
// weights hold the row number and the weight of each query.
func (c *clustering) begin(item []float32, rows []int32, weights []float32, groups int) {
	c.rows, c.weights, c.blockStart = rows, weights, -1
	c.centres = linalg.Resize(c.centres, groups+1, len(item))
	c.hasCentre = slices.Grow(c.hasCentre[:0], groups+1)[:groups+1]
	clear(c.hasCentre)
	c.hasCentre[0] = true
	copy(c.centres.Row(0), item)
	rerank.Normalise(c.centres.Row(0))
	c.labels = slices.Grow(c.labels[:0], len(rows))[:len(rows)]
	clear(c.labels)
}

// eachBlock calls f for consecutive blocks of the queries, as unit vectors. from is the
// number of the first query of the block.
func (c *clustering) eachBlock(f func(from int, block rerank.Matrix)) {
	for from := 0; from < len(c.rows); from += clusterBlock {
		to := min(from+clusterBlock, len(c.rows))
		if c.blockStart != from || c.block.Rows != to-from {
			c.block = linalg.Resize(c.block, to-from, c.source.Cols)
			linalg.GatherRows(c.block, c.source, c.rows[from:to])
			for r := range c.block.Rows {
				rerank.Normalise(c.block.Row(r))
			}
			c.blockStart = from
		}
		f(from, c.block)
	}
}

func (c *clustering) weight(row int) float64 {
	if c.weights == nil {
		return 1
	}
	return float64(c.weights[row])
}

// seedCentres makes the first groups. Each centre is a query, drawn by its weight times
// its distance 1 − max ⟨x, v⟩ to the centres before it (k-means++, Arthur and
// Vassilvitskii 2007, section 2.2). Once every query lies on a centre, the remaining
// groups get none.
func (c *clustering) seedCentres(rng *rand.Rand) {
	clear(c.hasCentre[1:])
	clear(c.labels)
	best := make([]float32, len(c.rows))
	c.scoreCentre(best, 0)
	for j := 1; j < c.centres.Rows; j++ {
		row := c.drawQuery(best, rng)
		if row < 0 {
			return
		}
		copy(c.centres.Row(j), c.source.Row(int(c.rows[row])))
		rerank.Normalise(c.centres.Row(j))
		c.hasCentre[j] = true
		nearer := make([]float32, len(c.rows))
		c.scoreCentre(nearer, j)
		for i, s := range nearer {
			if s > best[i] {
				best[i], c.labels[i] = s, int32(j)
			}
		}
	}
}

// scoreCentre writes the inner product of every query with centre j.
func (c *clustering) scoreCentre(dst []float32, j int) {
	centre := c.centres.Slice(j, j+1)
	c.eachBlock(func(from int, block rerank.Matrix) {
		out := rerank.Matrix{Rows: block.Rows, Cols: 1, Data: dst[from : from+block.Rows]}
		linalg.Multiply(out, block, false, centre, true)
	})
}

// sameDirection is the distance below which two unit vectors may differ by rounding alone.
const sameDirection = 1e-6

// drawQuery draws a query by weight and distance, −1 if all lie on centres. best holds
// the inner product of each query with its nearest centre.
func (c *clustering) drawQuery(best []float32, rng *rand.Rand) int {
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

// runLloyd runs Lloyd's algorithm from the current labels: it moves the centres and assigns the
// queries again, until no label changes or the given number of passes is reached. It returns Σ
// w·max ⟨x, v⟩ for the last centres, which no pass lowers.
func (c *clustering) runLloyd(passes int) (objective float64) {
	for range passes {
		c.moveCentres()
		var changed bool
		if objective, changed = c.assignQueries(); !changed {
			break
		}
	}
	return objective
}

// moveCentres moves each centre but the first to the middle of its group.
func (c *clustering) moveCentres() {
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
		c.moveCentre(j, c.sums[j*dim:(j+1)*dim], totals[j])
	}
}

// moveCentre moves centre j to the direction of sum, the sum of its group's unit
// vectors, unless the sum is zero up to rounding. total is the weight of the group.
func (c *clustering) moveCentre(j int, sum []float64, total float64) {
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
	c.hasCentre[j] = true
}

// assignQueries assigns every query to the nearest centre, the first of equal ones.
func (c *clustering) assignQueries() (objective float64, changed bool) {
	c.eachBlock(func(from int, block rerank.Matrix) {
		c.scores = linalg.Resize(c.scores, block.Rows, c.centres.Rows)
		linalg.Multiply(c.scores, block, false, c.centres, true)
		for r := range block.Rows {
			best, at := float32(math.Inf(-1)), int32(0)
			for j, s := range c.scores.Row(r) {
				if c.hasCentre[j] && s > best {
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

// foundCentres returns the centres of the groups that have a query, without centre 0.
func (c *clustering) foundCentres() rerank.Matrix {
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
