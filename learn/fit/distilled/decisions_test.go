package distilled

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// TestFingerprintOfAModel: models that encode the same items alike and score them otherwise have other fingerprints.
func TestFingerprintOfAModel(t *testing.T) {
	d := lessonData(8, 6, 3)
	of := func(w float32, change func(items rerank.Matrix)) string {
		t.Helper()
		d := d
		d.Items.Data = append([]float32(nil), d.Items.Data...)
		change(d.Items)
		form := rerank.Matrix{Rows: 3, Cols: 3, Data: []float32{w, 0, 0, 0, 1, 0, 0, 0, 1}}
		taught, err := teacher.New(bilinearOf(t, form, false), d)
		if err != nil {
			t.Fatal(err)
		}
		made, err := fingerprint(taught, []int32{5, 2})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	none := func(rerank.Matrix) {}
	want := of(2, none)
	if of(2, none) != want {
		t.Error("one model has two fingerprints")
	}
	if of(3, none) == want {
		t.Error("another W has the same fingerprint")
	}
	if of(2, func(items rerank.Matrix) { items.Data[4]++ }) == want {
		t.Error("another item has the same fingerprint")
	}
}

// TestRecommendedStage: the residual probe is taken for a gain of more than 0.005, another stage if no probe finds more.
func TestRecommendedStage(t *testing.T) {
	linear, residual := rerank.FirstStage{Head: HeadLinear, Recall: []float64{0.8, 0.9}}, rerank.FirstStage{Head: HeadResidual, Recall: []float64{0.804, 0.904}}
	better := rerank.FirstStage{Head: HeadResidual, Recall: []float64{0.81, 0.97}}
	average := rerank.FirstStage{Strategy: rerank.Average, Recall: []float64{0.86, 0.86}, Companion: true}
	stored := rerank.FirstStage{Strategy: rerank.StoredSearch, Recall: []float64{0.1, 0.2}}
	for name, c := range map[string]struct {
		stages []rerank.FirstStage
		heads  []HeadReport
		want   string
		warns  string
	}{
		"a little better":     {[]rerank.FirstStage{linear, residual, stored}, nil, "Use the strategy distilled with head linear.", "even 50 candidates hold 0.900 of the exact top 7 only"},
		"better":              {[]rerank.FirstStage{linear, better, stored}, nil, "Use the strategy distilled with head residual: 50 candidates hold 0.970 of the exact top 7.", ""},
		"better in the mean":  {[]rerank.FirstStage{better, average}, nil, "Use the strategy distilled with head residual", ""},
		"no better than this": {[]rerank.FirstStage{linear, average}, nil, "Use the strategy average: no learned probe finds more. It needs a companion collection", "even 50 candidates"},
		"exact":               {[]rerank.FirstStage{linear, average}, []HeadReport{{Start: startExact}}, "Keep the strategy average", ""},
	} {
		r := &Report{Heads: c.heads, LearnedQueries: 30, RecallTable: rerank.RecallTable{K: 7, Depths: []int{20, 50}, Stages: c.stages}}
		r.conclude(rerank.Spec{QueryDim: 3})
		if got := strings.Join(r.Warnings, "; "); !strings.HasPrefix(r.Recommendation, c.want) || (got == "") != (c.warns == "") || !strings.Contains(got, c.warns) {
			t.Errorf("%s: %q, warnings %q", name, r.Recommendation, got)
		}
	}
	r := &Report{LearnedQueries: 29}
	if r.conclude(rerank.Spec{QueryDim: 3, UserIDs: true}); len(r.Warnings) != 2 || r.Recommendation != "" {
		t.Errorf("few queries of a model with users: %q, %q", r.Warnings, r.Recommendation)
	}
}

// TestCostOfLessons: the options bound the scores that the lessons take, by queries that they leave out. A large
// collection is scored in part.
func TestCostOfLessons(t *testing.T) {
	for name, c := range map[string]struct {
		softmax, scores, learned int
	}{
		"all queries":        {1000, 1 << 20, 90},
		"all that is paid":   {1000, 40 * 100, 40},
		"a batch at least":   {1000, 1, 32},
		"a large collection": {99, 40 * (shortlist + randomItems), 40},
		"as large as may be": {100, 40 * 100, 40},
	} {
		o := quick()
		o.Softmax, o.Scores, o.HeldOut = c.softmax, c.scores, 0.1
		f := &fitter{options: o, report: Report{Items: 100}}
		l := &samples.Log{Items: rerank.NewMatrix(100, 2)}
		l.Queries = lessonData(1000, 1, 2).Queries.Slice(0, 100)
		l.Relevant = make([][]int32, 100)
		for q := range l.Relevant {
			l.Relevant[q] = []int32{0}
		}
		if err := f.divideQueries(l); err != nil {
			t.Fatal(err)
		}
		if got := f.report.LearnedQueries; got > c.learned+6 || got < min(c.learned, 84) || f.report.HeldOutQueries < 4 || len(f.lessons.train) != got || f.judges.Rows != f.report.HeldOutQueries {
			t.Errorf("%s: %d of 100 queries teach, %d judge; want about %d", name, got, f.report.HeldOutQueries, c.learned)
		}
	}
}

// TestFocusOfLessons: the items that share the weight are 5K, or an eighth of a small collection, and fewer than are ranked.
func TestFocusOfLessons(t *testing.T) {
	for name, c := range map[string]struct {
		items, list, k int
		asked, want    float64
	}{
		"five K": {1000, 256, 10, 0, 50}, "an eighth": {160, 256, 10, 0, 20}, "two": {8, 256, 10, 0, 2},
		"asked for": {1000, 256, 10, 30, 30}, "half of what is ranked": {1000, 40, 10, 0, 20}, "half of the items": {20, 256, 3, 15, 10},
	} {
		f := &fitter{options: Options{Focus: c.asked, List: c.list}, report: Report{RecallTable: rerank.RecallTable{K: c.k}}}
		f.lessons = lessons{items: rerank.NewMatrix(c.items, 1), lists: []teacher.Ranked{{Rows: []int32{0, 1, 2, 3}, Scores: []float32{4, 3, 2, 1}}}}
		if f.chooseTemperature(); f.report.Focus != c.want || f.report.Temperature != f.lessons.temperature || !(f.report.Temperature > 0) {
			t.Errorf("%s: %g items share the weight, want %g; temperature %g", name, f.report.Focus, c.want, f.report.Temperature)
		}
	}
}

// TestListsOfAResumedFit: they are found again by the head that found them, and the head of the fit stays as it is.
func TestListsOfAResumedFit(t *testing.T) {
	learnerOf := func() (*learner, *[][]float32) {
		d := lessonData(8, 12, 3)
		l := &lessons{items: d.Items, queries: d.Queries, temperature: 1}
		for q := range int32(8) {
			l.train, l.lists = append(l.train, q), append(l.lists, teacher.Ranked{Rows: []int32{q, q + 1}, Scores: []float32{2, 1}})
		}
		h := newHead(rerank.Matrix{Rows: 3, Cols: 3, Data: []float32{1, 0, 0, 0, 1, 0, 0, 0, 1}}, 0, 1)
		h.startTraining(0.1)
		made, foundBy := newLearner(l, h, quick()), &[][]float32{}
		made.renewLists = func(_ context.Context, h *head) error {
			*foundBy = append(*foundBy, slices.Clone(h.parameters()[0]))
			return nil
		}
		return made, foundBy
	}
	update := func(d *learner, round int) {
		t.Helper()
		if err := d.updateLists(t.Context(), round); err != nil {
			t.Fatal(err)
		}
	}
	whole, foundBy := learnerOf()
	for round := range 4 {
		whole.Parameters()[0][0] = float32(round)
		update(whole, round)
	}
	if len(*foundBy) != 2 || (*foundBy)[0][0] != 1 || (*foundBy)[1][0] != 2 { // before rounds 1 and 2, and not before 0 and 3
		t.Errorf("the lists were found by heads of %v", *foundBy)
	}
	resumed, foundBy := learnerOf()
	resumed.Parameters()[0][0] = 3
	if err := resumed.Resume(whole.Position()); err != nil {
		t.Fatal(err)
	}
	update(resumed, 3)
	update(resumed, 3)
	if len(*foundBy) != 1 || (*foundBy)[0][0] != 2 || resumed.Parameters()[0][0] != 3 {
		t.Errorf("after it was resumed, the lists were found by heads of %v, and the head is %v", *foundBy, resumed.Parameters()[0])
	}
	all, _ := learnerOf()
	if all.renewLists = nil; !errors.Is(all.Resume(whole.Position()), fit.ErrCheckpoint) {
		t.Error("lists of a large collection are taken for one that is ranked whole")
	}
}
