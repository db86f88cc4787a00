package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// popular is a log in which item 0 is chosen in half of the pairs.
func popular() (fit.Data, []samples.Pair) {
	rng := rand.New(rand.NewPCG(11, 12))
	d := fit.Data{Items: fittest.NormalMatrix(rng, 40, 6), Queries: fittest.NormalMatrix(rng, 400, 6)}
	var pairs []samples.Pair
	for q := range d.Queries.Rows {
		x := int32(0)
		if q%2 == 1 {
			x = int32(1 + rng.IntN(d.Items.Rows-1))
		}
		d.Relevant = append(d.Relevant, []int32{x})
		pairs = append(pairs, samples.Pair{Query: int32(q), Item: x, Weight: 1})
	}
	return d, pairs
}

func TestChanceOfACandidate(t *testing.T) {
	d, pairs := popular()
	rng := rand.New(rand.NewPCG(1, 2))
	c := NewCandidates(d.Items, pairs, CandidateLimits{All: 1, Draws: 6, Batch: 8})
	const draws = 20000
	seen := make([]float64, d.Items.Rows)
	for range draws {
		batch := make([]samples.Pair, 8)
		for i := range batch {
			batch[i] = pairs[rng.IntN(len(pairs))]
		}
		c.Draw(batch, rng)
		for _, x := range c.Rows {
			seen[x]++
		}
	}
	for x, n := range seen {
		want := math.Exp(-float64(c.rareness[x]))
		if n == 0 {
			continue // chosen by nobody
		}
		if got := n / draws; !(math.Abs(got-want) <= 0.015) {
			t.Errorf("item %d was a candidate in %.3f of the batches, its chance is %.3f", x, got, want)
		}
	}
}

// Over many samples the gradient of the sampled softmax approaches the gradient of the full one.
// Without the correction a popular item pays for being in every batch.
func TestPopularityCorrection(t *testing.T) {
	fittest.SkipUnderRace(t)
	d, pairs := popular()
	log, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	const batches, size = 3000, 32
	// gradient is the mean gradient of W at the identity, for S = Q W Xᵀ.
	gradient := func(all int, correct bool) []float32 {
		c := NewCandidates(log.Items, pairs, CandidateLimits{All: all, Draws: 24, Batch: size})
		if c.draws > 0 && !correct {
			clear(c.rareness)
		}
		loss := CrossEntropy{Log: log, Scale: 2, MeanWeight: 1}
		draws := rand.New(rand.NewPCG(3, 0xf17))
		dim := log.Items.Cols
		sum, g := make([]float32, dim*dim), rerank.NewMatrix(dim, dim)
		order, pairs := rand.New(rand.NewPCG(3, 3)), slices.Clone(pairs) // the same batches for all
		for range batches {
			order.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
			batch := pairs[:size]
			c.Draw(batch, draws)
			queries, s, between := rerank.NewMatrix(size, dim), rerank.NewMatrix(size, c.Vectors.Rows), rerank.NewMatrix(size, dim)
			for i, p := range batch {
				copy(queries.Row(i), log.Queries.Row(int(p.Query)))
			}
			linalg.Multiply(s, queries, false, c.Vectors, true)
			loss.Apply(s, batch, c)
			linalg.Multiply(between, s, false, c.Vectors, false)
			linalg.Multiply(g, queries, true, between, false)
			linalg.AddScaled(sum, g.Data, 1./batches)
		}
		return sum
	}
	whole := gradient(100, false)
	off := func(g []float32) float64 {
		rest := slices.Clone(g)
		linalg.AddScaled(rest, whole, -1)
		return rerank.Norm(rest)
	}
	with, without := off(gradient(1, true)), off(gradient(1, false))
	if with > without/2 {
		t.Errorf("the sampled gradient is off by %.4f with the correction, %.4f without; want half at most", with, without)
	}
}

func TestItemsWithoutPairsAreNoCandidates(t *testing.T) {
	items := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 1)), 5, 2)
	for _, limit := range []int{1, 100} {
		c := NewCandidates(items, []samples.Pair{{Query: 0, Item: 1, Weight: 1}, {Query: 1, Item: 3, Weight: 1}}, CandidateLimits{All: limit, Draws: 50, Batch: 2})
		c.Draw([]samples.Pair{{Query: 0, Item: 1, Weight: 1}}, rand.New(rand.NewPCG(1, 1)))
		for _, x := range []int{0, 2, 4} {
			if c.Columns[x] >= 0 {
				t.Errorf("limit %d: item %d has no pair and is a candidate", limit, x)
			}
		}
		if c.Columns[1] < 0 {
			t.Errorf("limit %d: the pair's own item is no candidate", limit)
		}
	}
}

// TestLooks: the chance of a choice is in proportion to looks × exp(score). What people looked at is
// a candidate, chosen or not, and what no answer showed hardly counts.
func TestLooks(t *testing.T) {
	log := &samples.Log{
		Items: fittest.NormalMatrix(rand.New(rand.NewPCG(1, 1)), 5, 2), Relevant: [][]int32{{1}, {3}},
		Looks: [][]clicks.Look{{{Item: 0, Times: 2}, {Item: 1, Times: 0.5}}, {{Item: 3, Times: 1}}},
	}
	pairs := []samples.Pair{{Query: 0, Item: 1, Weight: 1}, {Query: 1, Item: 3, Weight: 1}}
	for _, all := range []int{1, 100} {
		c := NewCandidates(log.Items, pairs, CandidateLimits{All: all, Draws: 1, Batch: 1, Looks: log.Looks})
		c.Draw(pairs[:1], rand.New(rand.NewPCG(1, 1)))
		if c.Columns[0] < 0 || c.Columns[1] < 0 || c.Columns[2] >= 0 || c.Columns[4] >= 0 {
			t.Errorf("limit %d: the columns are %v", all, c.Columns)
		}
	}
	c := NewCandidates(log.Items, pairs, CandidateLimits{All: 100, Looks: log.Looks})
	scores := rerank.Matrix{Rows: 1, Cols: 3, Data: []float32{0.3, -0.2, 0.1}} // of items 0, 1 and 3
	loss := CrossEntropy{Log: log, Scale: 2, MeanWeight: 1}.Apply(scores, pairs[:1], c)
	chosen := 0.5 * math.Exp(-0.4)
	if want := -math.Log(chosen / (chosen + 2*math.Exp(0.6) + unshownLooks*0.5*math.Exp(0.2))); !(math.Abs(loss-want) <= 1e-6) {
		t.Errorf("loss %g, want %g", loss, want)
	}
}
