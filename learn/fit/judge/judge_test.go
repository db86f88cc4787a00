package judge

import (
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// Ranks are those of a full sort: score descending, then row, and no relevant
// item stands in the way of another.
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
	j := New(p, queries, nil)
	for i, got := range j.ReciprocalRanks(InnerProduct) {
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
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("query %d: 1/rank is %g, want %g", i, got, want)
		}
	}
}
