package rbe

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// clusters assigns rows to clusters by Euclidean distance.
type clusters struct {
	labels   []int32   // cluster of each row
	distance []float64 // squared distance of each row to the centre of its cluster
	count    int       // of clusters; some may have no rows
}

// medoids returns the row nearest to the centre of each cluster.
func (c clusters) medoids() []int {
	rows := slices.Repeat([]int{-1}, c.count)
	for r, label := range c.labels {
		if rows[label] < 0 || c.distance[r] < c.distance[rows[label]] {
			rows[label] = r
		}
	}
	return slices.DeleteFunc(rows, func(r int) bool { return r < 0 })
}

// kmeansPasses of Lloyd's algorithm, at most.
const kmeansPasses = 20

// clusterKMeans moves centres, drawn by k-means++, to the means of their rows until no row changes
// its cluster. It calls done after each pass.
func clusterKMeans(ctx context.Context, scores rerank.Matrix, m int, rng *rand.Rand, done func(int)) (clusters, error) {
	centres := drawCentres(scores, m, rng)
	c := clusters{make([]int32, scores.Rows), make([]float64, scores.Rows), centres.Rows}
	for range kmeansPasses {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		changed := assignNearest(scores, centres, c.labels, c.distance)
		done(1)
		if !changed {
			break
		}
		moveCentres(scores, centres, c.labels)
	}
	assignNearest(scores, centres, c.labels, c.distance)
	return c, nil
}

// Mini-batch k-means takes steps of so many random rows.
const (
	minibatchSteps = 100
	minibatchRows  = 1024
)

// clusterMinibatches is k-means whose centres move after each batch of random rows, by an average
// over all rows that were assigned to them.
func clusterMinibatches(ctx context.Context, scores rerank.Matrix, m int, rng *rand.Rand, done func(int)) (clusters, error) {
	centres := drawCentres(scores, m, rng)
	counts := make([]float32, centres.Rows)
	rows := make([]int, min(minibatchRows, scores.Rows))
	labels, distance := make([]int32, len(rows)), make([]float64, len(rows))
	for range minibatchSteps {
		if err := ctx.Err(); err != nil {
			return clusters{}, err
		}
		for i := range rows {
			rows[i] = rng.IntN(scores.Rows)
		}
		batch := selectRows(scores, rows)
		assignNearest(batch, centres, labels, distance)
		for r, label := range labels {
			counts[label]++
			centre := centres.Row(int(label))
			for i, v := range batch.Row(r) {
				centre[i] += (v - centre[i]) / counts[label]
			}
		}
		done(1)
	}
	c := clusters{make([]int32, scores.Rows), make([]float64, scores.Rows), centres.Rows}
	assignNearest(scores, centres, c.labels, c.distance)
	return c, nil
}

// clusterByBisection divides the cluster with the greatest sum of squared distances in two by
// k-means, until there are m clusters.
func clusterByBisection(ctx context.Context, scores rerank.Matrix, m int, rng *rand.Rand, done func(int)) (clusters, error) {
	c := clusters{make([]int32, scores.Rows), make([]float64, scores.Rows), 1}
	centre := meanRow(scores)
	for r := range c.distance {
		c.distance[r] = squaredDistance(scores.Row(r), centre)
	}
	for c.count < m {
		spread := make([]float64, c.count)
		for r, label := range c.labels {
			spread[label] += c.distance[r]
		}
		widest := 0
		for label, e := range spread {
			if e > spread[widest] {
				widest = label
			}
		}
		var members []int
		for r, label := range c.labels {
			if int(label) == widest {
				members = append(members, r)
			}
		}
		halves, err := clusterKMeans(ctx, selectRows(scores, members), 2, rng, func(int) {})
		if err != nil {
			return c, err
		}
		if halves.count < 2 {
			return c, nil // the rows of every cluster are equal
		}
		for i, r := range members {
			c.distance[r] = halves.distance[i]
			if halves.labels[i] == 1 {
				c.labels[r] = int32(c.count)
			}
		}
		c.count++
		done(1)
	}
	return c, nil
}

// agglomeratedRows limits the rows of clusterByMerging, which compares all pairs. A sample of the
// rows chooses hardly worse (RBE, table 11).
const agglomeratedRows = 10_000

// clusterByMerging repeatedly merges the two clusters whose merging adds the least to the sum of
// squared distances (Ward's criterion), until m are left. It finds the merges by following nearest
// neighbours until two clusters are nearest to each other, which merges the same pairs in another
// order.
func clusterByMerging(ctx context.Context, scores rerank.Matrix, m int, done func(int)) (clusters, error) {
	w := newWard(scores)
	var merges []merge
	var chain []int
	for len(w.active) > 1 {
		if err := ctx.Err(); err != nil {
			return clusters{}, err
		}
		if len(chain) == 0 {
			chain = append(chain, w.active[0])
		}
		last, before := chain[len(chain)-1], -1
		if len(chain) > 1 {
			before = chain[len(chain)-2]
		}
		nearest, cost := w.nearest(last, before)
		if nearest != before {
			chain = append(chain, nearest)
			continue
		}
		chain = chain[:len(chain)-2]
		w.merge(before, last)
		merges = append(merges, merge{before, last, cost})
		done(1)
	}
	slices.SortStableFunc(merges, func(a, b merge) int { return cmp.Compare(a.cost, b.cost) })
	return cutMerges(scores, merges[:len(merges)-(m-1)]), nil
}

// merge is one merge of two clusters, each named by a row in it.
type merge struct {
	a, b int
	cost float64
}

// ward holds the clusters of an agglomeration. A cluster is named by a row in it.
type ward struct {
	centres [][]float64
	sizes   []float64
	active  []int     // clusters that are left, ascending
	costs   []float64 // scratch of nearest, aligned with active
}

func newWard(scores rerank.Matrix) *ward {
	w := &ward{sizes: slices.Repeat([]float64{1}, scores.Rows), costs: make([]float64, scores.Rows)}
	for r := range scores.Rows {
		w.centres, w.active = append(w.centres, toFloat64(scores.Row(r))), append(w.active, r)
	}
	return w
}

// nearest returns the cluster whose merging with c costs the least, and the cost. Among equal ones it
// prefers the named one, so that chains end.
func (w *ward) nearest(c, preferred int) (int, float64) {
	linalg.Parallel(len(w.active), 64, func(from, to int) {
		for i := from; i < to; i++ {
			o := w.active[i]
			var sum float64
			a, b := w.centres[c], w.centres[o]
			for j, v := range a {
				sum += (v - b[j]) * (v - b[j])
			}
			w.costs[i] = sum * w.sizes[c] * w.sizes[o] / (w.sizes[c] + w.sizes[o])
		}
	})
	best, cost := -1, math.Inf(1)
	for i, o := range w.active {
		if v := w.costs[i]; o != c && (v < cost || v == cost && o == preferred) {
			best, cost = o, v
		}
	}
	return best, cost
}

// merge replaces the clusters a and b by their union, named b.
func (w *ward) merge(a, b int) {
	share := w.sizes[a] / (w.sizes[a] + w.sizes[b])
	for i, v := range w.centres[a] {
		w.centres[b][i] += share * (v - w.centres[b][i])
	}
	w.sizes[b] += w.sizes[a]
	at, _ := slices.BinarySearch(w.active, a)
	w.active = slices.Delete(w.active, at, at+1)
}

// cutMerges returns the clusters that some merges leave.
func cutMerges(scores rerank.Matrix, merges []merge) clusters {
	parent := make([]int, scores.Rows)
	for r := range parent {
		parent[r] = r
	}
	root := func(r int) int {
		for parent[r] != r {
			parent[r] = parent[parent[r]]
			r = parent[r]
		}
		return r
	}
	for _, x := range merges {
		parent[root(x.a)] = root(x.b)
	}
	c := clusters{make([]int32, scores.Rows), make([]float64, scores.Rows), 0}
	numbers := map[int]int32{}
	for r := range c.labels {
		number, ok := numbers[root(r)]
		if !ok {
			number = int32(len(numbers))
			numbers[root(r)] = number
		}
		c.labels[r] = number
	}
	c.count = len(numbers)
	centres := rerank.NewMatrix(c.count, scores.Cols)
	moveCentres(scores, centres, c.labels)
	for r, label := range c.labels {
		c.distance[r] = squaredDistance(scores.Row(r), toFloat64(centres.Row(int(label))))
	}
	return c
}

// drawCentres draws rows by their squared distance to the rows drawn before.
func drawCentres(scores rerank.Matrix, m int, rng *rand.Rand) rerank.Matrix {
	centres := rerank.NewMatrix(m, scores.Cols)
	distance := slices.Repeat([]float64{1}, scores.Rows)
	for c := range m {
		var total float64
		for _, d := range distance {
			total += d
		}
		if c > 0 && total == 0 {
			return centres.Slice(0, c)
		}
		at, row := rng.Float64()*total, -1
		for r, d := range distance {
			if d > 0 {
				row = r
				if at -= d; at < 0 {
					break
				}
			}
		}
		copy(centres.Row(c), scores.Row(row))
		centre := toFloat64(scores.Row(row))
		linalg.Parallel(scores.Rows, 64, func(a, b int) {
			for r := a; r < b; r++ {
				d := squaredDistance(scores.Row(r), centre)
				if c > 0 {
					d = min(d, distance[r])
				}
				distance[r] = d
			}
		})
	}
	return centres
}

// assignNearest assigns every row to the nearest centre, the first of equal ones, and
// reports whether an assignment changed.
func assignNearest(scores, centres rerank.Matrix, labels []int32, distance []float64) (changed bool) {
	norms := make([]float64, centres.Rows)
	for c := range norms {
		norms[c] = rerank.Norm(centres.Row(c))
	}
	const block = 1024
	products := rerank.NewMatrix(min(block, scores.Rows), centres.Rows)
	for from := 0; from < scores.Rows; from += block {
		to := min(from+block, scores.Rows)
		s := products.Slice(0, to-from)
		linalg.Multiply(s, scores.Slice(from, to), false, centres, true)
		for r := from; r < to; r++ {
			norm := rerank.Norm(scores.Row(r))
			best, at := math.Inf(1), int32(0)
			for c, v := range s.Row(r - from) {
				if d := norm*norm - 2*float64(v) + norms[c]*norms[c]; d < best {
					best, at = d, int32(c)
				}
			}
			changed = changed || labels[r] != at
			labels[r], distance[r] = at, best
		}
	}
	return changed
}

// moveCentres moves each centre to the mean of its rows. A centre without rows stays.
func moveCentres(scores, centres rerank.Matrix, labels []int32) {
	sums, counts := make([]float64, len(centres.Data)), make([]int, centres.Rows)
	for r, c := range labels {
		counts[c]++
		sum := sums[int(c)*centres.Cols:][:centres.Cols]
		for i, v := range scores.Row(r) {
			sum[i] += float64(v)
		}
	}
	for c, n := range counts {
		for i := range centres.Row(c) {
			if n > 0 {
				centres.Row(c)[i] = float32(sums[c*centres.Cols+i] / float64(n))
			}
		}
	}
}
