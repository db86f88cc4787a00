package fit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// popular is a log in which item 0 is chosen in half of the pairs.
func popular() (Data, []pair) {
	rng := rand.New(rand.NewPCG(11, 12))
	d := Data{Items: normal(rng, 40, 6), Queries: normal(rng, 400, 6)}
	var pairs []pair
	for q := range d.Queries.Rows {
		x := int32(0)
		if q%2 == 1 {
			x = int32(1 + rng.IntN(d.Items.Rows-1))
		}
		d.Relevant = append(d.Relevant, []int32{x})
		pairs = append(pairs, pair{int32(q), x, 1})
	}
	return d, pairs
}

func TestChanceOfACandidate(t *testing.T) {
	d, pairs := popular()
	rng := rand.New(rand.NewPCG(1, 2))
	c := newCandidates(d.Items, pairs, starts(pairs), 8, 1, 6, rng)
	const draws = 20000
	seen := make([]float64, d.Items.Rows)
	for range draws {
		batch := make([]pair, 8)
		for i := range batch {
			batch[i] = pairs[rng.IntN(len(pairs))]
		}
		c.draw(batch)
		for _, x := range c.rows {
			seen[x]++
		}
	}
	for x, n := range seen {
		want := math.Exp(-float64(c.chance[x]))
		if n == 0 {
			continue // chosen by nobody
		}
		if got := n / draws; math.Abs(got-want) > 0.015 {
			t.Errorf("item %d was a candidate in %.3f of the batches, its chance is %.3f", x, got, want)
		}
	}
}

// Over many samples the gradient of the sampled softmax is that of the whole one;
// without the correction a popular item pays for being in every batch.
func TestPopularityCorrection(t *testing.T) {
	withoutRace(t)
	d, pairs := popular()
	p, err := prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	const batches = 3000
	gradient := func(limit int, correct bool) []float32 {
		f := newForm(bilinear.Full, 0, p, 1)
		tr := newTrainer(p, f, pairs, recipe{scale: 2, batch: 32, limit: limit, draws: 24, rounds: 1, seed: 3})
		if limit < p.items.Rows && !correct {
			clear(tr.candidates.chance)
		}
		sum := make([]float32, len(f.grads()[0]))
		order, pairs := rand.New(rand.NewPCG(3, 3)), slices.Clone(pairs) // the same batches for all
		for range batches {
			order.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
			tr.loss(pairs[:tr.batch])
			add(sum, f.grads()[0], 1./batches)
		}
		return sum
	}
	whole := gradient(100, false)
	off := func(g []float32) float64 {
		rest := append([]float32(nil), g...)
		add(rest, whole, -1)
		return rerank.Norm(rest)
	}
	with, without := off(gradient(1, true)), off(gradient(1, false))
	if with > without/2 {
		t.Errorf("the sampled gradient is off by %.4f with the correction, %.4f without; want half at most", with, without)
	}
}

func TestItemsWithoutPairsAreNoCandidates(t *testing.T) {
	items := normal(rand.New(rand.NewPCG(1, 1)), 5, 2)
	for _, limit := range []int{1, 100} {
		c := newCandidates(items, []pair{{0, 1, 1}, {1, 3, 1}}, []int{0, 1, 2}, 2, limit, 50, rand.New(rand.NewPCG(1, 1)))
		c.draw([]pair{{0, 1, 1}})
		for _, x := range []int{0, 2, 4} {
			if c.column[x] >= 0 {
				t.Errorf("limit %d: item %d has no pair and is a candidate", limit, x)
			}
		}
		if c.column[1] < 0 {
			t.Errorf("limit %d: the pair's own item is no candidate", limit)
		}
	}
}
