package train

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// adamOf takes the steps of Kingma and Ba's algorithm 1 in float64, for one parameter.
func adamOf(p, rate float64, gradients []float64) float64 {
	var m, v float64
	for i, g := range gradients {
		n := float64(i + 1)
		m, v = 0.9*m+0.1*g, 0.999*v+0.001*g*g
		p -= rate * (m / (1 - math.Pow(0.9, n))) / (math.Sqrt(v/(1-math.Pow(0.999, n))) + 1e-8)
	}
	return p
}

// TestAdam: both optimisers take the steps of the algorithm; a parameter without a gradient
// stays where it is.
func TestAdam(t *testing.T) {
	gradients := [][]float64{{1, -2, 0}, {0.5, -2, 0}, {-3, 1e-3, 0}, {2, 4, 0}}
	parameters, table := [][]float32{{1, 2, 3}}, rerank.Matrix{Rows: 3, Cols: 3, Data: []float32{7, 7, 7, 1, 2, 3, 8, 8, 8}}
	a, rows := NewAdam(0.1, parameters), NewRowAdam(3, 3)
	for i, g := range gradients {
		half := make([]float32, 3)
		whole := make([]float32, 3)
		for j, x := range g {
			half[j], whole[j] = float32(x/2), float32(x)
		}
		a.Update(parameters, [][]float32{whole})
		if i == 0 {
			rows.AddGradient(0, []float32{0, 0, 0}) // another row, before and after
		}
		rows.AddGradient(1, half) // in two parts
		rows.AddGradient(1, half)
		rows.Update(table, 0.1, i+1)
	}
	for j := range 3 {
		var own []float64
		for _, g := range gradients {
			own = append(own, g[j])
		}
		want := adamOf(float64(j+1), 0.1, own)
		if got := float64(parameters[0][j]); !(math.Abs(got-want) <= 1e-5) {
			t.Errorf("parameter %d is %v, want %v", j, got, want)
		}
		if got := float64(table.Row(1)[j]); !(math.Abs(got-want) <= 1e-5) {
			t.Errorf("parameter %d of a row is %v, want %v", j, got, want)
		}
	}
	if !slices.Equal(table.Row(0), []float32{7, 7, 7}) || !slices.Equal(table.Row(2), []float32{8, 8, 8}) {
		t.Errorf("rows without a gradient are %v and %v", table.Row(0), table.Row(2))
	}
}

// pairsOf lists pairs of queries that have so many items each, of weight 1, 2, …
func pairsOf(counts ...int) (pairs []samples.Pair) {
	for q, n := range counts {
		for i := range n {
			pairs = append(pairs, samples.Pair{Query: int32(q), Item: int32(10*q + i), Weight: float32(i + 1)})
		}
	}
	return pairs
}

// TestBatches: in one pass every query comes once, in random order; over many passes each of
// its items comes.
func TestBatches(t *testing.T) {
	const queries = 64
	pairs := pairsOf(slices.Repeat([]int{1, 3}, queries/2)...)
	b := NewBatches(pairs, 32, rand.NewPCG(1, 2))
	if b.Size != 32 || b.Steps != minRoundSteps || !(math.Abs(b.MeanWeight-(32.*1+32*6)/(32+96)) <= 1e-9) {
		t.Fatalf("batches of %d, %d a round, of weight %v", b.Size, b.Steps, b.MeanWeight)
	}
	if slices.IsSortedFunc(b.Next(), func(a, b samples.Pair) int { return cmp.Compare(a.Query, b.Query) }) {
		t.Error("the first batch goes through the log in its own order")
	}
	b.Next()
	items, sorted := map[int32]bool{}, true
	for pass := range 50 {
		seen := map[int32]bool{}
		for range queries / b.Size {
			for i, p := range b.Next() {
				if seen[p.Query] {
					t.Fatalf("query %d comes twice in pass %d", p.Query, pass)
				}
				seen[p.Query], items[p.Item] = true, true
				sorted = sorted && (i == 0 || b.batch[i-1].Query < p.Query)
				if p != pairs[slices.Index(pairs, p)] {
					t.Fatalf("%+v is no pair", p)
				}
			}
		}
		if len(seen) != queries {
			t.Fatalf("pass %d has %d queries of %d", pass, len(seen), queries)
		}
	}
	if len(items) != len(pairs) || sorted {
		t.Errorf("%d items of %d came; the queries are in their own order: %t", len(items), len(pairs), sorted)
	}
	// The second half of the queries is as often in the first batch as the first half.
	late := 0
	for range 200 {
		for _, p := range b.Next() {
			if p.Query >= queries/2 {
				late++
			}
		}
		b.Next()
	}
	if share := float64(late) / (200 * 32); share < 0.45 || share > 0.55 {
		t.Errorf("%.2f of the first batches are of the second half", share)
	}
	b.Next() // in the middle of a pass
	at, again := b.Position(), NewBatches(pairs, 32, rand.NewPCG(9, 9))
	at.Order = slices.Clone(at.Order)
	var want [][]samples.Pair
	for range 5 {
		want = append(want, slices.Clone(b.Next()))
	}
	if err := again.Resume(at); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got := again.Next(); !slices.Equal(got, want[i]) {
			t.Fatalf("batch %d behind a position differs", i)
		}
	}
	for name, p := range map[string]BatchPosition{"other queries": {Order: at.Order[1:], Random: at.Random}, "no random state": {Order: at.Order}, "a negative place": {Order: at.Order, Next: -1, Random: at.Random}} {
		if err := again.Resume(p); !errors.Is(err, fit.ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if few := NewBatches(pairsOf(2, 1, 1), 32, rand.NewPCG(1, 2)); few.Size != 3 || len(few.Next()) != 3 {
		t.Errorf("three queries come in batches of %d", few.Size)
	}
}

// TestCrossEntropy: the loss equals its definition in float64, and the gradient is its slope. Other
// items of the query, its twins and seen items do not count as wrong answers, and the wanted item
// is not corrected.
func TestCrossEntropy(t *testing.T) {
	const scale, items = 3, 6
	e := CrossEntropy{Log: &samples.Log{Relevant: [][]int32{{1, 4}, {2}}, Twins: [][]int32{{5}, nil}, Seen: [][]int32{nil, {0, 2}}}, Scale: scale, MeanWeight: 1.5}
	batch := []samples.Pair{{Query: 0, Item: 4, Weight: 2}, {Query: 1, Item: 2, Weight: 1}}
	c := &Candidates{Columns: []int32{0, 1, 2, -1, 3, 4}, Rows: []int32{0, 1, 2, 4, 5}, Correction: []float32{0.1, 0.2, 0.3, 0.4, 0.5}}
	excluded := [][]int{{1, 4}, {0}} // columns: item 1, and item 5, a twin; item 0, which was seen
	targets := []int{3, 2}
	scores := []float32{0.3, -0.2, 0.5, 0.1, 0.9, -0.4, 0.2, 0.1, 0.6, -0.3}
	loss := func(scores []float32) float64 {
		var sum float64
		for b, p := range batch {
			var total, own float64
			for col := range 5 {
				if slices.Contains(excluded[b], col) {
					continue
				}
				x := scale * float64(scores[5*b+col])
				if col != targets[b] {
					x += float64(c.Correction[col])
				} else {
					own = x
				}
				total += math.Exp(x)
			}
			sum += float64(p.Weight) / (1.5 * 2) * (math.Log(total) - own)
		}
		return sum
	}
	gradient := rerank.Matrix{Rows: 2, Cols: 5, Data: slices.Clone(scores)}
	if got, want := e.Apply(gradient, batch, c), loss(scores); !(math.Abs(got-want) <= 1e-5) {
		t.Errorf("the loss is %v, want %v", got, want)
	}
	for i := range scores {
		up, down := slices.Clone(scores), slices.Clone(scores)
		const step = 1e-3
		up[i] += step
		down[i] -= step
		if want := (loss(up) - loss(down)) / (float64(up[i]) - float64(down[i])); !(math.Abs(float64(gradient.Data[i])-want) <= 1e-3) {
			t.Errorf("the slope of score %d is %v, want %v", i, gradient.Data[i], want)
		}
	}
}

// TestDraw: the items of the batch are candidates, each once, and nothing of the batch before.
func TestDraw(t *testing.T) {
	counts := slices.Repeat([]int{2}, 40)
	pairs := pairsOf(counts...)
	for i := range pairs {
		pairs[i].Item = int32(i)
	}
	items := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), 90, 3) // ten without a pair
	c := NewCandidates(items, pairs, CandidateLimits{All: 10, Draws: 5, Batch: 4})
	rng := rand.New(rand.NewPCG(3, 4))
	for from := 0; from+4 <= len(pairs); from += 4 {
		batch := pairs[from : from+4]
		c.Draw(batch, rng)
		for _, p := range batch {
			if c.Columns[p.Item] < 0 {
				t.Fatalf("item %d of the batch is no candidate", p.Item)
			}
		}
		columns := 0
		for x, column := range c.Columns {
			if column < 0 {
				continue
			}
			columns++
			if c.Rows[column] != int32(x) || !slices.Equal(c.Vectors.Row(int(column)), items.Row(x)) || c.Correction[column] != c.rareness[x] || x >= len(pairs) {
				t.Fatalf("item %d has column %d, which is of item %d", x, column, c.Rows[column])
			}
		}
		if columns != len(c.Rows) || columns > 9 {
			t.Fatalf("%d items have columns, %d are candidates", columns, len(c.Rows))
		}
	}
}

// TestSharesOfPairs: every query has the same share, and divides it among its pairs.
func TestSharesOfPairs(t *testing.T) {
	if got := pairShares(samples.PairStarts(pairsOf(1, 4, 1))); !slices.Equal(got, []float64{1. / 3, 1. / 12, 1. / 12, 1. / 12, 1. / 12, 1. / 3}) {
		t.Errorf("shares %v", got)
	}
}
