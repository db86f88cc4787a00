package fit

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// molOn is the MRR@10 of a fitted MoL, as it is served, and of cosine on other data.
func molOn(t *testing.T, d Data, fitted *FittedMoL, wanted func(int32) bool) (mrr, cosine float64) {
	t.Helper()
	p, err := prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := mol.New(fitted.Config, fitted.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	v := &molView{work: &molWork{problem: p}, served: s, features: rerank.NewMatrix(p.items.Rows, s.Spec().Features)}
	if err := s.EncodeItems(v.features, p.items); err != nil {
		t.Fatal(err)
	}
	j := newJudge(p, allRows(d.Queries.Rows), wanted)
	scores, err := v.reciprocal(j)
	if err != nil {
		t.Fatal(err)
	}
	return mean(scores), mean(j.reciprocal(plain))
}

func withoutLogs(d Data, seed uint64, items int) (Data, []bool) {
	without := make([]bool, d.Items.Rows)
	for _, x := range rand.New(rand.NewPCG(seed, 1)).Perm(len(without))[:items] {
		without[x] = true
	}
	out := d
	out.Relevant = make([][]int32, len(d.Relevant))
	for q, items := range d.Relevant {
		if !without[items[0]] {
			out.Relevant[q] = items
		}
	}
	return out, without
}

// A MoL learns what no inner product can say, and the same seed gives the same
// model and report on any number of cores.
func TestMoLSameSeedSameModel(t *testing.T) {
	d := smallData(t)
	for name, change := range map[string]func(o *MoLOptions){
		"query gates": func(*MoLOptions) {},
		"full gates":  func(o *MoLOptions) { o.Gates, o.GateDropout = GatesFull, 0.1 },
		"sampled":     func(o *MoLOptions) { o.Softmax, o.Draws, o.UserTables, o.Dropout = 10, 8, []int{5}, 0.1 },
		"guarded":     func(o *MoLOptions) { o.Cold, o.Pulls = ColdGuard, []float64{1e-4, 1e-2} },
	} {
		t.Run(name, func(t *testing.T) {
			o := smallMoL()
			change(&o)
			var first *FittedMoL
			for _, cores := range []int{1, 3} {
				before := runtime.GOMAXPROCS(cores)
				fitted, err := MoL(t.Context(), d, o)
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
			if g := first.Report.Logged; g.Gain < 0.05 && !first.Report.Guarded {
				t.Errorf("held-out queries: %+v", g)
			}
			if name != "query gates" {
				return
			}
			o.Seed = 2
			if other, err := MoL(t.Context(), d, o); err != nil || reflect.DeepEqual(first.Tensors, other.Tensors) {
				t.Errorf("another seed gives the same model (%v)", err)
			}
		})
	}
}

// smallData is a part of toyData, with users: these tests run under the race detector.
func smallData(t *testing.T) Data {
	t.Helper()
	d := toyData(t)
	d.Queries, d.Relevant = d.Queries.Slice(0, 300), d.Relevant[:300]
	for q := range d.Queries.Rows {
		d.UserIDs = append(d.UserIDs, int64(q%9-4))
	}
	return d
}

func smallMoL() MoLOptions {
	o := DefaultMoLOptions()
	o.PairsQuery, o.PairsItem, o.Rounds, o.Batch, o.Rate = 4, 2, 4, 64, 1e-2
	o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden = 16, 16, 16
	return o
}
