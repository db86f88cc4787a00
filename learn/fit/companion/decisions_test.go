package companion

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/model"
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
		if want := sorted[items-3]; math.Abs(float64(threshold-want)) > 1e-4 {
			t.Errorf("anchor %d: items count in full above %g, want the third best score, %g", i, threshold, want)
		}
		companion.Target(scores, threshold, float32(o.Leak))
		sum := 0.0
		for _, v := range scores {
			sum += float64(v)
		}
		if got := float64(tensors[companion.Mean].Data[i]); math.Abs(got-sum/items) > 1e-4 {
			t.Errorf("anchor %d: the mean is %g, want %g", i, got, sum/items)
		}
	}
	c, err := companion.Read(tensors, m.Similarity.Spec().QueryDim, features(f.anchors[0]).Cols)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.place(ended, c); !errors.Is(err, context.Canceled) {
		t.Errorf("items are placed after the end: %v", err)
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
