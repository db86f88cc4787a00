package mol

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// measure returns the MRR@10 of a fitted model, as it is served, and of the plain inner
// product on other data.
func measure(t *testing.T, d fit.Data, fitted *Fitted, wanted func(int32) bool) (mrr, cosine float64) {
	t.Helper()
	log, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := mol.New(fitted.Config, fitted.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{log: log, similarity: s, features: rerank.NewMatrix(log.Items.Rows, s.Spec().Features)}
	if err := s.EncodeItems(v.features, log.Items); err != nil {
		t.Fatal(err)
	}
	j := judge.New(log, fit.MRR, fittest.AllRows(d.Queries.Rows), wanted)
	scores, err := v.marks(j)
	if err != nil {
		t.Fatal(err)
	}
	return judge.Mean(scores, nil), judge.Mean(j.Marks(judge.InnerProduct), nil)
}

// A MoL learns what no inner product can say, and the same seed gives the same
// model and report on any number of cores.
func TestMoLSameSeedSameModel(t *testing.T) {
	d := smallData(t)
	for name, change := range map[string]func(o *Options){
		"query gates": func(*Options) {},
		"full gates":  func(o *Options) { o.Gates, o.GateDropout = GatesFull, 0.1 },
		"sampled":     func(o *Options) { o.Softmax, o.Draws, o.UserTables, o.Dropout = 10, 8, []int{5}, 0.1 },
		"guarded":     func(o *Options) { o.Cold, o.Pulls = fit.ColdGuard, []float64{1e-4, 1e-2} },
	} {
		t.Run(name, func(t *testing.T) {
			o := smallMoL()
			change(&o)
			var first *Fitted
			for _, cores := range []int{1, 3} {
				before := runtime.GOMAXPROCS(cores)
				fitted, err := Fit(t.Context(), d, o)
				runtime.GOMAXPROCS(before)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = fitted
				} else if !reflect.DeepEqual(first, fitted) {
					t.Errorf("%d cores give another model or report", cores)
				}
			}
			if g := first.Report.Logged; (g.Gain < 0.05 || first.Report.Rounds == 0) && !first.Report.Guarded {
				t.Errorf("held-out queries: %+v", g)
			}
			if name != "query gates" {
				return
			}
			o.Seed = 2
			if other, err := Fit(t.Context(), d, o); err != nil || reflect.DeepEqual(first.Tensors, other.Tensors) {
				t.Errorf("another seed gives the same model (%v)", err)
			}
		})
	}
}

// TestWithoutAGainTheModelIsTheBilinearForm: a mixture that learns nothing is not taken, and the model is the form that a
// fit of bilinear forms finds.
func TestWithoutAGainTheModelIsTheBilinearForm(t *testing.T) {
	for _, cold := range []fit.Cold{fit.ColdIgnore, fit.ColdGuard} {
		d := fittest.FlippedData()
		o := smallMoL()
		o.Cold, o.Rounds, o.Rate = cold, 1, 1e-12
		want, err := bilinear.Fit(t.Context(), d, o.formOptions(o.Rounds))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Fit(t.Context(), d, o)
		if err != nil {
			t.Fatal(err)
		}
		r := got.Report
		if r.Rounds != 0 || !(math.Abs(r.Logged.Value-want.Report.Logged.Value) <= 1e-6) || !(math.Abs(1/r.Temperature-want.Report.Scale) <= 1e-9) ||
			!slices.ContainsFunc(r.Warnings, func(text string) bool { return strings.Contains(text, "no mixture was better") }) {
			t.Errorf("%s: %d rounds, MRR@10 %g at temperature %g, warnings %q; want none, %g and %g", cold, r.Rounds, r.Logged.Value, r.Temperature, r.Warnings, want.Report.Logged.Value, 1/want.Report.Scale)
		}
	}
}

// smallData is a part of fittest.FlippedData, with users: these tests run under the race detector. Every other query is
// flipped back, and the last axis says which, so that a mixture can learn what no bilinear form can.
func smallData(t *testing.T) fit.Data {
	t.Helper()
	d := fittest.FlippedData()
	d.Queries, d.Relevant = d.Queries.Slice(0, 300), d.Relevant[:300]
	for q := range d.Queries.Rows {
		row := d.Queries.Row(q)
		row[len(row)-1] = float32(3 - 6*(q%2))
		for i := 1; i < len(row)-1 && q%2 == 1; i += 2 {
			row[i] = -row[i]
		}
		d.UserIDs = append(d.UserIDs, int64(q%9-4))
	}
	for x := range d.Items.Rows {
		d.Items.Row(x)[d.Items.Cols-1] = 0
	}
	return d
}

func smallMoL() Options {
	o := DefaultOptions()
	o.PairsQuery, o.PairsItem, o.Rounds, o.Batch, o.Rate = 4, 2, 4, 64, 1e-2
	o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden = 16, 16, 16
	return o
}

// TestHeldOutQuestionsAreNotLearnedAsItems: where items are questions, a judged fit learns
// no pair of an item that is a held-out question.
func TestHeldOutQuestionsAreNotLearnedAsItems(t *testing.T) {
	d := fittest.RandomData(40, 40, 4)
	copy(d.Queries.Data, d.Items.Data)
	log, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	c := fit.DefaultCommon()
	c.HeldOut = 0.3
	split, err := log.Split(c)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{log: log, split: split}
	for _, p := range f.trainingPairs(nil) {
		if slices.Contains(split.HeldOut, p.Item) {
			t.Errorf("question %d learns item %d, which is held-out question %d", p.Query, p.Item, p.Item)
		}
	}
}
