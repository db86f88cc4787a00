package maxsim

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// TestWhoJudgesHeldOutItems: queries that chose nothing but such items, of both sides of the
// split, since what they chose is withheld from the clusters.
func TestWhoJudgesHeldOutItems(t *testing.T) {
	l, err := samples.PrepareUnscaled(fittest.RandomData(300, 20, 4))
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Cold, o.ColdShare = fit.ColdGuard, 0.4
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	j, err := (&fitter{log: l, options: o, split: split}).newJudges()
	if err != nil || j.cold == nil {
		t.Fatal(j, err)
	}
	for _, q := range j.cold.Queries {
		if slices.ContainsFunc(l.Relevant[q], func(x int32) bool { return !j.coldItems[x] }) {
			t.Errorf("query %d chose %v, of which the clusters learn", q, l.Relevant[q])
		}
	}
	if len(j.cold.Queries) < 20 || len(j.logged.Queries) != len(split.HeldOut) {
		t.Errorf("%d queries judge the held-out items, %d of %d the others", len(j.cold.Queries), len(j.logged.Queries), len(split.HeldOut))
	}
}

// TestPairsOfAnItem: the queries of an item, each with the weight of its own pair.
func TestPairsOfAnItem(t *testing.T) {
	l := &samples.Log{Items: rerank.NewMatrix(3, 1), Relevant: [][]int32{{0, 2}, {2}, {0, 1}}, Weights: [][]float32{{1, 2}, {3}, {4, 5}}}
	p := groupByItem(l, []int32{0, 1, 2})
	if !slices.Equal(p.counts(), []int{2, 1, 2}) {
		t.Errorf("counts %v", p.counts())
	}
	for item, want := range []struct {
		queries []int32
		weights []float32
	}{{[]int32{0, 2}, []float32{1, 4}}, {[]int32{2}, []float32{5}}, {[]int32{0, 1}, []float32{2, 3}}} {
		if queries, weights := p.of(item); !slices.Equal(queries, want.queries) || !slices.Equal(weights, want.weights) {
			t.Errorf("item %d has the queries %v of weights %v, want %v", item, queries, weights, want)
		}
	}
}

// TestARankingWithoutTheQuestionItself: the item with the query's own vector is in no ranking.
func TestARankingWithoutTheQuestionItself(t *testing.T) {
	l, err := samples.PrepareUnscaled(fit.Data{
		Items:    rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0.8, 0.6, 0, 1}},
		Queries:  rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 0}},
		Relevant: [][]int32{{1, 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.FindTwins([]int32{0})
	r := newRanking(unitJudge(l, []int32{0}), func(int32) bool { return false })
	r.addChunk(joinVectors(l.Items, 0, make([]rerank.Matrix, 3)))
	if len(r.best[0]) != 2 || r.best[0][0].item != 1 || r.best[0][1].item != 2 {
		t.Errorf("the ranking is %+v, want items 1 and 2", r.best[0])
	}
}

// TestWhoJudgesRepeats: queries seen before count as often as they were asked, and find no copy of themselves, whatever is
// held out beside them.
func TestWhoJudgesRepeats(t *testing.T) {
	d := fittest.RandomData(120, 30, 4)
	for q := range d.Queries.Rows {
		d.Asked = append(d.Asked, float64(q%7+1))
	}
	for x := range 20 { // these items are questions
		copy(d.Items.Row(x), d.Queries.Row(x))
	}
	l, err := samples.PrepareUnscaled(d)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Cold, o.ColdShare, o.RepeatShare = fit.ColdGuard, 0.4, 0.5
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	j, err := (&fitter{log: l, options: o, split: split}).newJudges()
	if err != nil || j.seen == nil || j.cold == nil || j.repeatShare != 0.5 {
		t.Fatal(j, err)
	}
	for i, q := range j.seen.Queries {
		if j.seen.Weights[i] != float64(q%7+1) {
			t.Errorf("query %d, asked %d times, counts %g", q, q%7+1, j.seen.Weights[i])
		}
	}
	for _, all := range []*judge.Judge{j.seen, j.logged, j.cold} {
		for _, q := range all.Queries {
			if q < 20 && !slices.Contains(l.Relevant[q], q) && !all.LeavesOut(q, q) {
				t.Errorf("query %d may find its own copy", q)
			}
		}
	}
}

// TestBudgetsThatAreRuledOut: one under which items without logs lose more than chance, if they are guarded.
func TestBudgetsThatAreRuledOut(t *testing.T) {
	l := &samples.Log{Items: rerank.NewMatrix(4, 1), Queries: rerank.NewMatrix(4, 1), Relevant: [][]int32{{0}, {1}, {2}, {3}}}
	cold := judge.New(l, fit.MRR, []int32{0, 1, 2, 3}, nil)
	for name, c := range map[string]struct {
		ranks   []float64 // .5, 1, 1 and 1 by the plain inner product
		guarded bool
		want    bool
	}{
		"loses":            {[]float64{.25, .5, .5, .5}, true, false},
		"may lose":         {[]float64{1, .5, 1, .75}, true, true},
		"loses, unguarded": {[]float64{.25, .5, .5, .5}, false, true},
	} {
		m := marks{Vectors: 7, Logged: judge.Ratings{MRR: []float64{1, 1, 1, .5}, NDCG: []float64{1, 1, 1, 0}}, Plain: []float64{.5, .5, .5, .5}, Cold: c.ranks, ColdByPlain: []float64{.5, 1, 1, 1}}
		trial := (&Report{Guarded: c.guarded}).newTrial(2, 0.5, m, judges{logged: cold, traffic: cold, cold: cold})
		if trial.Admissible != c.want || trial.Cold == nil || trial.MAvg != 2 || trial.Beta != 0.5 || trial.Vectors != 7 || trial.NDCG != 0.75 || trial.Logged.Gain != 0.375 || trial.Traffic != trial.Logged {
			t.Errorf("%s: %+v", name, trial)
		}
	}
}
