package distilled

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// TestQueriesThatJudge teach nothing, and have their own vectors.
func TestQueriesThatJudge(t *testing.T) {
	d := lessonData(90, 20, 3)
	l := &samples.Log{Items: d.Items, Queries: d.Queries, Relevant: make([][]int32, 90)}
	for q := range l.Relevant {
		l.Relevant[q] = []int32{0}
	}
	o := quick()
	o.HeldOut = 0.3
	f := &fitter{options: o, report: Report{Items: 20}}
	if err := f.divideQueries(l); err != nil {
		t.Fatal(err)
	}
	if len(f.heldOut) < 20 || len(f.lessons.train) < 50 {
		t.Errorf("%d queries judge and %d teach", len(f.heldOut), len(f.lessons.train))
	}
	for i, q := range f.heldOut {
		if slices.Contains(f.lessons.train, q) || !slices.Equal(f.judges.Row(i), d.Queries.Row(int(q))) {
			t.Errorf("query %d judges with %v, and teaches: %t", q, f.judges.Row(i), slices.Contains(f.lessons.train, q))
		}
	}
}

// TestCandidatesAreCorrected by their chance to be candidates of a batch.
func TestCandidatesAreCorrected(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	items := fittest.NormalMatrix(rng, 30, 2)
	lists := make([]teacher.Ranked, 12)
	for i := range lists {
		lists[i].Rows = []int32{0, int32(i), int32(i + 1)} // item 0 is in every list
	}
	const batches, batch, draws = 6000, 2, 5
	p := newPool(items, lists, batch, 10, draws)
	seen := make([]float64, items.Rows)
	for range batches {
		p.drawCandidates(rng.Perm(len(lists))[:batch], lists, rng)
		for i, x := range p.rows {
			seen[x]++
			if p.correction[i] != p.rareness[x] || p.column[x] != int32(i) || !slices.Equal(p.vectors.Row(i), items.Row(int(x))) {
				t.Fatalf("candidate %d is item %d, in column %d, corrected by %g", i, x, p.column[x], p.correction[i])
			}
		}
		if len(p.rows) != len(p.correction) || len(p.rows) != p.vectors.Rows || len(p.rows) > 3*batch+draws {
			t.Fatalf("%d candidates of %d vectors have %d corrections", len(p.rows), p.vectors.Rows, len(p.correction))
		}
	}
	for x, n := range seen {
		if want := math.Exp(-float64(p.rareness[x])); !(math.Abs(n/batches-want) <= 0.03) {
			t.Errorf("item %d is a candidate of %.3f of the batches, its chance is %.3f", x, n/batches, want)
		}
	}
}

// TestStartsAreCompared: a head starts at the W of least loss, and the targets of a query are its best items, less the mean of
// all items.
func TestStartsAreCompared(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	w := fittest.NormalMatrix(rng, 6, 6)
	d := lessonData(80, 50, 6)
	taught, err := teacher.New(bilinearOf(t, w, false), d)
	if err != nil {
		t.Fatal(err)
	}
	l := &lessons{items: d.Items, queries: d.Queries, train: fittest.AllRows(80), temperature: 1}
	if l.lists, err = taught.RankAll(t.Context(), l.train, 10, func(int) {}); err != nil {
		t.Fatal(err)
	}
	o := quick()
	starts, err := l.findStarts(taught)
	if err != nil || len(starts) != 3 {
		t.Fatalf("%d starts, %v", len(starts), err)
	}
	losses := map[string]float64{}
	for name, start := range starts {
		losses[name] = l.fitScale(newHead(start, 0, o.Seed), o)
	}
	chosen, name, err := l.chooseStart(taught, o)
	if err != nil {
		t.Fatal(err)
	}
	for other, loss := range losses {
		if loss < losses[name] {
			t.Errorf("the start is %s, of loss %g; %s has %g", name, losses[name], other, loss)
		}
	}
	if name != startAverage || losses[startPlain] < 1.5*losses[name] { // the similarity is the averaged probe
		t.Errorf("the start is %s of %v", name, losses)
	}
	if got := newLearner(l, newHead(chosen, 0, o.Seed), o).sampleLoss(o.Seed); !(math.Abs(got-losses[name]) <= 1e-6) {
		t.Errorf("the start has loss %g, found was %g", got, losses[name])
	}

	got, center := rerank.NewMatrix(80, 6), meanOfRows(d.Items)
	l.targetMeans(got)
	for i, list := range l.lists[:5] {
		weights := make([]float32, len(list.Rows))
		writeWeights(weights, list, l.temperature)
		want := make([]float32, 6)
		for k, x := range list.Rows {
			linalg.AddScaled(want, d.Items.Row(int(x)), float64(weights[k]))
		}
		for k, v := range want {
			if !(math.Abs(float64(got.Row(i)[k]-(v-center[k]))) <= 1e-5) {
				t.Errorf("the target of list %d has %g at %d, want %g", i, got.Row(i)[k], k, v-center[k])
			}
		}
	}
}

// TestRatesFall: in the last round the steps are short. The seed draws the residual head.
func TestRatesFall(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	d := lessonData(40, 30, 4)
	l := &lessons{items: d.Items, queries: d.Queries, train: fittest.AllRows(40), temperature: 1}
	for range l.train {
		l.lists = append(l.lists, teacher.Rank(fittest.NormalMatrix(rng, 1, 30).Data, nil, 8))
	}
	o := quick()
	o.Rounds = 1000
	start := fittest.NormalMatrix(rng, 4, 4)
	moved := func(round int) (sum float64) {
		h := newHead(start, 0, 1)
		h.startTraining(o.Rate)
		if _, err := newLearner(l, h, o).TakeRound(t.Context(), round); err != nil {
			t.Fatal(err)
		}
		for i, v := range h.w.value.Data {
			sum += math.Abs(float64(v - start.Data[i]))
		}
		return sum
	}
	if first, last := moved(0), moved(999); last == 0 || last > first/100 {
		t.Errorf("the first round moves W by %g, the last by %g", first, last)
	}
	if slices.Equal(newHead(start, 5, 1).first.value.Data, newHead(start, 5, 2).first.value.Data) {
		t.Error("two seeds draw the same residual head")
	}
}

// TestFoundItemsAreRankedWithTheFirst: a new list has the items of the query's first list, whatever the head finds, and no
// item twice.
func TestFoundItemsAreRankedWithTheFirst(t *testing.T) {
	const items = 3000
	d := lessonData(12, items, 3)
	taught, err := teacher.New(bilinearOf(t, rerank.Matrix{Rows: 3, Cols: 3, Data: []float32{1, 0, 0, 0, 1, 0, 0, 0, 1}}, false), d)
	if err != nil {
		t.Fatal(err)
	}
	o := quick()
	o.List = 5
	f := &fitter{options: o, teacher: taught, lessons: lessons{items: d.Items, queries: d.Queries, train: fittest.AllRows(12)}}
	first, err := taught.RankAll(t.Context(), f.lessons.train, 5, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	opposite := rerank.NewMatrix(12, 3)
	linalg.AddScaled(opposite.Data, d.Queries.Data, -1)
	for name, c := range map[string]struct {
		probes rerank.Matrix
		lists  []teacher.Ranked
		same   bool
	}{"the similarity's own probes": {d.Queries, nil, true}, "opposite probes": {opposite, nil, false}, "with the first lists": {opposite, first, true}} {
		got, err := f.rankFound(t.Context(), c.probes, c.lists, func(int) {})
		if err != nil || len(got) != 12 {
			t.Fatalf("%s: %d lists, %v", name, len(got), err)
		}
		same := slices.EqualFunc(got, first, func(a, b teacher.Ranked) bool { return slices.Equal(a.Rows, b.Rows) })
		if same != c.same {
			t.Errorf("%s: the lists are those of the similarity: %t", name, same)
		}
	}
}

// TestOptionsAreOnlyRead: a fit changes nothing that its caller holds.
func TestOptionsAreOnlyRead(t *testing.T) {
	o := quick()
	o.Depths, o.Heads = []int{40, 20, 40}, []string{HeadResidual, HeadLinear}
	f, err := newFitter(teacherMoL(t, 12, nil), lessonData(50, 60, 12), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Depths, []int{40, 20, 40}) || !slices.Equal(o.Heads, []string{HeadResidual, HeadLinear}) || !slices.Equal(f.options.Depths, []int{20, 40}) {
		t.Errorf("depths %v and heads %v, the fit measures %v", o.Depths, o.Heads, f.options.Depths)
	}
	if f.report.Items != 60 || f.report.Queries != 50 || f.report.Seed != o.Seed || f.report.K != 5 {
		t.Errorf("%+v", f.report)
	}
	o.K = 100
	if f, err = newFitter(teacherMoL(t, 12, nil), lessonData(50, 60, 12), o); err != nil || f.report.K != 59 {
		t.Errorf("of 60 items, K is %d, %v", f.report.K, err)
	}
}

// TestZeroQueriesOfRawVectors: a query of zeros has no direction, which a similarity of raw vectors does not need.
func TestZeroQueriesOfRawVectors(t *testing.T) {
	d := lessonData(10, 8, 3)
	clear(d.Queries.Row(4))
	for unit, want := range map[bool]int{true: 1, false: 0} {
		o := quick()
		o.Normalise = unit
		f := &fitter{options: o, queryScale: 1}
		l, err := f.prepareLog(d)
		if err != nil {
			t.Fatal(err)
		}
		if f.report.ZeroQueries != want || l.Counts.Queries != 10-want || len(l.Relevant[4]) != 1-want || len(l.Relevant[5]) != 1 {
			t.Errorf("unit %t: %d queries are left out, %d of 10 take part, and query 4 is in %v", unit, f.report.ZeroQueries, l.Counts.Queries, l.Relevant[4])
		}
		if scale := float64(samples.RootMeanSquareNorm(d.Queries)); unit && f.queryScale != 1 || !unit && f.queryScale != scale {
			t.Errorf("unit %t: the queries are divided by %g", unit, f.queryScale)
		}
	}
	d.Times = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	f := &fitter{options: Options{Common: fit.Common{Normalise: true}}}
	if l, err := f.prepareLog(d); err != nil || !slices.Equal(l.Times, d.Times) {
		t.Errorf("the times are %v, %v", l.Times, err)
	}
}

// probeless is a similarity without probes.
type probeless struct{ rerank.Similarity }

func (p probeless) Encode(q rerank.Query) (rerank.Encoded, error) {
	e, err := p.Similarity.Encode(q)
	return probesOf{Encoded: e, err: rerank.ErrStrategy}, err
}

// TestFirstListsOfALargeCollection: the items that the query's own vector finds are ranked, if the similarity has no averaged probe.
func TestFirstListsOfALargeCollection(t *testing.T) {
	d := lessonData(5, 2000, 12)
	taught, err := teacher.New(probeless{teacherMoL(t, 12, nil)}, d)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{options: quick(), teacher: taught, lessons: lessons{items: d.Items, queries: d.Queries, train: fittest.AllRows(5)}}
	got, err := f.makeFirstLists(t.Context(), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	want, err := f.rankFound(t.Context(), d.Queries, nil, func(int) {})
	if err != nil || !slices.EqualFunc(got, want, func(a, b teacher.Ranked) bool { return slices.Equal(a.Rows, b.Rows) }) {
		t.Errorf("%v, %v", got, err)
	}
}

// probesOf is an encoded query with these probes.
type probesOf struct {
	rerank.Encoded
	probes []rerank.Probe
	err    error
}

func (p probesOf) Probes(rerank.Plan) ([]rerank.Probe, error) { return p.probes, p.err }

// TestAveragedProbe: the only probe of the stored vectors. A strategy that the similarity lacks is no error, any other one is.
func TestAveragedProbe(t *testing.T) {
	broken, one := errors.New("broken"), rerank.Probe{Vector: []float32{7}}
	for name, c := range map[string]struct {
		e    probesOf
		want []float32
		err  error
	}{
		"one":          {probesOf{probes: []rerank.Probe{one}}, one.Vector, nil},
		"two":          {probesOf{probes: []rerank.Probe{one, one}}, nil, nil},
		"of a field":   {probesOf{probes: []rerank.Probe{{Field: "a", Vector: one.Vector}}}, nil, nil},
		"no strategy":  {probesOf{err: rerank.ErrStrategy}, nil, nil},
		"other errors": {probesOf{err: broken}, nil, broken},
	} {
		if got, err := averagedProbe(c.e); !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestOptionsOfAProbe: each has its range.
func TestOptionsOfAProbe(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		change func(*Options)
		ok     bool
	}{
		"defaults": {func(*Options) {}, true}, "its own focus": {func(o *Options) { o.Focus = 1.5 }, true}, "all items sampled": {func(o *Options) { o.Softmax = 0 }, true}, "one head": {func(o *Options) { o.Heads = []string{HeadLinear} }, true},
		"an endless rate": {func(o *Options) { o.Rate = inf }, false}, "no rate": {func(o *Options) { o.Rate = 0 }, false}, "an endless focus": {func(o *Options) { o.Focus = inf }, false}, "a focus of one": {func(o *Options) { o.Focus = 1 }, false}, "no number": {func(o *Options) { o.Focus = math.NaN() }, false},
		"lists of one": {func(o *Options) { o.List = 1 }, false}, "no batch": {func(o *Options) { o.Batch = 0 }, false}, "no rounds": {func(o *Options) { o.Rounds = 0 }, false}, "no width": {func(o *Options) { o.Hidden = 0 }, false}, "no draws": {func(o *Options) { o.Draws = 0 }, false},
		"no scores": {func(o *Options) { o.Scores = 0 }, false}, "negative softmax": {func(o *Options) { o.Softmax = -1 }, false}, "no depth": {func(o *Options) { o.Depths = nil }, false}, "depth 0": {func(o *Options) { o.Depths = []int{5, 0} }, false},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.check(); (err == nil) != c.ok || err != nil && !errors.Is(err, fit.ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSeedOfAHead: the options' seed draws the head that is trained.
func TestSeedOfAHead(t *testing.T) {
	m, d, o := teacherMoL(t, 12, nil), lessonData(60, 50, 12), quick()
	o.Rate, o.Rounds, o.Seed = 1e-30, 1, 5
	f, err := newFitter(m, d, o)
	if err == nil {
		err = f.makeLessons(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	start := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), 12, 12)
	if err := f.trainHead(t.Context(), HeadResidual, start, startPlain); err != nil {
		t.Fatal(err)
	}
	if got, want := f.heads[HeadResidual].first.value.Data, newHead(start, o.Hidden, 5).first.value.Data; !slices.Equal(got, want) {
		t.Errorf("the head starts at %v, want %v", got[:4], want[:4])
	}
}
