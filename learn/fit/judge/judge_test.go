package judge

import (
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// TestAQuerysCopyIsLeftOut: an item with the query's own vector is nearest to the query, and nobody
// looked for it, so rankings leave it out.
func TestAQuerysCopyIsLeftOut(t *testing.T) {
	log, err := samples.Prepare(fit.Data{
		Items:    rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{0.8, 0.6, 1, 0, 0, 1}},
		Queries:  rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, -1, 0}},
		Relevant: [][]int32{{0}, {0}, {1}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	j := New(log, fit.MRR, []int32{0, 1}, nil)
	if got := j.Marks(InnerProduct); !slices.Equal(got, []float64{1, 1}) {
		t.Errorf("the chosen items have reciprocal ranks %v, want the first rank", got)
	}
	for q, copied := range []int32{1, 2} {
		if !j.LeavesOut(int32(q), copied) || j.LeavesOut(int32(q), 0) {
			t.Errorf("the ranking of query %d leaves out its copy, item %d, and not the item that it chose", q, copied)
		}
		scores := []float32{0.5, 0, 0}
		scores[copied] = 1
		if hits := j.HitsOf(scores, int32(q)); hits != 1 {
			t.Errorf("query %d: hits %b, want the first place", q, hits)
		}
	}
}

// TestMarkOfPairs: each chosen item counts by its own place and the weight of its pair; the query's copy does
// not count.
func TestMarkOfPairs(t *testing.T) {
	log, err := samples.Prepare(fit.Data{
		Items:    rerank.Matrix{Rows: 4, Cols: 2, Data: []float32{0.8, 0.6, 1, 0, 0, 1, -1, 0}},
		Queries:  rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 0}},
		Relevant: [][]int32{{0, 1, 2}}, Weights: [][]float32{{9, 5, 1}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ranking   []int32
		mrr, ndcg float64
	}{
		{[]int32{0, 2}, (9 + 1./2) / 10, (9 + 1/math.Log2(3)) / 10}, {[]int32{3, 0}, 9. / 2 / 10, 9 / math.Log2(3) / 10},
		{[]int32{2, 3, 0}, (1 + 9./3) / 10, (1 + 9./2) / 10}, {[]int32{3}, 0, 0},
	} {
		for measure, want := range map[fit.Measure]float64{fit.MRR: c.mrr, fit.NDCG: c.ndcg} {
			if got := New(log, measure, []int32{0}, nil).MarkOfPairs(c.ranking, 0); !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("items %v: %s %v, want %v", c.ranking, measure, got, want)
			}
		}
	}
}

// TestSeenItemsAreLeftOut: an item that was seen before a query ranks nowhere, so that the chosen
// item is the first of the others.
func TestSeenItemsAreLeftOut(t *testing.T) {
	log, err := samples.Prepare(fit.Data{
		Items:    rerank.Matrix{Rows: 4, Cols: 2, Data: []float32{0.6, 0.8, 0.8, 0.6, 0, 1, 0.9, 0.1}},
		Queries:  rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0.1, 1}},
		Relevant: [][]int32{{0}, {1}}, Seen: [][]int32{{1, 3}, nil},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	j := New(log, fit.MRR, []int32{0, 1}, nil)
	if got := j.Marks(InnerProduct); !slices.Equal(got, []float64{1, 1. / 3}) {
		t.Errorf("reciprocal ranks %v, want 1 without the two seen items, and 1/3", got)
	}
	if !j.LeavesOut(0, 1) || !j.LeavesOut(0, 3) || j.LeavesOut(0, 2) || j.LeavesOut(1, 3) {
		t.Error("a ranking leaves out the items seen before its own query alone")
	}
}

// Ranks equal those of a full sort by descending score and then by row. A relevant item does not
// lower the rank of another one.
func TestJudge(t *testing.T) {
	p, err := samples.Prepare(fittest.RandomData(50, 20, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	copy(p.Items.Row(3), p.Items.Row(2)) // a tie
	queries := make([]int32, 50)
	for i := range queries {
		queries[i] = int32(i)
	}
	j := New(p, fit.MRR, queries, nil)
	for i, got := range j.Marks(InnerProduct) {
		rel := p.Relevant[j.Queries[i]]
		score := func(x int32) float64 { return linalg.Dot(p.Queries.Row(int(j.Queries[i])), p.Items.Row(int(x))) }
		want := 0.0
		for _, r := range rel {
			rank := 1.0
			for x := range int32(20) {
				other := !slices.Contains(rel, x)
				if d := score(x) - score(r); other && (d > 1e-7 || math.Abs(d) <= 1e-7 && x < r) {
					rank++
				}
			}
			if rank <= Cutoff {
				want = max(want, 1/rank)
			}
		}
		if !(math.Abs(got-want) <= 1e-12) {
			t.Errorf("query %d: 1/rank is %g, want %g", i, got, want)
		}
	}
}
