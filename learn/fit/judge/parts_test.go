package judge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// TestMeasuresOfHits: by their definitions.
func TestMeasuresOfHits(t *testing.T) {
	for hits, want := range map[Hits]struct {
		wanted          int32
		reciprocal, cut float64
	}{
		0:      {1, 0, 0},
		0b1:    {1, 1, 1},
		0b100:  {1, 1. / 3, 1 / math.Log2(4)},
		0b110:  {2, 1. / 2, (1/math.Log2(3) + 1/math.Log2(4)) / (1 + 1/math.Log2(3))},
		1 << 9: {20, 1. / 10, (1 / math.Log2(11)) / ideal(10)},
	} {
		if got := hits.ReciprocalRank(); !(math.Abs(got-want.reciprocal) <= 1e-12) {
			t.Errorf("%b: reciprocal rank %v, want %v", hits, got, want.reciprocal)
		}
		if got := hits.NDCG(want.wanted); !(math.Abs(got-want.cut) <= 1e-12) {
			t.Errorf("%b of %d: nDCG %v, want %v", hits, want.wanted, got, want.cut)
		}
	}
}

func ideal(n int) (sum float64) {
	for i := range n {
		sum += 1 / math.Log2(float64(i+2))
	}
	return sum
}

// TestTop: the greatest scores first, and of equal ones the first row, also at the last
// place, whether they come at once or in parts.
func TestTop(t *testing.T) {
	scores := make([]float32, 30)
	for i := range scores {
		scores[i] = float32(i / 3) // three of each
	}
	for _, c := range []struct {
		scores []float32
		want   []int32
	}{
		{scores, []int32{27, 28, 29, 24, 25, 26, 21, 22, 23, 18}},
		{slices.Repeat([]float32{5}, 12), []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{[]float32{1, 2, 2}, []int32{1, 2, 0}},
	} {
		for part := 1; part <= len(c.scores); part++ {
			var got top
			for from := 0; from < len(c.scores); from += part {
				got.add(c.scores[from:min(from+part, len(c.scores))], from)
			}
			if !slices.Equal(got.rows[:got.n], c.want) {
				t.Errorf("%v in parts of %d: rows %v, want %v", c.scores, part, got.rows[:got.n], c.want)
			}
		}
	}
}

// TestALargeRankingIsExact: queries that are done early have the hits of a full ranking: with
// items that are left out, copies of items, twins and items that are not finite.
func TestALargeRankingIsExact(t *testing.T) {
	const items = 2*itemBlock + 100
	d := fittest.RandomData(300, items, 6)
	rng := rand.New(rand.NewPCG(1, 2))
	for q := range 150 { // near its item
		for i, v := range d.Items.Row(int(d.Relevant[q][0])) {
			d.Queries.Row(q)[i] = v + 0.3*d.Queries.Row(q)[i]
		}
		copy(d.Items.Row(rng.IntN(items)), d.Items.Row(int(d.Relevant[q][0])))
	}
	copy(d.Queries.Row(7), d.Items.Row(items-1))
	l, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	l.Items.Row(5)[0] = float32(math.NaN())
	for name, wanted := range map[string]func(int32) bool{"all items": nil, "even items": func(x int32) bool { return x%2 == 0 }} {
		j := New(l, fit.MRR, fittest.AllRows(300), wanted)
		hits, some := j.FindHits(InnerProduct), 0
		for i, q := range j.Queries {
			scores := rerank.NewMatrix(1, items)
			linalg.Multiply(scores, j.Vectors.Slice(i, i+1), false, l.Items, true)
			if want := j.HitsOf(scores.Data, q); hits[i] != want {
				t.Errorf("%s: query %d has hits %b, want %b", name, q, hits[i], want)
			} else if want != 0 {
				some++
			}
		}
		if some < 20 || some > 200 {
			t.Errorf("%s: %d queries have hits; the data shows nothing", name, some)
		}
	}
}

// TestParts: the parts of a judge are the whole.
func TestParts(t *testing.T) {
	l, err := samples.Prepare(fittest.RandomData(50, 20, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	j := New(l, fit.MRR, fittest.AllRows(50), nil)
	got := append(j.Part(0, 17).Marks(InnerProduct), j.Part(17, 50).Marks(InnerProduct)...)
	if !slices.Equal(got, j.Marks(InnerProduct)) {
		t.Error("two parts give other ranks")
	}
	if p := j.Part(17, 50); p.FirstItems[0] != j.FirstItems[17] || p.WantedCounts[32] != j.WantedCounts[49] || p.Weights[3] != j.Weights[20] {
		t.Errorf("a part is %+v", p)
	}
	rival := RivalOf("dot", 7, InnerProduct)
	if ranks, err := rival.Marks(j); err != nil || !slices.Equal(ranks, got) || rival.Name != "dot" || rival.Numbers != 7 {
		t.Errorf("the rival of a probe is %+v, with other ranks than the probe: %v", rival, err)
	}
}

// TestWeightsOfAJudge: a query has the mean weight of its wanted pairs; items that it chose
// and that are not wanted are in no ranking.
func TestWeightsOfAJudge(t *testing.T) {
	l := &samples.Log{
		Items: rerank.NewMatrix(4, 1), Queries: rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 2, 3}},
		Relevant: [][]int32{{0, 1, 2}, {1}, {2, 3}}, Weights: [][]float32{{1, 2, 6}, {5}, {3, 4}},
	}
	j := New(l, fit.MRR, []int32{0, 1, 2}, func(x int32) bool { return x != 1 })
	if !slices.Equal(j.Queries, []int32{0, 2}) || !slices.Equal(j.Weights, []float64{3.5, 3.5}) || !slices.Equal(j.WantedCounts, []int32{2, 2}) || !slices.Equal(j.FirstItems, []int32{0, 2}) {
		t.Errorf("the judge has %+v", j)
	}
	if got := j.Mean([]float64{1, 0}); got != 0.5 {
		t.Errorf("the mean is %v", got)
	}
	if !j.LeavesOut(0, 1) || j.LeavesOut(0, 0) || j.LeavesOut(0, 3) {
		t.Error("the ranking of query 0 leaves out item 1, which it chose and nobody wants, and no other")
	}
	if hits := j.HitsOf([]float32{1, 9, 2, 3}, 0); hits != 0b110 { // item 3, then the wanted ones
		t.Errorf("hits %b, want the second and third place", hits)
	}
	l.Looks = [][]clicks.Look{{{Item: 3}}, nil, {{Item: 1}}}
	if j.LeavesOut(0, 3) || !j.LeavesOut(2, 0) {
		t.Error("a ranking has the items that were shown for its query, and no others")
	}
	l.Looks, l.Weights[2] = nil, []float32{30, 40}
	all := New(l, fit.MRR, []int32{0, 1, 2}, nil)
	thin := all.Thin(2)
	if !slices.Equal(thin.Queries, []int32{0, 2}) || !slices.Equal(thin.Weights, []float64{3, 35}) || !slices.Equal(thin.WantedCounts, []int32{3, 2}) || !slices.Equal(thin.Vectors.Data, []float32{1, 3}) {
		t.Errorf("every second query is %+v", thin)
	}
	zero := func(vectors, _ rerank.Matrix) { clear(vectors.Data) } // every score is 0
	quality := all.Quality(zero)
	mrr, ndcg := all.Marks(zero), New(l, fit.NDCG, []int32{0, 1, 2}, nil).Marks(zero)
	if want := (all.Mean(mrr) + all.Mean(ndcg)) / 2; quality != want || all.Mean(mrr) == all.Mean(ndcg) {
		t.Errorf("the quality is %v, want the mean of %v and %v", quality, all.Mean(mrr), all.Mean(ndcg))
	}
}

// TestAJudgeWithinABudget: a dear ranking is judged on fewer queries, but not on too few, and
// a cheap one on all.
func TestAJudgeWithinABudget(t *testing.T) {
	all := manyQueries(1000) // 1,000 items of one number: a query costs 1,000 multiplications
	for budget, want := range map[float64]int{1e6: 1000, 999_999: 500, 250_000: 250, 1: 201} {
		if n := len(all.Within(budget, 200).Queries); n < want-1 || n > want {
			t.Errorf("%d queries judge for %g multiplications, want %d", n, budget, want)
		}
	}
}

// TestAMixOfJudges: the queries of both sides, of which the second has its share of every mean.
func TestAMixOfJudges(t *testing.T) {
	all := manyQueries(10)
	first, second := all.Part(0, 8), all.Part(8, 10)
	first.Weights[0] = 9 // of 16
	second.WantedCounts[1] = 4
	mix := Mix(first, second, 0.6)
	ranks := make([]float64, 10)
	ranks[0], ranks[9] = 1, 1
	if got := mix.Mean(ranks); !(math.Abs(got-(0.4*9/16+0.6/2)) <= 1e-12) {
		t.Errorf("the mean is %v", got)
	}
	if !slices.Equal(mix.Queries, all.Queries) || !slices.Equal(mix.FirstItems, all.FirstItems) || !slices.Equal(mix.WantedCounts, all.WantedCounts) || mix.Vectors.Rows != 10 || len(mix.Part(3, 9).Queries) != 6 {
		t.Errorf("the mix is %+v", mix)
	}
}

// TestAJudgeKeepsWhatItJudges: a part, a thinner judge and a mix judge by the same measure, and want the same items.
func TestAJudgeKeepsWhatItJudges(t *testing.T) {
	all := manyQueries(10)
	j := New(all.log, fit.NDCG, all.Queries, func(x int32) bool { return x > 0 })
	for name, got := range map[string]*Judge{"Part": j.Part(1, 3), "Thin": j.Thin(3), "Within": j.Within(1, 1)} {
		if got.measure != fit.NDCG || got.log != j.log || got.wanted == nil || got.wanted(0) || !got.wanted(1) || len(got.Queries) == 0 {
			t.Errorf("%s makes %+v", name, got)
		}
	}
	if got := Mix(j, all, 0.5); got.measure != fit.NDCG || got.log != j.log { // of computed ranks, which it asks nothing of
		t.Errorf("Mix makes %+v", got)
	}
	if all.measure != fit.MRR {
		t.Errorf("By changed the measure of its judge to %s", all.measure)
	}
}

// TestAShuffledJudge has all queries, in an order that the seed decides.
func TestAShuffledJudge(t *testing.T) {
	ordered := manyQueries(1000)
	one, same, other := NewShuffled(ordered.log, fit.MRR, ordered.Queries, 1), NewShuffled(ordered.log, fit.MRR, ordered.Queries, 1), NewShuffled(ordered.log, fit.MRR, ordered.Queries, 2)
	if !slices.Equal(one.Queries, same.Queries) || slices.Equal(one.Queries, other.Queries) || slices.Equal(one.Queries, ordered.Queries) {
		t.Error("the order does not depend on the seed alone")
	}
	if slices.Sort(one.Queries); !slices.Equal(one.Queries, ordered.Queries) {
		t.Error("the queries are others")
	}
}

// TestComparison: the standard error clusters the differences from their mean by item.
func TestComparison(t *testing.T) {
	c := Compare(Outcomes{Scores: []float64{1, 0.5, 0}, Baseline: []float64{0, 0.5, 0.5}, Weights: []float64{1, 2, 1}, Items: []int32{7, 7, 8}})
	gain := (1*1 + 2*0 + 1*-0.5) / 4.
	first, second := (1-gain)+2*(0-gain), -0.5-gain
	want := math.Sqrt(first*first+second*second) / 4
	if !(math.Abs(c.Gain-gain) <= 1e-12) || !(math.Abs(c.StandardError-want) <= 1e-12) || !(math.Abs(c.Baseline-1.5/4) <= 1e-12) || c.Queries != 3 {
		t.Errorf("%+v, want a gain of %v ± %v", c, gain, want)
	}
}

// TestCeilingOfAScore: however float32 rounds the score of the best wanted item, it is below the ceiling, which a score that is
// not finite leaves open.
func TestCeilingOfAScore(t *testing.T) {
	const dim = 512
	rng := rand.New(rand.NewPCG(5, 6))
	l := &samples.Log{Items: fittest.NormalMatrix(rng, 3, dim), Queries: fittest.NormalMatrix(rng, 1, dim), Relevant: [][]int32{{0, 2}}}
	j := New(l, fit.MRR, []int32{0}, nil)
	vector := l.Queries.Row(0)
	best, slack := math.Inf(-1), 0.0
	for _, x := range l.Relevant[0] {
		row := l.Items.Row(int(x))
		if dot := linalg.Dot(vector, row); dot > best {
			best, slack = dot, dim*0x1p-24*rerank.Norm(vector)*rerank.Norm(row) // of a sum in order, by the theory
		}
	}
	if got := float64(j.ceiling(vector, 0)); !(got >= best+slack && got < best+4*slack) {
		t.Errorf("the ceiling of %v is %v, and rounding may add %v", best, got, slack)
	}
	l.Items.Row(0)[7] = float32(math.Inf(1))
	if got := j.ceiling(vector, 0); got == got {
		t.Errorf("the ceiling of a score that is not finite is %v", got)
	}
}

// TestWeightsByPropensity: a query judges by the weight of its pair, times what one of its clicks stands for.
func TestWeightsByPropensity(t *testing.T) {
	l := &samples.Log{
		Items: rerank.NewMatrix(3, 1), Queries: rerank.NewMatrix(2, 1), Relevant: [][]int32{{0, 2}, {1}}, Weights: [][]float32{{1, 3}, {2}}, Inverse: []float64{4, 0.5},
	}
	if j := New(l, fit.MRR, []int32{0, 1}, nil); !slices.Equal(j.Weights, []float64{4 * 2, 0.5 * 2}) {
		t.Errorf("weights %v", j.Weights)
	}
}
