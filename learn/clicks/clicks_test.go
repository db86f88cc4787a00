package clicks_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/rerank"
)

// TestPersonLooks: at position k with chance 1/k^η, in a cascade if nothing above was clicked, and
// irrelevant items are clicked as often as the noise says.
func TestPersonLooks(t *testing.T) {
	const runs, places = 40_000, 6
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range []clicks.Browsing{clicks.ByPosition, clicks.Cascade} {
		p := clicks.Person{Browsing: b, Severity: 1, Noise: 0.2}
		var clicked [places]float64
		relevant := []bool{false, false, true, false, true, false}
		for range runs {
			got := p.Read(relevant, rng)
			for i, c := range got {
				if c {
					clicked[i]++
				}
			}
		}
		above := 1.0 // the chance that nobody clicks above
		for i, r := range relevant {
			want, chance := p.Propensity(i+1), 0.2
			if r {
				chance = 1
			}
			want *= chance
			if b == clicks.Cascade {
				want, above = want*above, above*(1-chance)
			}
			if got, slack := clicked[i]/runs, 5*math.Sqrt(want/runs); !(math.Abs(got-want) <= slack) {
				t.Errorf("%s: place %d is clicked with chance %.4f, want %.4f ± %.4f", b, i+1, got, want, slack)
			}
		}
	}
	all := clicks.Person{Browsing: clicks.ByPosition}.Read([]bool{true, false, true}, rng)
	if !slices.Equal(all, []bool{true, false, true}) {
		t.Errorf("without noise and bias, %v is clicked", all)
	}
}

// world is a collection whose relevance follows from its vectors.
type world struct {
	queries, items rerank.Matrix
	lists          [][]int32 // for each query, items in the order of an old ranking
}

func newWorld(queries, items, places int) world {
	const dim = 8
	rng := rand.New(rand.NewPCG(5, 6))
	w := world{queries: rerank.NewMatrix(queries, dim), items: rerank.NewMatrix(items, dim)}
	for _, m := range []rerank.Matrix{w.queries, w.items} {
		for r := range m.Rows {
			for i := range m.Row(r) {
				m.Row(r)[i] = float32(rng.NormFloat64())
			}
			rerank.Normalise(m.Row(r))
		}
	}
	for range queries {
		var list []int32
		for _, x := range rng.Perm(items)[:places] {
			list = append(list, int32(x))
		}
		w.lists = append(w.lists, list)
	}
	return w
}

// isRelevant draws the relevance of an item from a logistic function of the inner product.
func (w world) isRelevant(q int, x int32, rng *rand.Rand) bool {
	return rng.Float64() < 1/(1+math.Exp(2-6*w.dot(q, x)))
}

func (w world) dot(q int, x int32) (dot float64) {
	for i, v := range w.queries.Row(q) {
		dot += float64(v) * float64(w.items.Row(int(x))[i])
	}
	return dot
}

// answers shows lists, a share of them with two places swapped, to people.
func (w world) answers(n int, p clicks.Person, swapped float64) []clicks.Answer {
	rng := rand.New(rand.NewPCG(7, 8))
	var answers []clicks.Answer
	for range n {
		q := rng.IntN(len(w.lists))
		list := slices.Clone(w.lists[q])
		if rng.Float64() < swapped {
			i, j := rng.IntN(len(list)), rng.IntN(len(list))
			list[i], list[j] = list[j], list[i]
		}
		answers = append(answers, p.Answer(int32(q), list, func(item int32) bool { return w.isRelevant(q, item, rng) }, rng))
	}
	return answers
}

func checkCurve(t *testing.T, c *clicks.Curve, p clicks.Person, slack float64) {
	t.Helper()
	for k, got := range c.Propensities {
		want := p.Propensity(k + 1)
		if !(math.Abs(got-want) <= 4*c.StandardErrors[k]+slack) {
			t.Errorf("%s of position %d is %.3f ± %.3f, want %.3f", c.Method, k+1, got, c.StandardErrors[k], want)
		}
	}
}

// TestHarvesting: swapped answers show the curve, however relevant the items are. Standard errors say
// how far it can be off. A cascade looks steeper, because clicks above end it.
func TestHarvesting(t *testing.T) {
	w := newWorld(300, 60, 6)
	p := clicks.Person{Browsing: clicks.ByPosition, Severity: 1, Noise: 0.1}
	c := clicks.Estimator{}.Estimate(w.answers(15_000, p, 0.5))
	if c.Method != clicks.Harvesting || !strings.Contains(c.Text(), "Measured") {
		t.Errorf("estimated by %s: %s", c.Method, c.Text())
	}
	checkCurve(t, c, p, 0)
	if e := c.StandardErrors[5]; e == 0 || e > 0.1 {
		t.Errorf("the standard error of position 6 is %g", e)
	}
	p.Browsing = clicks.Cascade
	steeper := clicks.Estimator{}.Estimate(w.answers(15_000, p, 0.5))
	for k := 1; k < 6; k++ {
		if steeper.Propensities[k] >= c.Propensities[k] {
			t.Errorf("position %d has %.3f in a cascade, %.3f without", k+1, steeper.Propensities[k], c.Propensities[k])
		}
	}
}

// TestRegression: without swaps, vectors that relevance follows from give the curve; without
// vectors nothing does, and the report says so.
func TestRegression(t *testing.T) {
	w := newWorld(1500, 60, 5)
	p := clicks.Person{Browsing: clicks.ByPosition, Severity: 1}
	answers := w.answers(6000, p, 0)
	c := clicks.Estimator{Queries: w.queries, Items: w.items}.Estimate(answers)
	if c.Method != clicks.Regression || !strings.Contains(c.Text(), "assumes") {
		t.Errorf("estimated by %s: %s", c.Method, c.Text())
	}
	checkCurve(t, c, p, 0.05)
	c = clicks.Estimator{}.Estimate(answers)
	if c.Method != clicks.Uncorrected || c.At(5) != 1 || !strings.Contains(c.Text(), "Not corrected") {
		t.Errorf("without swaps and vectors: %+v: %s", c, c.Text())
	}
}

// TestRegressionOfARanking: in lists by the inner product, where the first item is right most often, a regression
// tells that from how often people look.
func TestRegressionOfARanking(t *testing.T) {
	w := newWorld(1500, 60, 5)
	rng := rand.New(rand.NewPCG(9, 10))
	right := make([]int32, len(w.lists))
	for q, list := range w.lists {
		weights, sum := map[int32]float64{}, 0.0
		for _, x := range list {
			weights[x] = math.Exp(8 * w.dot(q, x))
			sum += weights[x]
		}
		slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(w.dot(q, b), w.dot(q, a)) })
		left := rng.Float64() * sum
		for _, x := range list {
			if left -= weights[x]; left < 0 {
				right[q] = x
				break
			}
		}
	}
	p := clicks.Person{Browsing: clicks.ByPosition, Severity: 1, Noise: 0.02}
	var answers []clicks.Answer
	for n := range 6000 {
		q := n % len(w.lists)
		answers = append(answers, p.Answer(int32(q), w.lists[q], func(x int32) bool { return x == right[q] }, rng))
	}
	checkCurve(t, clicks.Estimator{Queries: w.queries, Items: w.items}.Estimate(answers), p, 0.05)
}

// TestRegressionOfALongLog: of more pairs than it reads, a regression reads some of every part of the log, and of
// every position. Here people look at the second position in the last three quarters only.
func TestRegressionOfALongLog(t *testing.T) {
	const queries = 8000
	var answers []clicks.Answer
	for q := range int32(queries) {
		a := clicks.Answer{Query: q, Items: []int32{0, 1}, Positions: []int32{1, 2}, Weights: []float32{1, 0}}
		if q >= queries/4 {
			a.Weights[1] = 1
		}
		answers = append(answers, a)
	}
	ones := func(rows int) rerank.Matrix {
		return rerank.Matrix{Rows: rows, Cols: 1, Data: slices.Repeat([]float32{1}, rows)}
	}
	c := clicks.Estimator{Method: clicks.Regression, Queries: ones(queries), Items: ones(2)}.Estimate(answers)
	if got := c.At(2); !(math.Abs(got-0.75) <= 0.05) {
		t.Errorf("the second position is looked at %.3f times as often as the first, want 0.75", got)
	}
}

// TestOneQueryProvesNothing: standard errors leave out whole queries, because what people choose for one query
// depends on each other. A curve from one query alone is not known.
func TestOneQueryProvesNothing(t *testing.T) {
	var answers []clicks.Answer
	for i := range int32(400) {
		for range 2 {
			answers = append(answers,
				clicks.Answer{Items: []int32{2 * i, 2*i + 1}, Positions: []int32{1, 2}, Weights: []float32{1, 0}},
				clicks.Answer{Items: []int32{2*i + 1, 2 * i}, Positions: []int32{1, 2}, Weights: []float32{1, 1}})
		}
	}
	if c := (clicks.Estimator{}).Estimate(answers); c.Method != clicks.Harvesting || !(c.StandardErrors[1] > 0.3) {
		t.Errorf("%s from one query has a standard error of %.3f at position 2", c.Method, c.StandardErrors)
	}
}

// TestUnlinkedPositions: swaps that never involve the first position say nothing about it.
func TestUnlinkedPositions(t *testing.T) {
	var answers []clicks.Answer
	for i := range 1000 {
		second, third := int32(1+i%2), int32(2-i%2)
		answers = append(answers, clicks.Answer{Items: []int32{0, second, third}, Positions: []int32{1, 2, 3}, Weights: []float32{1, 1, 1}})
	}
	for _, method := range []clicks.Method{"", clicks.Harvesting} {
		if c := (clicks.Estimator{Method: method}).Estimate(answers); c.Method != clicks.Uncorrected || c.Swapped != 2 {
			t.Errorf("asked for %q: %s, from %d swapped pairs", method, c.Method, c.Swapped)
		}
	}
}

// swaps returns answers with two items at positions 1 and 2, in turns. The item at position 1 is chosen.
func swaps(n int) (answers []clicks.Answer) {
	for i := range int32(n) {
		answers = append(answers, clicks.Answer{Items: []int32{i % 2, 1 - i%2}, Positions: []int32{1, 2}, Weights: []float32{1, 0}})
	}
	return answers
}

// TestFewChoices: fewer than 200 choices measure no curve, unless it is asked for. A position without any choice is not
// one at which nobody looks.
func TestFewChoices(t *testing.T) {
	if c := (clicks.Estimator{}).Estimate(swaps(199)); c.Method != clicks.Uncorrected || c.At(2) != 1 {
		t.Errorf("%s from 199 choices, %.3f at position 2", c.Method, c.At(2))
	}
	if c := (clicks.Estimator{Method: clicks.Harvesting}).Estimate(swaps(199)); c.Method != clicks.Harvesting || !(c.At(2) > 0 && c.At(2) < 0.1) {
		t.Errorf("%s as asked, %.3f at position 2", c.Method, c.At(2))
	}
	if got := new(clicks.Curve).At(3); got != 1 {
		t.Errorf("a curve without propensities has %g at position 3, want 1", got)
	}
}

// TestDeepPositions: positions beyond the tenth share propensities, and a list may leave some out.
func TestDeepPositions(t *testing.T) {
	var answers []clicks.Answer
	for i := range 400 {
		a := clicks.Answer{Items: []int32{0, 1}, Positions: []int32{1, 13}, Weights: []float32{1, 0}}
		if i%2 == 0 {
			a.Items = []int32{1, 0}
		}
		if i%4 < 2 {
			a.Weights[1] = 1
		}
		answers = append(answers, a)
	}
	c := clicks.Estimator{}.Estimate(answers)
	if len(c.Propensities) != 13 || !(math.Abs(c.At(13)-0.5) <= 1e-3) || c.At(11) != c.At(13) || c.At(99) != c.At(13) || c.At(10) != 1 {
		t.Errorf("the curve is %.3f", c.Propensities)
	}
}

// TestCorrect: a choice at a position that few people look at stands for those who did not, up to
// the clip, and has the time of the last; what was shown was looked at as often as the curve says, chosen or not.
func TestCorrect(t *testing.T) {
	c := &clicks.Curve{Method: clicks.Harvesting, Propensities: []float64{1, 0.5, 0.01}}
	answers := []clicks.Answer{
		{Query: 1, Items: []int32{4, 5, 6}, Positions: []int32{1, 2, 3}, Weights: []float32{0, 2, 1}, Time: 9},
		{Query: 1, Items: []int32{5, 4, 7}, Positions: []int32{1, 2, 3}, Weights: []float32{1, 0, 0}, Time: 7},
	}
	got := c.Correct(answers, 3, 20)
	want := []clicks.Choice{{1, 5, 3, 5. / 3, 9}, {1, 6, 1, 20, 9}}
	if !slices.Equal(got.Choices, want) || got.Clipped != 1 {
		t.Errorf("choices %v with %d clipped, want %v with 1", got.Choices, got.Clipped, want)
	}
	if looks := []clicks.Look{{4, 1.5}, {5, 1.5}, {6, 0.05}, {7, 0.05}}; !slices.Equal(got.Looks[1], looks) || got.Looks[0] != nil {
		t.Errorf("looks %v, want %v for query 1", got.Looks, looks)
	}
	if n := 25. * 25 / (4*4 + 20*20 + 1); !(math.Abs(got.EffectiveSize-n) <= 1e-9) {
		t.Errorf("effective size %g, want %g", got.EffectiveSize, n)
	}
	if c.Method = clicks.Uncorrected; c.Correct(answers, 3, 20).Looks != nil {
		t.Error("an unknown curve says who looked")
	}
}
