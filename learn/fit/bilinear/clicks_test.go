package bilinear_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// shop is a collection whose inner product puts the right item among the first ten, and rarely first.
type shop struct {
	items, queries rerank.Matrix
	right          []int32
	lists          [][]int32 // by the inner product
}

func newShop(queries int) shop {
	const items, dim, places = 40, 10, 10
	rng := rand.New(rand.NewPCG(31, 32))
	s := shop{items: fittest.NormalMatrix(rng, items, dim), queries: fittest.NormalMatrix(rng, queries, dim)}
	for r := range items {
		rerank.Normalise(s.items.Row(r))
	}
	for q := range queries {
		x := rng.IntN(items)
		for i, v := range s.items.Row(x) {
			s.queries.Row(q)[i] *= 0.25
			if i%2 == 0 {
				s.queries.Row(q)[i] += v
			} else {
				s.queries.Row(q)[i] -= v / 3
			}
		}
		rerank.Normalise(s.queries.Row(q))
		s.right = append(s.right, int32(x))
		s.lists = append(s.lists, s.rank(s.queries.Row(q))[:places])
	}
	return s
}

// rank returns the items by their inner product with a vector.
func (s shop) rank(vector []float32) []int32 {
	order := fittest.AllRows(s.items.Rows)
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Compare(linalg.Dot(vector, s.items.Row(int(b))), linalg.Dot(vector, s.items.Row(int(a))))
	})
	return order
}

// log shows lists, a third of them with two places swapped, to people.
func (s shop) log(n int, p clicks.Person) []clicks.Answer {
	rng := rand.New(rand.NewPCG(33, 34))
	answers := make([]clicks.Answer, n)
	for n := range answers {
		q := rng.IntN(s.queries.Rows / 2) // the other half judges
		list := slices.Clone(s.lists[q])
		if rng.IntN(3) == 0 {
			i, j := rng.IntN(len(list)), rng.IntN(len(list))
			list[i], list[j] = list[j], list[i]
		}
		answers[n] = p.Answer(int32(q), list, func(item int32) bool { return item == s.right[q] }, rng)
	}
	return answers
}

// mrr fits the choices and returns the mean reciprocal rank of the right item for queries that
// nobody asked before.
func (s shop) mrr(t *testing.T, c *clicks.Corrected) float64 {
	t.Helper()
	o := fitbilinear.DefaultOptions()
	o.Scale, o.Rate, o.Pulls, o.Rounds, o.Steps = 10, 0.01, []float64{1e-3}, 5, 100
	o.Cold = fit.ColdIgnore
	d := fit.Data{Items: s.items, Queries: s.queries}.Corrected(c, true)
	fitted, err := fitbilinear.Fit(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	similarity, err := bilinear.New(fitted.Config, fitted.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	scores := make([]float32, s.items.Rows)
	half := s.queries.Rows / 2
	for q := half; q < s.queries.Rows; q++ {
		e, err := similarity.Encode(rerank.Query{Vector: s.queries.Row(q)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Score(scores, rerank.Items{Features: s.items}); err != nil {
			t.Fatal(err)
		}
		rank := 1
		for _, v := range scores {
			if v > scores[s.right[q]] {
				rank++
			}
		}
		sum += 1 / float64(rank)
	}
	return sum / float64(half)
}

// TestClicks: clicks that favour the first places teach the old ranking to a fit that does not know
// the positions. Corrected, they teach as much as clicks of people who look everywhere.
func TestClicks(t *testing.T) {
	s := newShop(1200)
	unknown := &clicks.Curve{Method: clicks.Uncorrected, Propensities: []float64{1}}
	unbiased := s.mrr(t, unknown.Correct(s.log(4000, clicks.Person{Browsing: clicks.ByPosition, Noise: 0.1}), s.queries.Rows, 100))
	for _, b := range []clicks.Browsing{clicks.ByPosition, clicks.Cascade} {
		answers := s.log(4000, clicks.Person{Browsing: b, Severity: 1, Noise: 0.1})
		curve := clicks.Estimator{}.Estimate(answers)
		naive := s.mrr(t, unknown.Correct(answers, s.queries.Rows, 100))
		corrected := s.mrr(t, curve.Correct(answers, s.queries.Rows, 100))
		t.Logf("%s: naive %.4f, corrected %.4f, unbiased %.4f", b, naive, corrected, unbiased)
		if corrected < naive+0.02 || corrected < unbiased-0.005 {
			t.Errorf("%s: MRR of the naive fit %.4f, corrected %.4f, of unbiased clicks %.4f", b, naive, corrected, unbiased)
		}
	}
}
