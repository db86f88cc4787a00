package bridge

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// judgedBy returns a trial of queries that each have their own right answer.
func judgedBy(queries int) *trial {
	x := &trial{options: DefaultOptions()}
	for q := range queries {
		x.relevant = append(x.relevant, []int32{int32(q)})
	}
	return x
}

// around returns the value for each query, a spread more and less in turns.
func around(value, spread float64, queries int) []float64 {
	v := make([]float64, queries)
	for q := range v {
		v[q] = value + spread*float64(2*(q%2)-1)
	}
	return v
}

// TestShareOfTheAnswers: the least share that is as good as the best one, if its gain is sure with the confidence that is asked for.
func TestShareOfTheAnswers(t *testing.T) {
	const queries = 100
	for name, c := range map[string]struct {
		plain      []float64
		found      [][]float64
		confidence float64
		want       int
	}{
		"the best":          {around(0.5, 0, queries), [][]float64{around(0.55, 0, queries), around(0.7, 0, queries), around(0.6, 0, queries)}, 0.95, 1},
		"the least as good": {around(0.5, 0, queries), [][]float64{around(0.699, 0, queries), around(0.7, 0, queries), around(0.69, 0, queries)}, 0.95, 0},
		"none is better":    {around(0.5, 0, queries), [][]float64{around(0.5, 0, queries), around(0.4, 0, queries), around(0.3, 0, queries)}, 0.95, -1},
		"a sure gain":       {around(0.5, 0, queries), [][]float64{around(0.4, 0.1, queries), around(0.53, 0.1, queries), around(0.3, 0, queries)}, 0.9, 1},
		"just sure enough":  {around(0.5, 0, queries), [][]float64{around(0.4, 0.1, queries), around(0.539, 0.1, queries), around(0.3, 0, queries)}, 0.999, 1},
		"not sure enough":   {around(0.5, 0, queries), [][]float64{around(0.4, 0.1, queries), around(0.53, 0.1, queries), around(0.3, 0, queries)}, 0.999, -1},
	} {
		x := judgedBy(queries)
		x.options.Confidence = c.confidence
		if got := x.decideShare(c.plain, c.found); got != c.want {
			t.Errorf("%s: share %d, want %d", name, got, c.want)
		}
	}
}

// TestSharesThatAreTried: all of them by right answers, and none by the new model's own answers.
func TestSharesThatAreTried(t *testing.T) {
	const queries, items = 2 * queryParts, 30
	rng := rand.New(rand.NewPCG(1, 2))
	for evidence, shares := range map[Evidence]int{Agreement: 1, Pairs: 1 + len(answerShares)} {
		x := judgedBy(queries)
		x.old, x.now, x.nowQueries = fittest.NormalMatrix(rng, items, 4), fittest.NormalMatrix(rng, items, 3), fittest.NormalMatrix(rng, queries, 3)
		x.learnedOld, x.learnedNew = x.old, x.now
		var err error
		if x.served, err = addUp(x.old, x.now).solve(); err != nil {
			t.Fatal(err)
		}
		answers, err := rank(t.Context(), x.nowQueries, nil, x.now, 10)
		if err != nil {
			t.Fatal(err)
		}
		parts := 0
		got, err := x.chooseShare(t.Context(), evidence, answers, func(n int) { parts += n })
		if err != nil || parts != shares*queryParts || evidence == Agreement && (got.share != 0 || got.served != x.served) || len(got.bridge) != queries || len(got.lazily) != queries {
			t.Errorf("%s: %d parts are ranked, and the share %g is taken, %v", evidence, parts, got.share, err)
		}
	}
}

// TestHiddenItems are in no ranking of their query, in whichever block it comes.
func TestHiddenItems(t *testing.T) {
	const queries = queryBlock + 3
	asked, hidden := rerank.NewMatrix(queries, 1), make([][]int32, queries)
	for q := range queries {
		asked.Data[q] = 1
		hidden[q] = []int32{int32(q % 3)}
	}
	items := rerank.Matrix{Rows: 4, Cols: 1, Data: []float32{4, 3, 2, 1}}
	for _, without := range [][][]int32{hidden, nil} {
		got, err := rank(t.Context(), asked, without, items, 3)
		if err != nil || len(got) != queries {
			t.Fatal(len(got), err)
		}
		for q, list := range got {
			want := []int32{0, 1, 2}
			if without != nil {
				want = slices.DeleteFunc([]int32{0, 1, 2, 3}, func(x int32) bool { return x == int32(q%3) })
			}
			if !slices.Equal(list.Rows, want) || list.Scores[0] != items.Data[want[0]] {
				t.Fatalf("query %d ranks %v, want %v", q, list.Rows, want)
			}
		}
	}
}

// TestMarksOfARanking: nDCG and the recall of its first ten; all that ten places can hold is a recall of 1.
func TestMarksOfARanking(t *testing.T) {
	x := &trial{relevant: [][]int32{{3, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {11}}}
	first := fittest.AllRows(11)
	got := x.mark(ranking{{Rows: []int32{1, 5, 2}}, {Rows: first}, {Rows: append(slices.Clone(first[:10]), 11)}})
	second := 1 / math.Log2(3) / (1 + 1/math.Log2(3))
	for q, want := range []struct{ ndcg, recall float64 }{{second, 0.5}, {1, 1}, {0, 0}} {
		if !(math.Abs(got.ndcg[q]-want.ndcg) <= 1e-9) || got.recall[q] != want.recall {
			t.Errorf("query %d has nDCG %g and recall %g, want %+v", q, got.ndcg[q], got.recall[q], want)
		}
	}
}

// TestWhatAlternativesKeep of a new index, on the queries of a segment alone, with an interval to both sides.
func TestWhatAlternativesKeep(t *testing.T) {
	const queries = 40
	all := make([]marks, 4)
	for i, value := range []float64{0.2, 0.4, 0.6, 0.8} {
		all[i] = marks{ndcg: around(value, 0.1, queries), recall: around(value/2, 0, queries)}
	}
	for q := 20; q < queries; q++ {
		all[0].ndcg[q] = 0 // another segment
	}
	x := judgedBy(queries)
	some := fittest.AllRows(20)
	ways := x.ways(all, some)
	for i, name := range wayNames() {
		w, value := ways[i], 0.2*float64(i+1)
		if w.Name != name || !(math.Abs(w.NDCG-value) <= 1e-9) || !(math.Abs(w.Recall-value/2) <= 1e-9) || !(math.Abs(w.Kept-value/0.8) <= 1e-9) {
			t.Errorf("%s: %+v", name, w)
		}
		// What remains of the spread of 0.1 after the kept share of the new index's own.
		spread := 0.1 * (1 - w.Kept)
		if half := verdict.NewDifference(0, spread/math.Sqrt(20), 20, 0.95).High / 0.8; !(math.Abs(w.High-w.Kept-half) <= 1e-9) || !(math.Abs(w.Kept-w.Low-half) <= 1e-9) {
			t.Errorf("%s keeps %g, from %g to %g; want %g around it", name, w.Kept, w.Low, w.High, half)
		}
	}
	all[3].ndcg = make([]float64, queries)
	if w := x.ways(all, some)[1]; w.Kept != 0 || w.High != 0 {
		t.Errorf("of a new index that finds nothing, %+v is kept", w)
	}
}

// TestWhichAlternativeIsTaken: the cheapest that loses no more than the tolerance of the best one, and is better than the old model.
func TestWhichAlternativeIsTaken(t *testing.T) {
	const queries = 60
	for name, c := range map[string]struct {
		values    [4]float64
		spread    float64
		tolerance float64
		evidence  Evidence
		answer    verdict.Answer
		choose    string
	}{
		"a new index":               {[4]float64{0.3, 0.5, 0.6, 0.8}, 0, 0.03, Pairs, verdict.Yes, Anew},
		"the bridge within":         {[4]float64{0.3, 0.78, 0.79, 0.8}, 0, 0.03, Pairs, verdict.Yes, Bridged},
		"the bridge just outside":   {[4]float64{0.3, 0.77, 0.79, 0.8}, 0, 0.03, Pairs, verdict.Yes, Lazily},
		"a greater tolerance":       {[4]float64{0.3, 0.5, 0.6, 0.8}, 0, 0.4, Pairs, verdict.Yes, Bridged},
		"the bridge is the best":    {[4]float64{0.3, 0.9, 0.6, 0.8}, 0, 0.03, Pairs, verdict.Yes, Bridged},
		"the old model is the best": {[4]float64{0.9, 0.5, 0.6, 0.8}, 0, 0.03, Pairs, verdict.No, KeepOld},
		"too few queries":           {[4]float64{0.3, 0.35, 0.35, 0.35}, 0.3, 0.03, Pairs, verdict.Unclear, KeepOld},
		"agreement that is enough":  {[4]float64{0.3, 0.98, 0.99, 1}, 0, 0.03, Agreement, verdict.Yes, Bridged},
		"agreement that is not":     {[4]float64{0.3, 0.6, 0.8, 1}, 0, 0.03, Agreement, verdict.Unclear, KeepOld},
	} {
		x := judgedBy(queries)
		x.options.Tolerance = c.tolerance
		all := make([]marks, 4)
		for i, v := range c.values {
			all[i] = marks{ndcg: around(v, 0, queries), recall: around(v, 0, queries)}
		}
		all[0].ndcg = around(c.values[0], c.spread, queries)
		ways := x.ways(all, x.everyone())
		got := x.decide(c.evidence, all, x.everyone(), ways)
		if got.Answer != c.answer || got.Choose != c.choose || got.Queries != queries {
			t.Errorf("%s: %s, %s; want %s, %s", name, got.Answer, got.Choose, c.answer, c.choose)
		}
		if isCautious := strings.HasPrefix(got.Text[0], "Cannot tell without pairs"); isCautious != (name == "agreement that is not") {
			t.Errorf("%s: %q", name, got.Text)
		}
	}
}

// TestSegments are judged by their own queries, in the order of the log, if they are enough.
func TestSegments(t *testing.T) {
	x := judgedBy(50)
	all := make([]marks, 4)
	for i, v := range []float64{0.3, 0.5, 0.6, 0.8} {
		all[i] = marks{ndcg: around(v, 0, 50), recall: around(v, 0, 50)}
	}
	for q := range 50 {
		x.segments = append(x.segments, "second")
		if q < 19 {
			x.segments[q] = "few"
		}
		if q >= 30 {
			x.segments[q] = "last"
			all[0].ndcg[q] = 0.9
		}
	}
	x.segments[19] = "last"
	x.segments[49] = "second"
	var r Report
	x.judgeSegments(&r, all)
	if len(r.Segments) != 1 || r.Segments[0].Name != "last" || r.Segments[0].Verdict.Choose != KeepOld || r.Segments[0].Verdict.Queries != 20 {
		t.Errorf("segments %+v", r.Segments)
	}
	if len(r.Warnings) != 2 || !strings.Contains(r.Warnings[0], "segment few is not judged: it has 19 queries, want 20") || !strings.Contains(r.Warnings[1], "second") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

// TestReportWarns of few texts, of a verdict without pairs, and of scores on another scale.
func TestReportWarns(t *testing.T) {
	for _, c := range []struct {
		r    Report
		want string
	}{
		{Report{Texts: 30, OldDim: 10, Calibration: Calibration{Slope: 1.5}}, ""}, {Report{Texts: 29, OldDim: 10, Calibration: Calibration{Slope: 1}}, "29 texts are few"},
		{Report{Texts: 30, OldDim: 10, Evidence: Agreement, Calibration: Calibration{Slope: 0.5}}, "no pairs"}, {Report{Texts: 30, OldDim: 10, Calibration: Calibration{Slope: 0.4}}, "0.40"},
	} {
		c.r.warn()
		if got := strings.Join(c.r.Warnings, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || len(c.r.Warnings) > 1 {
			t.Errorf("%+v: warns %q, want %q", c.r, got, c.want)
		}
	}
}

// TestMapsLearnFromQueries if these tell how the models differ, and not if they are of something else.
func TestMapsLearnFromQueries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	old := fittest.NormalMatrix(rng, 80, 20)
	changed, turned := rerank.NewMatrix(80, 4), fittest.NormalMatrix(rng, 20, 4)
	change := func(dst, from rerank.Matrix) {
		for r := range from.Rows {
			for i, v := range from.Row(r) {
				for j := range dst.Row(r) {
					dst.Row(r)[j] += v * turned.Row(i)[j]
				}
			}
			for j := range dst.Row(r) {
				dst.Row(r)[j] += float32(rng.NormFloat64())
			}
		}
	}
	change(changed, old)
	asked := fittest.NormalMatrix(rng, 300, 20)
	told, random := rerank.NewMatrix(300, 4), fittest.NormalMatrix(rng, 300, 4)
	change(told, asked)
	for _, c := range []struct {
		queries rerank.Matrix
		learned bool
	}{{told, true}, {random, false}} {
		d := Data{Old: old, New: changed, OldQueries: asked, NewQueries: c.queries}
		x := newTrial(d, DefaultOptions())
		if err := x.learn(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if (x.asked != nil) != c.learned || x.mapped.Rows != 80 || x.explained < 0.5 {
			t.Errorf("the maps learn from %d queries, want %t; they explain %.3f of %d items", len(x.asked), c.learned, x.explained, x.mapped.Rows)
		}
		if c.learned && (len(x.asked) != 300 || x.asked[7] != 87 || x.learnedOld.Rows != 380 || !slices.Equal(x.learnedNew.Row(87), told.Row(7))) {
			t.Errorf("query 7 is text %d of %d", x.asked[7], x.learnedOld.Rows)
		}
	}
}

// TestTextsThatAsk: without queries a share of the texts asks, a thousand at most, which are no items.
func TestTextsThatAsk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for texts, want := range map[int]int{60: 15, 61: 16, 5000: maxHeldOut} {
		d := Data{Old: fittest.NormalMatrix(rng, texts, 1), New: fittest.NormalMatrix(rng, texts, 1)}
		o := DefaultOptions()
		o.HeldOut = 0.25
		x := newTrial(d, o)
		if x.oldQueries.Rows != want || x.nowQueries.Rows != want || x.old.Rows != texts-want || x.now.Rows != texts-want || x.relevant != nil {
			t.Errorf("of %d texts %d ask and %d are items, want %d", texts, x.oldQueries.Rows, x.old.Rows, want)
		}
		at := slices.Index(d.Old.Data, x.oldQueries.Data[3])
		if slices.Contains(x.old.Data, x.oldQueries.Data[3]) || x.nowQueries.Data[3] != d.New.Data[at] || x.now.Data[2] != d.New.Data[slices.Index(d.Old.Data, x.old.Data[2])] {
			t.Errorf("of %d texts, one is query and item, or has another's vector", texts)
		}
		o.Seed++
		if y := newTrial(d, o); slices.Equal(x.oldQueries.Data, y.oldQueries.Data) {
			t.Error("two seeds draw the same texts")
		}
	}
}

// TestQueriesElsewhere: a tenth of the queries without a right answer among the texts says that the log asks for other items too.
func TestQueriesElsewhere(t *testing.T) {
	for without, want := range map[int]bool{0: false, 1: false, 2: true} {
		x := judgedBy(20)
		x.oldQueries, x.nowQueries = rerank.NewMatrix(20, 1), rerank.NewMatrix(20, 1)
		for q := range without {
			x.relevant[q] = nil
		}
		if x.keepAnswerable(); x.elsewhere != want || len(x.relevant) != 20-without {
			t.Errorf("%d of 20 without an answer: elsewhere %t", without, x.elsewhere)
		}
	}
}

// TestDrawnAnswers: each query draws one of its own right answers, as the seed says.
func TestDrawnAnswers(t *testing.T) {
	x := &trial{options: Options{Seed: 1}}
	for q := range 60 {
		x.relevant = append(x.relevant, []int32{int32(3 * q), int32(3*q + 1), int32(3*q + 2)})
	}
	first, places := x.drawAnswers(), map[int32]int{}
	for q, item := range first {
		if item/3 != int32(q) {
			t.Errorf("query %d draws the answer %d", q, item)
		}
		places[item%3]++
	}
	x.options.Seed = 2
	if len(places) != 3 || slices.Equal(first, x.drawAnswers()) {
		t.Errorf("answers are drawn from places %v, alike for two seeds", places)
	}
}

// TestOptionsOfABridge: shares, the tolerance and the confidence have their ranges.
func TestOptionsOfABridge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		ok     bool
	}{
		"defaults": {func(*Options) {}, true}, "half": {func(o *Options) { o.HeldOut = 0.5 }, true}, "no tolerance": {func(o *Options) { o.Tolerance = 0 }, true},
		"nothing held out": {func(o *Options) { o.HeldOut = 0 }, false}, "more than half": {func(o *Options) { o.HeldOut = 0.51 }, false}, "no items again": {func(o *Options) { o.Lazy = 0 }, false},
		"all tolerance": {func(o *Options) { o.Tolerance = 1 }, false}, "a loss": {func(o *Options) { o.Tolerance = -0.1 }, false},
		"no confidence": {func(o *Options) { o.Confidence = 0 }, false}, "certainty": {func(o *Options) { o.Confidence = 1 }, false}, "no number": {func(o *Options) { o.Lazy = math.NaN() }, false},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, d := range map[string]Data{
		"pairs": {Relevant: [][]int32{{1}}}, "hidden items": {Hidden: [][]int32{{1}}}, "segments": {Segments: []string{"a"}},
		"other numbers": {OldQueries: rerank.NewMatrix(2, 3), NewQueries: rerank.NewMatrix(2, 1)}, "other new numbers": {OldQueries: rerank.NewMatrix(2, 1), NewQueries: rerank.NewMatrix(2, 3)},
	} {
		d.Old, d.New = rerank.NewMatrix(60, 1), rerank.NewMatrix(60, 1)
		if d.check() == nil {
			t.Errorf("%s without queries of theirs are taken", name)
		}
	}
}

// TestVectorsAreScaled to norm 1, each of the four matrices, as copies, if the options say so.
func TestVectorsAreScaled(t *testing.T) {
	raw := rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{3, 4}}
	for unit, want := range map[bool][]float32{true: {0.6, 0.8}, false: {3, 4}} {
		d := Data{Old: raw, New: raw, OldQueries: raw, NewQueries: raw}
		if err := d.scale(unit); err != nil {
			t.Fatal(err)
		}
		for i, m := range []rerank.Matrix{d.Old, d.New, d.OldQueries, d.NewQueries} {
			if !(math.Abs(float64(m.Data[0]-want[0])) <= 1e-6) || !(math.Abs(float64(m.Data[1]-want[1])) <= 1e-6) {
				t.Errorf("unit %t: matrix %d is %v", unit, i, m.Data)
			}
		}
	}
	if !slices.Equal(raw.Data, []float32{3, 4}) {
		t.Errorf("the caller's vectors became %v", raw.Data)
	}
	bad := Data{Old: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{float32(math.NaN())}}}
	if bad.scale(true) == nil {
		t.Error("vectors that are no numbers are scaled")
	}
	mapped := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{3, 4, 0, 2}}
	if (&trial{}).normalise(mapped); mapped.Data[0] != 3 {
		t.Errorf("a bridge of inner products makes %v", mapped.Data)
	}
	if (&trial{options: Options{Normalise: true}}).normalise(mapped); !(math.Abs(float64(mapped.Data[0])-0.6) <= 1e-6) || mapped.Data[3] != 1 {
		t.Errorf("a bridge of cosines makes %v", mapped.Data)
	}
}

// TestExplainedShare: of the variance of the vectors around their mean.
func TestExplainedShare(t *testing.T) {
	vectors := rerank.Matrix{Rows: 4, Cols: 1, Data: []float32{9, 11, 9, 11}}
	if got := explained(vectors, rerank.Matrix{Rows: 4, Cols: 1, Data: []float32{10, 10, 9, 11}}); got != 0.5 {
		t.Errorf("half of the variance is %g", got)
	}
	if got := explained(vectors, vectors); got != 1 {
		t.Errorf("all of the variance is %g", got)
	}
}

// TestOrderOfRelevantItems: a ranking's items are right answers in ascending order, as judges want them.
func TestOrderOfRelevantItems(t *testing.T) {
	if got := rowsOf(ranking{{Rows: []int32{7, 2, 5}}, teacher.Ranked{}}); !slices.Equal(got[0], []int32{2, 5, 7}) || len(got[1]) != 0 {
		t.Errorf("%v", got)
	}
}
