package companion

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TestWhoPlacesAndWhoJudges: later queries judge where times are known, queries of zeros take no part, and an error says how
// many queries there are.
func TestWhoPlacesAndWhoJudges(t *testing.T) {
	d := fittest.RandomData(100, 5, 3)
	clear(d.Queries.Row(7))
	d.Times = make([]int64, 100)
	for q := range d.Times {
		d.Times[q] = int64((q * 37) % 100)
	}
	o := DefaultOptions()
	o.HeldOut, o.SplitBy = 0.2, fit.ByTime
	anchors, heldOut, err := divide(d, o)
	if err != nil || len(anchors) < 70 || len(heldOut) < 15 {
		t.Fatalf("%d queries place and %d judge, %v", len(anchors), len(heldOut), err)
	}
	last := int64(-1)
	for _, q := range anchors {
		last = max(last, d.Times[q])
	}
	for _, q := range heldOut {
		if d.Times[q] <= last {
			t.Errorf("query %d, of time %d, judges what queries until %d have placed", q, d.Times[q], last)
		}
	}
	if slices.Contains(anchors, 7) || slices.Contains(heldOut, 7) {
		t.Error("a query of zeros takes part")
	}
	d.Queries, d.Times = d.Queries.Slice(0, 1), d.Times[:1]
	if _, _, err := divide(d, o); !errors.Is(err, fit.ErrData) || !strings.Contains(err.Error(), "of 1 queries") {
		t.Errorf("one query: %v", err)
	}
}

// TestWarnings: a report says if it is about a sample of the items, or rests on few queries.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		r    Report
		want string
	}{
		{Report{Items: 10, SampledItems: 10, Anchors: 12}, ""}, {Report{Items: 10, SampledItems: 9, Anchors: 12}, "among 9 sampled items"},
		{Report{Items: 10, SampledItems: 10, Anchors: 11}, "11 queries are few"},
	} {
		c.r.warn(rerank.Spec{QueryDim: 3})
		if got := strings.Join(c.r.Warnings, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: warns of %q, want %q", c.r, got, c.want)
		}
	}
}

// TestDataOfAnotherLog: times and vectors that do not belong to the queries are refused.
func TestDataOfAnotherLog(t *testing.T) {
	d := fittest.RandomData(10, 5, 3)
	spec := rerank.Spec{QueryDim: 3, ItemDim: 3}
	for name, c := range map[string]struct {
		times int
		ok    bool
	}{"of each query": {10, true}, "too few": {9, false}, "too many": {11, false}} {
		d.Times = make([]int64, c.times)
		if err := checkData(spec, d); (err == nil) != c.ok || err != nil && !errors.Is(err, fit.ErrData) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatItemsAreFittedTo: to the scores above the threshold of each anchor's best items, less their mean. Placing the items
// ends with its context.
func TestWhatItemsAreFittedTo(t *testing.T) {
	const items = 64
	m, err := model.New(model.Parameters{Name: "late", Kind: rerank.KindLate, Config: []byte(`{"dim": 12, "normalise": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	taught, err := teacher.New(m.Similarity, lateData(items, 40, 12))
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Dim, o.Hidden, o.Focus = 8, 4, 3
	f := &fitter{Teacher: taught, options: o}
	anchors := []int32{3, 5, 8, 13, 21}
	tensors, err := f.learn(t.Context(), anchors)
	if err != nil {
		t.Fatal(err)
	}
	scores := make([]float32, items)
	for i, q := range anchors {
		e, err := f.Encode(q)
		if err == nil {
			err = e.Score(scores, f.Encoded)
		}
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.Sorted(slices.Values(scores))
		threshold := tensors[companion.Threshold].Data[i]
		if want := sorted[items-3]; !(math.Abs(float64(threshold-want)) <= 1e-4) {
			t.Errorf("anchor %d: items count in full above %g, want the third best score, %g", i, threshold, want)
		}
		companion.Target(scores, threshold, float32(o.Leak))
		sum := 0.0
		for _, v := range scores {
			sum += float64(v)
		}
		if got := float64(tensors[companion.Mean].Data[i]); !(math.Abs(got-sum/items) <= 1e-4) {
			t.Errorf("anchor %d: the mean is %g, want %g", i, got, sum/items)
		}
	}
	c, err := companion.Read(tensors, m.Similarity.Spec().QueryDim, features(f.anchors[0]).Cols)
	if err != nil {
		t.Fatal(err)
	}
	row, vectors := 0, tensors[companion.Anchors]
	for i, q := range anchors {
		own := f.Queries.Slice(int(f.QueryStarts[q]), int(f.QueryStarts[q+1]))
		if got := tensors[companion.Counts].Data[i]; got != float32(own.Rows) || !slices.Equal(vectors.Data[row*12:(row+own.Rows)*12], own.Data) {
			t.Errorf("anchor %d is not query %d, of %d vectors but %g", i, q, own.Rows, got)
		}
		row += own.Rows
	}
	checkJudged(t, f, c, tensors)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.place(ended, c); !errors.Is(err, context.Canceled) {
		t.Errorf("items are placed after the end: %v", err)
	}
}

// checkJudged compares the recall that judge reports for two queries with its definition.
func checkJudged(t *testing.T, f *fitter, c *companion.Companion, tensors tensor.Set) {
	t.Helper()
	f.options.K, f.options.Depths = 4, []int{6, 20}
	var r Report
	judges := []int32{30, 33}
	if err := f.judge(t.Context(), &r, tensors, judges); err != nil {
		t.Fatal(err)
	}
	placed, err := f.place(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float64, len(r.Depths))
	products := make([]float32, placed.Rows)
	ranked, err := f.RankAll(t.Context(), judges, 4, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range judges {
		e, err := f.Encode(q)
		if err != nil {
			t.Fatal(err)
		}
		for x := range products {
			products[x] = float32(linalg.Dot(c.Query(features(e)), placed.Row(x)))
		}
		for d, depth := range r.Depths {
			for _, x := range teacher.BestRows(products, depth) {
				if slices.Contains(ranked[i].Rows, x) {
					want[d] += 1. / 8
				}
			}
		}
	}
	own := r.Find(rerank.Companion, "")
	if r.K != 4 || r.Dim != c.Dim() || !own.Companion || !slices.EqualFunc(own.Recall, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
		t.Errorf("reported %+v, want recall %v of the first 4", r.RecallTable, want)
	}
	if r.Find(rerank.Average, "") == nil {
		t.Errorf("the model's own first stage is not measured: %+v", r.RecallTable)
	}
}

// TestSampledItems: a sample is of the whole collection, ascending, each item with its own vectors, and the seed draws it.
func TestSampledItems(t *testing.T) {
	d, o := lateData(40, 2, 3), DefaultOptions()
	o.Items = 40
	if got := sampleItems(d, o); got.ItemCount() != 40 || &got.Items.Data[0] != &d.Items.Data[0] {
		t.Errorf("a small collection is sampled to %d items", got.ItemCount())
	}
	o.Items = 15
	var samples [][]int
	for _, o.Seed = range []uint64{1, 1, 2} {
		got, rows := sampleItems(d, o), []int{}
		for x := range got.ItemCount() {
			own := got.Items.Slice(int(got.ItemStarts[x]), int(got.ItemStarts[x+1]))
			for from := range 40 {
				if all := d.Items.Slice(int(d.ItemStarts[from]), int(d.ItemStarts[from+1])); slices.Equal(own.Data, all.Data) {
					rows = append(rows, from)
				}
			}
		}
		samples = append(samples, rows)
		if len(rows) != 15 || !slices.IsSorted(rows) || rows[14] < 20 {
			t.Errorf("the sample is %v", rows)
		}
	}
	if !slices.Equal(samples[0], samples[1]) || slices.Equal(samples[0], samples[2]) {
		t.Errorf("the seeds 1, 1 and 2 draw %v", samples)
	}
}

// TestHiddenUnits: each unit is largest near its own vector, wherever the vectors' mean is, and above 0 for more of
// them than the unit before; vectors that are all alike, or few, make units of finite numbers.
func TestHiddenUnits(t *testing.T) {
	m := fittest.NormalMatrix(rand.New(rand.NewPCG(5, 6)), 300, 40)
	for r := range m.Rows {
		rerank.Normalise(m.Row(r))
		m.Row(r)[3] += 2
	}
	weights, bias := hiddenUnits(m, 350)
	before := 1
	for h := range bias {
		w, on := weights.Row(h), 0
		own := linalg.Dot(w, m.Row(h%m.Rows))
		for r := range m.Rows {
			v := linalg.Dot(w, m.Row(r))
			if v > own {
				t.Fatalf("unit %d is %g for its own vector and %g for vector %d", h, own, v, r)
			}
			if v+float64(bias[h]) > 1e-6 {
				on++
			}
		}
		if on < before || on > 90 || !(math.Abs(rerank.Norm(w)-1) <= 1e-5) {
			t.Fatalf("unit %d of norm %g is above 0 for %d of %d vectors, the one before for %d", h, rerank.Norm(w), on, m.Rows, before)
		}
		before = on
	}
	if before < 80 {
		t.Errorf("the last unit is above 0 for %d of %d vectors, want three of ten", before, m.Rows)
	}
	weights, bias = hiddenUnits(rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{3, 3}}, 3)
	if err := errors.Join(rerank.CheckFinite("weights", weights.Data), rerank.CheckFinite("biases", bias)); err != nil || len(bias) != 3 {
		t.Errorf("of two vectors that are the same: weights %v, biases %v: %v", weights.Data, bias, err)
	}
	if weights, bias = hiddenUnits(m, 0); weights.Rows != 0 || len(bias) != 0 {
		t.Errorf("without units: weights %v, biases %v", weights, bias)
	}
}

// TestQueryVectors: the seed chooses them, and they are as long as the model makes them.
func TestQueryVectors(t *testing.T) {
	s, err := late.New(late.Config{Dim: 3, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	known, err := teacher.New(s, lateData(4, 50, 3))
	if err != nil {
		t.Fatal(err)
	}
	var drawn [3][]float32
	for i, seed := range []uint64{1, 1, 2} {
		f := &fitter{Teacher: known, options: DefaultOptions()}
		f.options.Seed = seed
		m, err := f.queryVectors([]int32{4, 9, 17, 30, 31, 49})
		if err != nil || m.Rows != 6 {
			t.Fatalf("%d vectors of 6 queries: %v", m.Rows, err)
		}
		for r := range m.Rows {
			if norm := rerank.Norm(m.Row(r)); !(math.Abs(norm-1) <= 1e-6) {
				t.Errorf("vector %d has the norm %g", r, norm)
			}
		}
		drawn[i] = m.Data
	}
	if !slices.Equal(drawn[0], drawn[1]) || slices.Equal(drawn[0], drawn[2]) {
		t.Errorf("the seeds 1, 1 and 2 draw %v", drawn)
	}
}

// TestUsersOfALog: a log of users teaches a model that does not know them.
func TestUsersOfALog(t *testing.T) {
	m, err := model.New(model.Parameters{Name: "late", Kind: rerank.KindLate, Config: []byte(`{"dim": 12, "normalise": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	d, o := lateData(30, 30, 12), DefaultOptions()
	o.Dim, o.Hidden, o.K, o.Depths = 4, 4, 3, []int{10}
	want, err := Fit(t.Context(), m.Similarity, d, o)
	if err != nil {
		t.Fatal(err)
	}
	d.UserIDs = []int64{7} // of another number of queries: nobody reads them
	if got, err := Fit(t.Context(), m.Similarity, d, o); err != nil || !slices.Equal(got.Tensors[companion.Out].Data, want.Tensors[companion.Out].Data) {
		t.Errorf("users change the companion: %v", err)
	}
}

// underived derives the fields of a similarity, but cannot compute them.
type underived struct{ rerank.Deriver }

var errUnderived = errors.New("the field cannot be derived")

func (underived) Derive(rerank.Matrix, string, rerank.Items) error { return errUnderived }

// TestAStageThatCannotBeMeasured ends the fit.
func TestAStageThatCannotBeMeasured(t *testing.T) {
	m, d := questions(t, 60)
	taught, err := teacher.New(m.Similarity, d)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Dim, o.Hidden, o.K, o.Depths = 4, 2, 3, []int{10}
	f := &fitter{Teacher: taught, options: o}
	tensors, err := f.learn(t.Context(), []int32{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	f.Abilities.Derive = underived{f.Abilities.Derive}
	var r Report
	if err := f.judge(t.Context(), &r, tensors, []int32{7}); !errors.Is(err, errUnderived) {
		t.Errorf("reported %+v", r)
	}
}

// TestAQueryThatCannotBeEncoded is named.
func TestAQueryThatCannotBeEncoded(t *testing.T) {
	m, err := model.New(model.Parameters{Name: "late", Kind: rerank.KindLate, Config: []byte(`{"dim": 12, "normalise": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	d := lateData(20, 5, 12)
	d.Queries.Row(int(d.QueryStarts[3]))[0] = float32(math.NaN())
	taught, err := teacher.New(m.Similarity, d)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Dim, o.Hidden = 4, 2
	if _, err := (&fitter{Teacher: taught, options: o}).learn(t.Context(), []int32{3, 1}); !errors.Is(err, fit.ErrData) || !strings.Contains(err.Error(), "query 3") {
		t.Errorf("%v", err)
	}
}

// TestOptionsOfACompanion: each has its range.
func TestOptionsOfACompanion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		ok     bool
	}{
		"defaults": {func(*Options) {}, true}, "no leak": {func(o *Options) { o.Leak = 0 }, true}, "all leak": {func(o *Options) { o.Leak = 1 }, true}, "no units": {func(o *Options) { o.Hidden = 0 }, true},
		"a negative leak": {func(o *Options) { o.Leak = -0.1 }, false}, "no ridge": {func(o *Options) { o.Ridge = 0 }, false}, "a ridge of one": {func(o *Options) { o.Ridge = 1 }, false},
		"no dim": {func(o *Options) { o.Dim = 0 }, false}, "one anchor": {func(o *Options) { o.Anchors = 1 }, false}, "two items": {func(o *Options) { o.Items = 2 }, false}, "no k": {func(o *Options) { o.K = 0 }, false},
		"no focus": {func(o *Options) { o.Focus = 0 }, false}, "negative features": {func(o *Options) { o.Hidden = -1 }, false}, "no depth": {func(o *Options) { o.Depths = nil }, false}, "depth 0": {func(o *Options) { o.Depths = []int{5, 0} }, false},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.check(); (err == nil) != c.ok || err != nil && !errors.Is(err, fit.ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unitSimilarity is a similarity of which only its specification is asked.
type unitSimilarity struct {
	rerank.Similarity
	unit bool
}

func (s unitSimilarity) Spec() rerank.Spec { return rerank.Spec{Normalise: s.unit} }

// TestVectorsAsTheDatabaseComparesThem: unit vectors if the similarity is of unit vectors, and the mean of an item's vectors.
func TestVectorsAsTheDatabaseComparesThem(t *testing.T) {
	items := rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{1, -3}}
	for name, c := range map[string]struct {
		taught teacher.Teacher
		want   []float32
	}{
		"unit vectors":    {teacher.Teacher{Similarity: unitSimilarity{unit: true}, Items: items}, []float32{1, -1}},
		"other vectors":   {teacher.Teacher{Similarity: unitSimilarity{}, Items: items}, []float32{1 / float32(math.Sqrt(5)), -3 / float32(math.Sqrt(5))}},
		"several an item": {teacher.Teacher{Encoded: rerank.Items{Features: items, Starts: []int32{0, 2}}}, []float32{-1}},
	} {
		got, err := (&fitter{Teacher: &c.taught}).stored()
		if err != nil || !slices.EqualFunc(got.Data, c.want, func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-6 }) {
			t.Errorf("%s: %v, %v, want %v", name, got.Data, err, c.want)
		}
	}
}
