package inner_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestRefineFindsMore: fitted to a ranker's scores of a few items, which are neither on φ's scale nor
// have its zero, a query of any kind orders the other items more as the ranker does. The refined
// query's probe finds what it scores.
func TestRefineFindsMore(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	for kind, s := range similarities(t, r) {
		able := rerank.AbilitiesOf(s).Refine
		if grouped := s.Spec().GroupedRows; (able == nil) != grouped {
			t.Errorf("%s can be refined: %t", kind, able != nil)
		}
		if able == nil {
			continue
		}
		items := random(r, 300, dim)
		if err := s.EncodeItems(items, items.Slice(0, 300)); err != nil {
			t.Fatal(err)
		}
		q, err := s.Encode(rerank.Query{Vector: random(r, 1, dim).Data})
		if err != nil {
			t.Fatal(err)
		}
		before, after, truth := make([]float32, 300), make([]float32, 300), make([]float32, 300)
		other := random(r, 1, dim).Row(0)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(q.Score(before, rerank.Items{Features: items}))
		scale := rerank.Norm(items.Row(0)) * rerank.Norm(other)
		for i, phi := range before {
			var own float64 // what the ranker sees and φ does not
			for j, x := range items.Row(i) {
				own += float64(x) * float64(other[j])
			}
			truth[i] = float32(70 + 9*math.Tanh(float64(phi)/deviation(before)/2+1.5*own/scale*math.Sqrt(dim)/2))
		}
		refined, err := able.Refine(q, items.Slice(0, 60), truth[:60])
		must(err)
		must(refined.Score(after, rerank.Items{Features: items}))
		was, is := correlation(before[60:], truth[60:]), correlation(after[60:], truth[60:])
		if t.Logf("%s: correlation %.3f, refined %.3f", kind, was, is); !(is > was+0.1) {
			t.Errorf("%s: the refined query is no better: %.3f, before %.3f", kind, is, was)
		}
		probes, err := refined.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
		must(err)
		for i := range 300 {
			if got := dotOf(probes[0].Vector, items.Row(i)); !(math.Abs(got-float64(after[i])) <= 1e-3) {
				t.Fatalf("%s: the probe finds item %d with %v, φ is %v", kind, i, got, after[i])
			}
		}
	}
}

// TestRefineKeepsTheQuery: the items that φ ranks first all lie near the query, so their scores hardly
// show how much φ itself tells of a ranker. If the vectors show nothing else of the ranker, a query
// fitted to the first twenty items of 300 orders all items almost as well as φ does.
func TestRefineKeepsTheQuery(t *testing.T) {
	const queries, scored = 200, 20
	r := rand.New(rand.NewPCG(6, 9))
	s := similarities(t, r)["dot"]
	var was, is float64 // mean correlations with the ranker
	for range queries {
		items := random(r, 300, dim)
		q, err := s.Encode(rerank.Query{Vector: random(r, 1, dim).Data})
		if err != nil {
			t.Fatal(err)
		}
		phi, after := make([]float32, 300), make([]float32, 300)
		if err := q.Score(phi, rerank.Items{Features: items}); err != nil {
			t.Fatal(err)
		}
		first := rerank.NewTopK(scored)
		truth, unseen := make([]float32, 300), 2*deviation(phi) // what the vectors do not show
		for i, x := range phi {
			truth[i] = x + float32(unseen*r.NormFloat64())
			first.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: x, Index: i})
		}
		rows, scores := rerank.NewMatrix(scored, dim), make([]float32, scored)
		for i, h := range first.Sorted() {
			copy(rows.Row(i), items.Row(h.Index))
			scores[i] = truth[h.Index]
		}
		refined, err := rerank.AbilitiesOf(s).Refine.Refine(q, rows, scores)
		if err != nil {
			t.Fatal(err)
		}
		if err := refined.Score(after, rerank.Items{Features: items}); err != nil {
			t.Fatal(err)
		}
		was += correlation(phi, truth) / queries
		is += correlation(after, truth) / queries
	}
	if t.Logf("correlation %.3f, refined %.3f", was, is); is < 0.95*was {
		t.Errorf("correlation %.3f with the refined query, want 95 %% of the %.3f of φ", is, was)
	}
}

// TestRefineWithoutNews: scores that do not differ, one score, or zero rows leave the query as it is.
func TestRefineWithoutNews(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	s := similarities(t, r)["dot"]
	q, err := s.Encode(rerank.Query{Vector: random(r, 1, dim).Data})
	if err != nil {
		t.Fatal(err)
	}
	nan, able := float32(math.NaN()), rerank.AbilitiesOf(s).Refine
	for name, c := range map[string]struct {
		rows   rerank.Matrix
		scores []float32
		want   error
	}{
		"equal scores":    {random(r, 3, dim), []float32{2, 2, 2}, nil},
		"one score":       {random(r, 1, dim), []float32{5}, nil},
		"zero rows":       {rerank.NewMatrix(2, dim), []float32{5, 1}, nil},
		"no scores":       {rerank.NewMatrix(0, dim), nil, rerank.ErrItems},
		"a score too few": {random(r, 2, dim), []float32{1}, rerank.ErrItems},
		"other rows":      {random(r, 1, dim+1), []float32{1}, rerank.ErrItems},
		"no number":       {random(r, 2, dim), []float32{nan, 1}, rerank.ErrQuery},
	} {
		refined, err := able.Refine(q, c.rows, c.scores)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.want != nil || err != nil {
			continue
		}
		rows, scores := random(r, 2, dim), make([]float32, 4)
		if err := errors.Join(q.Score(scores[:2], rerank.Items{Features: rows}), refined.Score(scores[2:], rerank.Items{Features: rows})); err != nil || scores[0] != scores[2] || scores[1] != scores[3] {
			t.Errorf("%s: %v: scores %v before and %v after", name, err, scores[:2], scores[2:])
		}
	}
	if _, err := able.Refine(nil, random(r, 1, dim), []float32{1}); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of another similarity: %v", err)
	}
}

func dotOf(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// deviation returns the standard deviation of scores.
func deviation(v []float32) float64 {
	var sum, square float64
	for _, x := range v {
		sum += float64(x)
		square += float64(x) * float64(x)
	}
	n := float64(len(v))
	return math.Sqrt(square/n - sum/n*sum/n)
}

// correlation returns the correlation of two lists of scores.
func correlation(a, b []float32) float64 {
	var meanA, meanB, product float64
	for i := range a {
		meanA += float64(a[i]) / float64(len(a))
		meanB += float64(b[i]) / float64(len(a))
	}
	for i := range a {
		product += (float64(a[i]) - meanA) * (float64(b[i]) - meanB) / float64(len(a))
	}
	return product / deviation(a) / deviation(b)
}
