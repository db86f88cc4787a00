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
	// SelectFirst takes the first items as they are given.
	SelectFirst Selection = "first"
	// SelectKMeans takes the items nearest to the centres of as many clusters, found by k-means.
	SelectKMeans Selection = "kmeans"
	// SelectBisecting finds the clusters by dividing the widest one in two, again and again.
	SelectBisecting Selection = "bisecting_kmeans"
	// SelectMinibatch finds the clusters by k-means over small random batches of items.
	SelectMinibatch Selection = "minibatch_kmeans"
	// SelectAgglomerative finds the clusters by merging items (Ward's criterion). It looks at 10,000
	// random items if there are more.
	SelectAgglomerative Selection = "agglomerative"
	// SelectDiverse begins with the item furthest from the mean. It then repeatedly adds the item
	// whose smallest distance to the chosen items is greatest.
	SelectDiverse Selection = "diverse"
	// SelectL2Greedy repeatedly adds the item that lowers the squared error of the CUR
	// approximation the most.
	SelectL2Greedy Selection = "l2_greedy"
	// SelectCategory takes the item with the highest mean score of each category, then the next of
	// each category, and so on (RBE, appendix E). It needs Options.Categories; Select does not know
	// it.
	SelectCategory Selection = "category"
	// SelectOwn takes the items that the caller names (Options.Own). Select does not know it.
	SelectOwn Selection = "own"
)

// Selections lists, in the order of the documentation, every selection that needs nothing but
// scores.
func Selections() []Selection {
	return []Selection{
		SelectRandom, SelectFirst, SelectPopular, SelectKMeans, SelectBisecting, SelectMinibatch, SelectAgglomerative, SelectDiverse, SelectL2Greedy,
	}
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
		return rankByMeans(scores)[:m], ctx.Err()
	case SelectFirst:
		return rowNumbers(m), ctx.Err()
	case SelectKMeans:
		c, err := clusterKMeans(ctx, scores, m, rng, p.Begin("clustering the items", kmeansPasses))
		return c.medoids(), err
	case SelectBisecting:
		c, err := clusterByBisection(ctx, scores, m, rng, p.Begin("clustering the items", m))
		return c.medoids(), err
	case SelectMinibatch:
		c, err := clusterMinibatches(ctx, scores, m, rng, p.Begin("clustering the items", minibatchSteps))
		return c.medoids(), err
	case SelectAgglomerative:
		return selectAgglomerated(ctx, scores, m, agglomeratedRows, rng, p)
	case SelectDiverse:
		return selectDiverse(ctx, scores, m, p)
	case SelectL2Greedy:
		return selectGreedily(ctx, scores, m, p)
	default:
		return nil, fit.NotOneOf("selection", how, Selections())
	}
}

// rankByMeans returns all rows, those with the highest means first.
func rankByMeans(scores rerank.Matrix) []int {
	sums, order := make([]float64, scores.Rows), make([]int, scores.Rows)
	for r := range order {
		order[r] = r
		for _, v := range scores.Row(r) {
			sums[r] += float64(v)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sums[b], sums[a]) })
	return order
}

// selectPerCategory implements SelectCategory. If there are more than m categories, it takes those
// whose best item has the highest mean.
func selectPerCategory(scores rerank.Matrix, categories []string, m int) []int {
	order := slices.DeleteFunc(rankByMeans(scores), func(r int) bool { return categories[r] == "" })
	place, counts := make([]int, scores.Rows), map[string]int{} // place in the category, by mean
	for _, r := range order {
		place[r] = counts[categories[r]]
		counts[categories[r]]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
	return order[:min(m, len(order))]
}

// selectAgglomerated implements SelectAgglomerative. It looks at a sample of that many items, or of m if that is more.
func selectAgglomerated(ctx context.Context, scores rerank.Matrix, m, sample int, rng *rand.Rand, p fit.Progress) ([]int, error) {
	rows := rowNumbers(scores.Rows)
	if most := max(sample, m); len(rows) > most {
		rows = rng.Perm(scores.Rows)[:most]
		slices.Sort(rows)
	}
	c, err := clusterByMerging(ctx, selectRows(scores, rows), m, p.Begin("clustering the items", len(rows)))
	chosen := c.medoids()
	for i, at := range chosen {
		chosen[i] = rows[at]
	}
	return chosen, err
}

// rowNumbers returns 0 to n−1.
func rowNumbers(n int) []int {
	rows := make([]int, n)
	for r := range rows {
		rows[r] = r
	}
	return rows
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
