package rbe

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// Selection is a way to choose support items (RBE, section 3.4).
type Selection string

// The selections. Selections that compare items compare their rows of scores.
const (
	// SelectRandom draws items at random.
	SelectRandom Selection = "random"
	// SelectPopular takes the items with the highest mean scores.
	SelectPopular Selection = "popular"
	// SelectKMeans takes the items nearest to the centres of as many clusters.
	SelectKMeans Selection = "kmeans"
	// SelectDiverse begins with the item furthest from the mean. It then repeatedly adds the item
	// whose smallest distance to the chosen items is greatest.
	SelectDiverse Selection = "diverse"
	// SelectL2Greedy repeatedly adds the item that lowers the squared error of the CUR
	// approximation the most.
	SelectL2Greedy Selection = "l2_greedy"
	// SelectOwn takes the items that the caller names (Options.Own). Select does not know it.
	SelectOwn Selection = "own"
)

// Selections lists every selection in the order of the documentation.
func Selections() []Selection {
	return []Selection{SelectRandom, SelectPopular, SelectKMeans, SelectDiverse, SelectL2Greedy}
}

// Select chooses m rows of a matrix of scores, items by queries, and returns them in
// the order in which they were chosen. It chooses fewer if the others add nothing
// (l2_greedy) or equal a chosen row (diverse, k-means). It returns fit.ErrOption for an
// unknown selection, or the context's error.
func Select(ctx context.Context, scores rerank.Matrix, m int, how Selection, seed uint64, p fit.Progress) ([]int, error) {
	m = min(m, scores.Rows)
	rng := rand.New(rand.NewPCG(seed, 0x5e1ec7))
	switch how {
	case SelectRandom:
		return rng.Perm(scores.Rows)[:m], ctx.Err()
	case SelectPopular:
		return selectHighestMeans(scores, m), ctx.Err()
	case SelectKMeans:
		return selectNearestToCentres(ctx, scores, m, rng, p)
	case SelectDiverse:
		return selectDiverse(ctx, scores, m, p)
	case SelectL2Greedy:
		return selectGreedily(ctx, scores, m, p)
	default:
		return nil, fit.NotOneOf("selection", how, Selections())
	}
}

// selectHighestMeans implements SelectPopular.
func selectHighestMeans(scores rerank.Matrix, m int) []int {
	sums, order := make([]float64, scores.Rows), make([]int, scores.Rows)
	for r := range order {
		order[r] = r
		for _, v := range scores.Row(r) {
			sums[r] += float64(v)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sums[b], sums[a]) })
	return order[:m]
}

// selectGreedily implements SelectL2Greedy.
func selectGreedily(ctx context.Context, scores rerank.Matrix, m int, p fit.Progress) ([]int, error) {
	done := p.Begin("choosing support items", 2*scores.Rows+m)
	g, err := newGreedy(ctx, scores, done)
	if err != nil {
		return nil, err
	}
	var chosen []int
	for range m {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		row, _ := g.takeNext()
		if row < 0 {
			break
		}
		chosen = append(chosen, row)
		done(1)
	}
	return chosen, nil
}

// selectDiverse implements SelectDiverse.
func selectDiverse(ctx context.Context, scores rerank.Matrix, m int, p fit.Progress) ([]int, error) {
	done := p.Begin("choosing support items", m)
	distance := make([]float64, scores.Rows)
	from := func(centre []float64) {
		linalg.Parallel(scores.Rows, 64, func(a, b int) {
			for r := a; r < b; r++ {
				distance[r] = min(distance[r], squaredDistance(scores.Row(r), centre))
			}
		})
	}
	restart := func() {
		for r := range distance {
			distance[r] = math.Inf(1)
		}
	}
	restart()
	from(meanRow(scores))
	var chosen []int
	for range m {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		row := 0
		for r, d := range distance {
			if d > distance[row] {
				row = r
			}
		}
		if len(chosen) == 0 {
			restart()
		} else if distance[row] == 0 {
			break
		}
		chosen = append(chosen, row)
		from(toFloat64(scores.Row(row)))
		done(1)
	}
	return chosen, nil
}

// kmeansPasses of Lloyd's algorithm, at most.
const kmeansPasses = 20

// selectNearestToCentres implements SelectKMeans: it clusters the rows by Euclidean
// distance, from centres drawn by k-means++, and takes the row nearest to each centre.
func selectNearestToCentres(ctx context.Context, scores rerank.Matrix, m int, rng *rand.Rand, p fit.Progress) ([]int, error) {
	done := p.Begin("clustering the items", kmeansPasses)
	centres := drawCentres(scores, m, rng)
	labels := make([]int32, scores.Rows)
	distance := make([]float64, scores.Rows)
	for range kmeansPasses {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		changed := assignNearest(scores, centres, labels, distance)
		done(1)
		if !changed {
			break
		}
		moveCentres(scores, centres, labels)
	}
	assignNearest(scores, centres, labels, distance)
	chosen := slices.Repeat([]int{-1}, centres.Rows)
	for r, c := range labels {
		if chosen[c] < 0 || distance[r] < distance[chosen[c]] {
			chosen[c] = r
		}
	}
	return slices.DeleteFunc(chosen, func(r int) bool { return r < 0 }), nil
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

// meanRow returns the mean of the rows.
func meanRow(m rerank.Matrix) []float64 {
	mean := make([]float64, m.Cols)
	for r := range m.Rows {
		for i, v := range m.Row(r) {
			mean[i] += float64(v)
		}
	}
	for i := range mean {
		mean[i] /= float64(max(1, m.Rows))
	}
	return mean
}

// toFloat64 returns a copy in float64.
func toFloat64(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func squaredDistance(a []float32, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, x := range a {
		d := float64(x) - b[i]
		sum += d * d
	}
	return sum
}
