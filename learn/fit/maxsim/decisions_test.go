package maxsim

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// fitterOf returns a fit of random data, of which it holds out a tenth.
func fitterOf(t *testing.T, queries, items int, change func(*Options)) *fitter {
	t.Helper()
	l, err := samples.PrepareUnscaled(fittest.RandomData(queries, items, 4))
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	change(&o)
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	return &fitter{log: l, options: o, split: split}
}

// TestWhetherNewItemsJudge: not if the options ignore them, nor if none can be held out.
func TestWhetherNewItemsJudge(t *testing.T) {
	for name, c := range map[string]struct {
		items int
		cold  fit.Cold
		share float64
		want  bool
	}{
		"guarded": {20, fit.ColdGuard, 0.4, true}, "weighed": {20, fit.ColdAuto, 0.4, true},
		"ignored": {20, fit.ColdIgnore, 0.4, false}, "none held out": {20, fit.ColdAuto, 0, false},
	} {
		f := fitterOf(t, 300, c.items, func(o *Options) { o.Cold, o.ColdShare = c.cold, c.share })
		j, err := f.newJudges()
		if err != nil || (j.cold != nil) != c.want {
			t.Errorf("%s: new items judge: %t, %v", name, j.cold != nil, err)
		}
	}
}

// TestNewItemsHaveTheirOwnVectorAlone where they judge: whatever the clusters of the others, theirs are not ranked.
func TestNewItemsHaveTheirOwnVectorAlone(t *testing.T) {
	f := fitterOf(t, 200, 15, func(o *Options) { o.Cold, o.ColdShare = fit.ColdGuard, 0.4 })
	j, err := f.newJudges()
	if err != nil || j.cold == nil {
		t.Fatal(j, err)
	}
	for x := range j.coldItems {
		j.coldItems[x] = true
	}
	m, err := f.tryBudget(t.Context(), groupByItem(f.log, f.split.Train), 3, 0.5, j)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Cold) == 0 || !slices.Equal(m.Cold, m.ColdByPlain) {
		t.Errorf("new items are found at %v, by their own vectors at %v", m.Cold, m.ColdByPlain)
	}
	if slices.Equal(m.Logged.MRR, m.Plain) || len(m.Plain) != len(j.logged.Queries) {
		t.Errorf("logged items are found at %v, by their own vectors at %v", m.Logged.MRR, m.Plain)
	}
	if m.Vectors == 0 || len(m.Logged.NDCG) != len(m.Logged.MRR) {
		t.Errorf("%d vectors, %d marks of nDCG", m.Vectors, len(m.Logged.NDCG))
	}
}

// TestBestOfSeveralClusterings: more restarts are never worse, and the seed draws them. An item that an update does not touch
// keeps its vectors.
func TestBestOfSeveralClusterings(t *testing.T) {
	f := fitterOf(t, 400, 4, func(o *Options) { o.Passes = 1 })
	pairs := groupByItem(f.log, f.split.Train)
	c := &clustering{source: f.log.Queries}
	objective := func(vectors rerank.Matrix, item int) (sum float64) {
		all := joinVectors(f.log.Items, item, []rerank.Matrix{vectors}).rows
		queries, _ := pairs.of(item)
		for _, q := range queries {
			row, best := slices.Clone(f.log.Queries.Row(int(q))), math.Inf(-1)
			rerank.Normalise(row)
			for r := range all.Rows {
				best = max(best, linalg.Dot(row, all.Row(r)))
			}
			sum += best
		}
		return sum
	}
	for item := range 4 {
		last := math.Inf(-1)
		for f.options.Restarts = 1; f.options.Restarts <= 6; f.options.Restarts++ {
			vectors := f.clusterItem(c, pairs, item, 5)
			if vectors.Rows != 5 {
				t.Fatalf("item %d has %d vectors", item, vectors.Rows)
			}
			sum := objective(vectors, item)
			if sum < last-0.02*math.Abs(last) { // one pass moves the centres behind its objective
				t.Errorf("item %d: %d restarts reach %g, one less %g", item, f.options.Restarts, sum, last)
			}
			last = max(last, sum)
		}
		first := slices.Clone(f.clusterItem(c, pairs, item, 5).Data)
		f.options.Seed++
		if slices.Equal(first, f.clusterItem(c, pairs, item, 5).Data) {
			t.Errorf("item %d: two seeds give the same vectors", item)
		}
	}
	f.touched = []bool{true, false, true, true}
	f.before.VectorsOf = func(item int) rerank.Matrix {
		return rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{float32(item)}}
	}
	if kept, own := f.clusterItem(c, pairs, 1, 5), f.clusterItem(c, pairs, 2, 5); kept.Rows != 1 || kept.Data[0] != 1 || own.Rows != 5 {
		t.Errorf("the untouched item has %v, the touched one %d vectors", kept, own.Rows)
	}
	if none := f.clusterItem(c, pairs, 0, 0); none.Rows != 0 {
		t.Errorf("without a budget an item has %d vectors", none.Rows)
	}
}

// TestSkewOfALog: how many queries items have, how unequally, how different these are, and which held-out pairs can gain.
func TestSkewOfALog(t *testing.T) {
	l := &samples.Log{Items: rerank.NewMatrix(12, 2), Queries: rerank.NewMatrix(24, 2)}
	for q := range 20 { // item 0 has ten queries of many directions, ten items have one each
		x := int32(0)
		if q >= 10 {
			x = int32(q - 9)
		}
		l.Relevant = append(l.Relevant, []int32{x})
		angle := float64(q) / 10
		copy(l.Queries.Row(q), []float32{float32(5 * math.Cos(angle)), float32(5 * math.Sin(angle))})
	}
	l.Relevant = append(l.Relevant, []int32{0}, []int32{3, 11}, []int32{11}, []int32{11})
	f := &fitter{log: l, split: samples.Split{Train: fittest.AllRows(20), HeldOut: []int32{20, 21, 22, 23}}}
	got := f.measureSkew(groupByItem(l, f.split.Train))
	// Eleven logged items: the tenth of them is two. Item 11 has no query, and three of five held-out pairs name it.
	if !(math.Abs(got.QueriesPerItem-20./11) <= 1e-9) || !(math.Abs(got.HeadShare-11./20) <= 1e-9) || !(math.Abs(got.Reachable-0.4) <= 1e-9) {
		t.Errorf("%+v", got)
	}
	box := boxDiversity(l.Queries, fittest.AllRows(10)) // sides 1 − cos 0.9 and sin 0.9
	if want := math.Sqrt((1 - math.Cos(0.9)) * math.Sin(0.9)); !(math.Abs(box-want) <= 1e-5) || !(math.Abs(got.HeadDiversity-want) <= 1e-5) || got.TailDiversity > 2*leastSide {
		t.Errorf("the box is %g, want %g; of the head %g, of the tail %g", box, want, got.HeadDiversity, got.TailDiversity)
	}
	if none := f.measureSkew(groupByItem(l, nil)); none != (Skew{}) {
		t.Errorf("a log without pairs: %+v", none)
	}
}

// TestWhenVectorsWillNotPay: where hardly a held-out pair can gain, or items have few queries, unless traffic repeats.
func TestWhenVectorsWillNotPay(t *testing.T) {
	for _, c := range []struct {
		skew    Skew
		repeats float64
		want    string
	}{
		{Skew{QueriesPerItem: 3, Reachable: 0.5}, 0, ""}, {Skew{QueriesPerItem: 9, Reachable: 0.49}, 0.05, "will not pay: only 49 %"},
		{Skew{QueriesPerItem: 2.9, Reachable: 0.9, HeadShare: 0.3}, 0.09, "hardly pay: an item has 2.9 queries in the mean, the most popular tenth 30 %"}, {Skew{QueriesPerItem: 1, Reachable: 0}, 0.1, ""},
	} {
		if got := c.skew.doubt(c.repeats); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v with %g of repeats: %q", c.skew, c.repeats, got)
		}
	}
}

// TestThinnedJudges: at even distances, at most the given number.
func TestThinnedJudges(t *testing.T) {
	all := fittest.AllRows(10)
	for most, want := range map[int][]int32{3: {0, 4, 8}, 5: {0, 2, 4, 6, 8}, 9: {0, 2, 4, 6, 8}, 10: all, 11: all} {
		if got := thin(all, most); !slices.Equal(got, want) {
			t.Errorf("at most %d of ten: %v, want %v", most, got, want)
		}
	}
}

// TestShareOfRepeats: what the options say, or the log: how much it repeats, or how much of the latest period was asked before.
func TestShareOfRepeats(t *testing.T) {
	f := fitterOf(t, 100, 10, func(*Options) {})
	for q := range 100 {
		f.log.Asked = append(f.log.Asked, float64(1+q%3))
	}
	f.split = samples.Split{Train: fittest.AllRows(60), HeldOut: []int32{60, 61, 62}, Straddling: []int32{70, 71}}
	for name, c := range map[string]struct {
		by    fit.SplitBy
		share float64
		want  float64
		seen  int
	}{
		"of the log":         {fit.ByQuery, RepeatFromLog, f.log.RepeatShare(), 60},
		"of the period":      {fit.ByTime, RepeatFromLog, 5. / (5 + 6), 2},
		"asked for":          {fit.ByQuery, 0.25, 0.25, 60},
		"of no traffic":      {fit.ByTime, 0, 0, 0},
		"asked for, by time": {fit.ByTime, 0.75, 0.75, 2},
	} {
		f.options.SplitBy, f.options.RepeatShare = c.by, c.share
		var j judges
		f.judgeSeen(&j)
		seen := 0
		if j.seen != nil {
			seen = len(j.seen.Queries)
		}
		if !(math.Abs(j.repeatShare-c.want) <= 1e-9) || seen != c.seen {
			t.Errorf("%s: a share of %g is judged by %d queries, want %g and %d", name, j.repeatShare, seen, c.want, c.seen)
		}
	}
	f.split.Straddling = nil // nothing of the latest period was asked before, but the options expect it
	f.options.RepeatShare = 0.5
	var j judges
	if f.judgeSeen(&j); j.seen == nil || len(j.seen.Queries) != 60 {
		t.Errorf("without straddling queries: %+v", j.seen)
	}
}

// trialsOf returns a report and judges of ten queries, where each trial finds them all at the given reciprocal rank.
func trialsOf(t *testing.T, plain float64, found ...float64) (*Report, judges) {
	t.Helper()
	l := &samples.Log{Items: rerank.NewMatrix(40, 3), Queries: rerank.NewMatrix(40, 3)}
	for q := range int32(40) {
		l.Relevant = append(l.Relevant, []int32{q})
	}
	j := judges{logged: judge.New(l, fit.MRR, fittest.AllRows(40), nil)}
	j.traffic = j.logged
	r := &Report{}
	for i, rank := range found {
		same := func(v float64) []float64 { return slices.Repeat([]float64{v}, 40) }
		m := marks{Vectors: 100 * (i + 1), Logged: judge.Ratings{MRR: same(rank), NDCG: same(rank)}, Plain: same(plain)}
		r.Trials = append(r.Trials, r.newTrial(float64(i+1), 0.5, m, j))
	}
	return r, j
}

// TestWhichBudgetIsTaken: the smallest that is as good as the best; none that does not gain, but a single one in any case.
func TestWhichBudgetIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		plain  float64
		found  []float64
		only   bool
		ruled  []int
		want   int
		answer verdict.Answer
	}{
		"the best":                  {0.3, []float64{0.4, 0.6, 0.5}, false, nil, 1, verdict.Yes},
		"the smallest as good":      {0.3, []float64{0.59, 0.6, 0.55}, false, nil, 0, verdict.Yes},
		"none gains":                {0.7, []float64{0.4, 0.6, 0.5}, false, nil, -1, verdict.No},
		"a single one":              {0.7, []float64{0.4}, true, nil, 0, verdict.No},
		"the best is ruled out":     {0.3, []float64{0.4, 0.6, 0.5}, false, []int{1}, 2, verdict.Yes},
		"all are ruled out":         {0.3, []float64{0.4, 0.6}, false, []int{0, 1}, -1, verdict.No},
		"a single one is ruled out": {0.3, []float64{0.6}, true, []int{0}, 0, verdict.Yes},
	} {
		r, j := trialsOf(t, c.plain, c.found...)
		for _, i := range c.ruled {
			r.Trials[i].Admissible = false
		}
		got, err := r.decide(j, c.only)
		if err != nil || got != c.want || r.Verdict.Answer != c.answer || r.Verdict.Queries != 40 {
			t.Errorf("%s: trial %d, %+v, %v; want %d, %s", name, got, r.Verdict, err, c.want, c.answer)
		}
		for i, trial := range r.Trials {
			if isRuled := slices.Contains(c.ruled, i) && !c.only; (trial.Standing == "") != isRuled {
				t.Errorf("%s: trial %d stands %q", name, i, trial.Standing)
			}
		}
		if name == "all are ruled out" && !strings.Contains(strings.Join(r.Verdict.Text, " "), "without logs lose under every budget") {
			t.Errorf("%s: %q", name, r.Verdict.Text)
		}
	}
}

// TestTheMeasureChoosesTheBudget: the one that is best by the measure of the options, whatever the other measure says.
func TestTheMeasureChoosesTheBudget(t *testing.T) {
	for measure, want := range map[fit.Measure]int{fit.MRR: 0, fit.NDCG: 1} {
		r, j := trialsOf(t, 0.3)
		r.Measure = measure
		same := func(v float64) []float64 { return slices.Repeat([]float64{v}, 40) }
		for i, found := range [][2]float64{{0.8, 0.4}, {0.5, 0.7}} { // MRR@10 and nDCG@10
			m := marks{Vectors: 100 * (i + 1), Logged: judge.Ratings{MRR: same(found[0]), NDCG: same(found[1])}, Plain: same(0.3)}
			r.Trials = append(r.Trials, r.newTrial(float64(i+1), 0.5, m, j))
		}
		if got, err := r.decide(j, false); err != nil || got != want {
			t.Errorf("%s takes budget %d, %v; want %d", measure, got, err, want)
		}
		if trial := r.Trials[1]; !(math.Abs(trial.MRR-0.5) <= 1e-9) || !(math.Abs(trial.NDCG-0.7) <= 1e-9) {
			t.Errorf("%s: %+v", measure, trial)
		}
	}
}

// TestRankingsAreMarkedByTheMeasure: held-out queries, queries seen before and new items are all judged by the measure of
// the options.
func TestRankingsAreMarkedByTheMeasure(t *testing.T) {
	found := map[fit.Measure]marks{}
	for _, measure := range fit.Measures() {
		f := fitterOf(t, 200, 15, func(o *Options) { o.Cold, o.ColdShare, o.RepeatShare, o.Measure = fit.ColdGuard, 0.4, 0.5, measure })
		j, err := f.newJudges()
		if err != nil || j.cold == nil || j.seen == nil {
			t.Fatal(j, err)
		}
		if found[measure], err = f.tryBudget(t.Context(), groupByItem(f.log, f.split.Train), 3, 0.5, j); err != nil {
			t.Fatal(err)
		}
	}
	mrr, ndcg := found[fit.MRR], found[fit.NDCG]
	for name, both := range map[string][2][]float64{
		"plain": {mrr.Plain, ndcg.Plain}, "seen": {mrr.Seen, ndcg.Seen}, "seen, plain": {mrr.SeenByPlain, ndcg.SeenByPlain},
		"cold": {mrr.Cold, ndcg.Cold}, "cold, plain": {mrr.ColdByPlain, ndcg.ColdByPlain},
	} {
		if len(both[0]) == 0 || slices.Equal(both[0], both[1]) {
			t.Errorf("%s: both measures give %v", name, both[0])
		}
	}
}

// unitJudge returns a judge by MRR@10 whose query vectors have norm 1.
func unitJudge(l *samples.Log, queries []int32) *judge.Judge {
	return (&fitter{log: l, options: DefaultOptions()}).newUnitJudge(queries, nil)
}

// TestReportOfTheChoice: the figures of the trial that was taken, with a warning if items without logs lose more than chance;
// without a choice, those of no vectors.
func TestReportOfTheChoice(t *testing.T) {
	for loss, warns := range map[float64]bool{0.02: false, 0.04: true} {
		for _, guarded := range []bool{false, true} {
			r, _ := trialsOf(t, 0.3, 0.4, 0.6)
			r.Guarded, r.Verdict.Text = guarded, []string{"Take it.", "Because."}
			r.Trials[1].Cold = &fit.Comparison{Gain: -loss, StandardError: 0.03, Value: 0.2}
			r.take(1)
			if r.MAvg != 2 || r.Beta != 0.5 || r.Logged.Value != r.Trials[1].Logged.Value || r.Cold == nil || !r.Trials[1].Chosen || r.Trials[0].Chosen || r.Recommendation != "Take it.\nBecause." {
				t.Errorf("%+v", r)
			}
			if (len(r.Warnings) == 1) != warns || warns && strings.Contains(r.Warnings[0], "--cold guard") == guarded {
				t.Errorf("a loss of %g ± 0.03, guarded %t: %q", loss, guarded, r.Warnings)
			}
		}
	}
	r, j := trialsOf(t, 0.3, 0.2)
	r.stay(j)
	if r.Logged.Value != r.Logged.Baseline || !(math.Abs(r.Logged.Value-0.3) <= 1e-9) || r.Seen != nil || r.MAvg != 0 {
		t.Errorf("without a choice: %+v", r)
	}
}

// TestOptionsOfVectors: budgets ascend, exponents lie between 0 and 1, and vectors stand beside unit vectors.
func TestOptionsOfVectors(t *testing.T) {
	d := fit.Data{Items: rerank.NewMatrix(1<<22, 0)}
	for name, c := range map[string]struct {
		change func(*Options)
		ok     bool
	}{
		"defaults": {func(*Options) {}, true}, "raw vectors": {func(o *Options) { o.Normalise = false }, false}, "no beta": {func(o *Options) { o.Betas = nil }, false},
		"beta 0 and 1": {func(o *Options) { o.Betas = []float64{0, 1} }, true}, "beta below": {func(o *Options) { o.Betas = []float64{0.5, -0.1} }, false}, "beta above": {func(o *Options) { o.Betas = []float64{1.1} }, false},
		"all repeats": {func(o *Options) { o.RepeatShare = 1 }, true}, "more than all": {func(o *Options) { o.RepeatShare = 1.1 }, false}, "less than none": {func(o *Options) { o.RepeatShare = -0.5 }, false},
		"no budget": {func(o *Options) { o.MAvg = nil }, false}, "descending": {func(o *Options) { o.MAvg = []float64{3, 1} }, false}, "nothing": {func(o *Options) { o.MAvg = []float64{0} }, false},
		"too many": {func(o *Options) { o.MAvg = []float64{1001} }, false}, "too many in all": {func(o *Options) { o.MAvg = []float64{600} }, false}, "no restart": {func(o *Options) { o.Restarts = 0 }, false}, "no pass": {func(o *Options) { o.Passes = 0 }, false},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.check(d); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChunksOfItems: a chunk ends where its items, pairs or numbers are many, and has an item at least.
func TestChunksOfItems(t *testing.T) {
	few := itemPairs{starts: make([]int, 3*chunkItems)}
	if got := endOfChunk(few, make([]int, 3*chunkItems-1), 5, 8); got != 5+chunkItems {
		t.Errorf("a chunk of items without pairs ends at %d", got)
	}
	many := itemPairs{starts: []int{0, chunkPairs - 1, chunkPairs + 5, chunkPairs + 6}}
	for from, want := range map[int]int{0: 2, 1: 3} {
		if got := endOfChunk(many, []int{1, 1, 1}, from, 8); got != want {
			t.Errorf("a chunk of many pairs from item %d ends at %d, want %d", from, got, want)
		}
	}
	if got := endOfChunk(many, []int{1, chunkNumbers, 1}, 0, 1); got != 2 {
		t.Errorf("a chunk of many numbers ends at %d", got)
	}
	if got := endOfChunk(many, []int{chunkNumbers, 1, 1}, 0, 1); got != 1 {
		t.Errorf("a chunk that begins with many numbers ends at %d", got)
	}
}

// TestRankingInChunks: a ranking of items that come in chunks is that of all at once, also among equal scores.
func TestRankingInChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	l := &samples.Log{Items: fittest.NormalMatrix(rng, 60, 3), Queries: fittest.NormalMatrix(rng, 9, 3)}
	for q := range int32(9) {
		l.Relevant = append(l.Relevant, []int32{q})
	}
	for x := 30; x < 40; x++ {
		copy(l.Items.Row(x), l.Items.Row(12)) // which tie with item 12
	}
	vectors := make([]rerank.Matrix, 60)
	for x := range vectors {
		vectors[x] = fittest.NormalMatrix(rng, x%3, 3)
		for r := range vectors[x].Rows {
			rerank.Normalise(vectors[x].Row(r))
		}
	}
	ranked := func(size int) [][]rankedItem {
		r := newRanking(unitJudge(l, fittest.AllRows(9)), func(x int32) bool { return x%2 == 0 })
		for from := 0; from < 60; from += size {
			r.addChunk(joinVectors(l.Items, from, vectors[from:min(from+size, 60)]))
		}
		return r.best
	}
	whole, parts := ranked(60), ranked(7)
	for q := range whole {
		if len(whole[q]) != judge.Cutoff || !slices.EqualFunc(whole[q], parts[q], func(a, b rankedItem) bool { return a.item == b.item }) {
			t.Errorf("query %d ranks %v, in chunks %v", q, whole[q], parts[q])
		}
		if !slices.IsSortedFunc(whole[q], func(a, b rankedItem) int {
			if a.score != b.score {
				return int(math.Copysign(1, float64(b.score-a.score)))
			}
			return int(a.item - b.item)
		}) {
			t.Errorf("query %d ranks %v", q, whole[q])
		}
	}
}

// TestWhatIsReportedAsGuarded: not what nothing measured.
func TestWhatIsReportedAsGuarded(t *testing.T) {
	for share, want := range map[float64]bool{0: false, 0.4: true} {
		f := fitterOf(t, 200, 20, func(o *Options) {
			o.Cold, o.ColdShare, o.MAvg, o.Betas = fit.ColdGuard, share, []float64{1}, []float64{0.5}
		})
		var err error
		if f.trials, err = train.OpenTrials(nil, "maxsim", fit.Data{}, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.chooseBudget(t.Context()); err != nil || f.report.Guarded != want || len(f.report.Trials) != 1 || f.report.MAvg != 1 {
			t.Errorf("with %g of the items held out: guarded %t, %+v, %v", share, f.report.Guarded, f.report.Trials, err)
		}
	}
}

// TestBetasAreTriedWithTheChosenBudget, after it was chosen with the first of them.
func TestBetasAreTriedWithTheChosenBudget(t *testing.T) {
	f := fitterOf(t, 60, 6, func(o *Options) { o.MAvg, o.Betas, o.Cold = []float64{1, 2}, []float64{0.5, 0.3, 0.8}, fit.ColdIgnore })
	var err error
	if f.trials, err = train.OpenTrials(&fittest.Checkpoint{}, "maxsim", fit.Data{}, nil); err != nil {
		t.Fatal(err)
	}
	j, err := f.newJudges()
	if err != nil {
		t.Fatal(err)
	}
	rank := func(v float64) marks {
		n := len(j.logged.Queries)
		same := func(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }
		m := marks{Vectors: 1, Logged: judge.Ratings{MRR: same(v, n), NDCG: same(v, n)}, Plain: same(0.1, n)}
		if j.seen != nil {
			m.Seen, m.SeenByPlain = same(v, len(j.seen.Queries)), same(0.1, len(j.seen.Queries))
		}
		return m
	}
	for name, v := range map[string]float64{"1 vectors an item, beta 0.5": 0.5, "2 vectors an item, beta 0.5": 0.9, "2 vectors an item, beta 0.3": 0.4, "2 vectors an item, beta 0.8": 0.95} {
		if _, err := train.Try(f.trials, name, func() (marks, error) { return rank(v), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.chooseBudget(t.Context()); err != nil {
		t.Fatal(err)
	}
	var tried []string
	for _, trial := range f.report.Trials {
		tried = append(tried, trial.name())
	}
	want := []string{"1 vectors an item, beta 0.5", "2 vectors an item, beta 0.5", "2 vectors an item, beta 0.3", "2 vectors an item, beta 0.8"}
	if !slices.Equal(tried, want) || f.report.MAvg != 2 || f.report.Beta != 0.5 { // 0.8 gains less than the margin
		t.Errorf("%q are tried, and %g with %g is taken", tried, f.report.MAvg, f.report.Beta)
	}
}

// TestUpdatesNeedNoBudget of the options: it is the one of the fit before.
func TestUpdatesNeedNoBudget(t *testing.T) {
	d, o := fittest.RandomData(40, 5, 4), DefaultOptions()
	o.MAvg, o.Betas = nil, nil
	before := Previous{MAvg: 2, Beta: 0.3, VectorsOf: func(int) rerank.Matrix { return rerank.Matrix{} }}
	got, err := Update(t.Context(), d, o, before, []bool{true, false, true, true, true}, func(int, rerank.Matrix) error { return nil })
	if err != nil || got.Report.Beta != 0.3 || got.Report.MAvg != 2 || got.Report.UpdatedItems != 4 || got.Report.Vectors == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Update(t.Context(), d, o, before, []bool{true}, nil); !errors.Is(err, fit.ErrData) {
		t.Errorf("marks of other items: %v", err)
	}
}
