package judge

import (
	"math"
	"slices"
	"testing"

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
		if got := hits.ReciprocalRank(); math.Abs(got-want.reciprocal) > 1e-12 {
			t.Errorf("%b: reciprocal rank %v, want %v", hits, got, want.reciprocal)
		}
		if got := hits.NDCG(want.wanted); math.Abs(got-want.cut) > 1e-12 {
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

// TestFirstRows: the greatest scores first, and of equal ones the first row, also at the last
// place.
func TestFirstRows(t *testing.T) {
	scores := make([]float32, 30)
	for i := range scores {
		scores[i] = float32(i / 3) // three of each
	}
	want := [Cutoff]int32{27, 28, 29, 24, 25, 26, 21, 22, 23, 18}
	if got := firstRows(scores); got != want {
		t.Errorf("rows %v, want %v", got, want)
	}
	if got := firstRows(slices.Repeat([]float32{5}, 12)); got != [Cutoff]int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9} {
		t.Errorf("of twelve equal rows: %v", got)
	}
	if got := firstRows([]float32{1, 2, 2}); got != [Cutoff]int32{1, 2, 0, -1, -1, -1, -1, -1, -1, -1} {
		t.Errorf("of three rows: %v", got)
	}
}

// TestWeightsOfAJudge: a query has the mean weight of its wanted pairs; items that it chose
// and that are not wanted are in no ranking.
func TestWeightsOfAJudge(t *testing.T) {
	l := &samples.Log{
		Items: rerank.NewMatrix(4, 1), Queries: rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 2, 3}},
		Relevant: [][]int32{{0, 1, 2}, {1}, {2, 3}}, Weights: [][]float32{{1, 2, 6}, {5}, {3, 4}},
	}
	j := New(l, []int32{0, 1, 2}, func(x int32) bool { return x != 1 })
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
	l.Weights[2] = []float32{30, 40}
	all := New(l, []int32{0, 1, 2}, nil)
	thin := all.Thin(2)
	if !slices.Equal(thin.Queries, []int32{0, 2}) || !slices.Equal(thin.Weights, []float64{3, 35}) || !slices.Equal(thin.WantedCounts, []int32{3, 2}) || !slices.Equal(thin.Vectors.Data, []float32{1, 3}) {
		t.Errorf("every second query is %+v", thin)
	}
	quality := all.Quality(func(vectors, _ rerank.Matrix) { clear(vectors.Data) }) // every score is 0
	mrr, ndcg := all.Marks(func(vectors, _ rerank.Matrix) { clear(vectors.Data) })
	if want := (all.Mean(mrr) + all.Mean(ndcg)) / 2; quality != want || all.Mean(mrr) == all.Mean(ndcg) {
		t.Errorf("the quality is %v, want the mean of %v and %v", quality, all.Mean(mrr), all.Mean(ndcg))
	}
}

// TestALargeCollectionIsJudgedOnFewerQueries, and a small one on all.
func TestALargeCollectionIsJudgedOnFewerQueries(t *testing.T) {
	l := &samples.Log{Items: rerank.Matrix{Rows: 1 << 22, Cols: 64}, Queries: rerank.NewMatrix(1000, 64)}
	for range 1000 {
		l.Relevant = append(l.Relevant, []int32{0})
	}
	queries := make([]int32, 1000)
	for q := range queries {
		queries[q] = int32(q)
	}
	if n := len(New(l, queries, nil).Queries); n != 200 {
		t.Errorf("%d queries judge four million items, want 200 of 1,000", n)
	}
	l.Items.Rows = 1000
	if n := len(New(l, queries, nil).Queries); n != 1000 {
		t.Errorf("%d queries judge a thousand items, want all", n)
	}
}

// TestComparison: the standard error clusters the differences from their mean by item.
func TestComparison(t *testing.T) {
	c := Compare(Outcomes{Scores: []float64{1, 0.5, 0}, Baseline: []float64{0, 0.5, 0.5}, Weights: []float64{1, 2, 1}, Items: []int32{7, 7, 8}})
	gain := (1*1 + 2*0 + 1*-0.5) / 4.
	first, second := (1-gain)+2*(0-gain), -0.5-gain
	want := math.Sqrt(first*first+second*second) / 4
	if math.Abs(c.Gain-gain) > 1e-12 || math.Abs(c.StandardError-want) > 1e-12 || math.Abs(c.Baseline-1.5/4) > 1e-12 || c.Queries != 3 {
		t.Errorf("%+v, want a gain of %v ± %v", c, gain, want)
	}
}
