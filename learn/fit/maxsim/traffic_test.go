package maxsim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// repeatedLog returns a log of which nine tenths are repeats: each query lies somewhere about
// its item, and most were asked many times.
func repeatedLog(seed uint64, times int) fit.Data {
	const items, queries, dim = 60, 600, 16
	rng := rand.New(rand.NewPCG(seed, 8))
	d := fit.Data{Items: fittest.NormalMatrix(rand.New(rand.NewPCG(6, 7)), items, dim), Queries: fittest.NormalMatrix(rng, queries, dim)}
	for q := range queries {
		x := q % items
		for i, v := range d.Items.Row(x) {
			d.Queries.Row(q)[i] += v * 0.7
		}
		d.Relevant = append(d.Relevant, []int32{int32(x)})
		asked := 1.0
		if q%2 == 0 {
			asked = float64(times)
		}
		d.Asked = append(d.Asked, asked)
	}
	return d
}

// Where most traffic repeats, the budget that remembers it is taken, and the report says how
// queries seen before and new ones fare.
func TestBudgetsCountByTraffic(t *testing.T) {
	d := repeatedLog(1, 19)
	o := DefaultOptions()
	o.HeldOut = 0.2
	fitted, _ := maxsimOf(t, d, o)
	r := fitted.Report
	if !(math.Abs(r.RepeatShare-0.95) <= 0.01) || r.Seen == nil {
		t.Fatalf("%.3f of the traffic repeats, want 0.95; %+v", r.RepeatShare, r)
	}
	want := r.RepeatShare*r.Seen.Value + (1-r.RepeatShare)*r.Logged.Value
	if r.Seen.Value < 0.99 || r.Logged.Value > 0.9 || !(math.Abs(r.Traffic.Value-want) <= 1e-9) {
		t.Errorf("seen %.3f, new %.3f, traffic %.3f", r.Seen.Value, r.Logged.Value, r.Traffic.Value)
	}
	o.RepeatShare = 0
	alone, _ := maxsimOf(t, d, o)
	if alone.Report.Seen != nil || alone.Report.Traffic != alone.Report.Logged || alone.Report.MAvg >= r.MAvg {
		t.Errorf("for new queries alone %g vectors an item, for repeats %g", alone.Report.MAvg, r.MAvg)
	}
}

// An item that users of a frequent query chose a single time gets a vector at the query's own place if
// the budget permits, and ranks beside the item that the others chose. Such a budget is not taken.
func TestRareChoicesCountAsOftenAsMade(t *testing.T) {
	d := repeatedLog(1, 19)
	for q, items := range d.Relevant {
		d.Weights = append(d.Weights, []float32{float32(d.Asked[q])})
		if x := items[0]; q%2 == 0 && x > 0 {
			d.Relevant[q], d.Weights[q] = []int32{x - 1, x}, []float32{1, 19}
		}
	}
	fitted, _ := maxsimOf(t, d, DefaultOptions())
	largest := slices.MaxFunc(fitted.Report.Trials, func(a, b Trial) int { return a.Vectors - b.Vectors })
	if r := fitted.Report; r.Vectors >= largest.Vectors || largest.Seen.Value > r.Seen.Value-0.05 {
		t.Errorf("%d vectors find %.3f of what is asked again, %d vectors %.3f", r.Vectors, r.Seen.Value, largest.Vectors, largest.Seen.Value)
	}
}

// A held-out period stands for the traffic: its queries that were asked before count as seen before, each as often
// as it was asked.
func TestPeriodSaysHowMuchRepeats(t *testing.T) {
	d := repeatedLog(1, 1)
	n := d.Queries.Rows
	for q := range n {
		d.Times = append(d.Times, int64(q))
	}
	for q := range 150 { // the latest fifth: 90 queries again, 60 new ones
		at := n - 150 + q
		if q < 90 {
			copy(d.Queries.Row(at), d.Queries.Row(q))
			d.Relevant[at] = d.Relevant[q]
		}
	}
	for q := range d.Asked {
		if d.Asked[q] = 1; q >= n-150 && q < n-60 {
			d.Asked[q] = 2
		}
	}
	o := DefaultOptions()
	o.SplitBy, o.HeldOut, o.MAvg = fit.ByTime, 0.25, []float64{1, 10}
	fitted, _ := maxsimOf(t, d, o)
	if r := fitted.Report; !(math.Abs(r.RepeatShare-0.75) <= 1e-9) || r.Seen == nil || r.Seen.Queries != 90 || r.Logged.Queries != 60 {
		t.Errorf("%.3f repeats, want 0.750 of 90 and 60 queries: %+v", r.RepeatShare, r)
	}
}

// The other betas are tried with the chosen budget, and one is taken only if it is clearly better.
func TestBetaIsChosen(t *testing.T) {
	o := DefaultOptions()
	o.MAvg, o.Betas = []float64{0.5, 1, 3}, []float64{0.5, 0, 0.3, 1}
	fitted, _ := maxsimOf(t, repeatedLog(1, 19), o)
	r := fitted.Report
	if len(r.Trials) != 6 {
		t.Fatalf("%d trials of 3 budgets and 3 other betas", len(r.Trials))
	}
	chosen := slices.IndexFunc(r.Trials, func(t Trial) bool { return t.Chosen })
	for i, trial := range r.Trials[3:] {
		if trial.MAvg != r.MAvg || trial.Beta != o.Betas[i+1] || trial.Traffic.Value > r.Trials[chosen].Traffic.Value+0.05 {
			t.Errorf("trial %+v beside the chosen %+v", trial, r.Trials[chosen])
		}
	}
	if r.Beta != r.Trials[chosen].Beta {
		t.Errorf("the report has beta %g, the chosen trial %g", r.Beta, r.Trials[chosen].Beta)
	}
}

// The verdict has the form of every fit's: worth it, not worth it, or unclear with the number of queries that would
// tell. Without a gain the model has no behavioural vectors.
func TestMaxSimVerdict(t *testing.T) {
	near := elsewhere(400, 20, 8)
	for q, items := range near.Relevant { // the queries lie where their items are
		copy(near.Queries.Row(q), near.Items.Row(int(items[0])))
		near.Queries.Row(q)[0] += 0.01
	}
	o := DefaultOptions()
	fitted, _ := maxsimOf(t, elsewhere(400, 20, 8), o)
	if v := fitted.Report.Verdict; v.Answer != verdict.Yes || !strings.HasPrefix(fitted.Report.Recommendation, "Worth it: take "+v.Choose) || !strings.HasPrefix(v.Choose, fmt.Sprintf("%g vectors an item", fitted.Report.MAvg)) {
		t.Errorf("far from their items: %+v", v)
	}
	fitted, vectors := maxsimOf(t, near, o)
	if v := fitted.Report.Verdict; v.Answer == verdict.Yes || v.Choose != "the plain inner product" || fitted.Report.MAvg != 0 || len(vectors) != 0 {
		t.Errorf("where their items are: %+v, %d items with vectors", v, len(vectors))
	}
}

// For a log with one query an item, or hardly more, the fit warns before it begins that it will not pay.
func TestFlatLogsAreDoubted(t *testing.T) {
	for name, tc := range map[string]struct {
		queries, items int
		want           string
	}{
		"one query an item":  {120, 110, "will not pay"},
		"two queries":        {200, 90, "will hardly pay"},
		"many queries":       {400, 20, ""},
		"each item has some": {300, 60, ""},
	} {
		fitted, _ := maxsimOf(t, elsewhere(tc.queries, tc.items, 8), DefaultOptions())
		if got := strings.Join(fitted.Report.Warnings, "\n"); !strings.Contains(got, tc.want) || tc.want == "" && strings.Contains(got, "pay") {
			t.Errorf("%s: warned %q, want %q; %+v", name, got, tc.want, fitted.Report.Skew)
		}
	}
}

// Diversity is the side of the box around the unit vectors: large for queries on a circle, 0 for equal queries.
func TestDiversityIsTheSideOfTheBox(t *testing.T) {
	circle := rerank.Matrix{Rows: 4, Cols: 2, Data: []float32{3, 0, 0, 5, -1, 0, 0, -2}}
	if got := boxDiversity(circle, []int32{0, 1, 2, 3}); !(math.Abs(got-2) <= 1e-6) {
		t.Errorf("on a circle: %g, want 2", got)
	}
	if got := boxDiversity(circle, []int32{1, 1}); got > 1e-5 {
		t.Errorf("of equal queries: %g", got)
	}
}

// An update clusters the items of the new lines alone, and finds as much as a full fit.
func TestUpdateEqualsAFullFit(t *testing.T) {
	whole := repeatedLog(1, 3)
	old := whole
	old.Relevant = slices.Clone(whole.Relevant)
	touched := make([]bool, whole.Items.Rows)
	for q := 300; q < whole.Queries.Rows; q++ { // the later half of the queries of twelve items is new
		if x := whole.Relevant[q][0]; x%5 == 0 {
			old.Relevant[q], touched[x] = nil, true
		}
	}
	o := DefaultOptions()
	o.MAvg = []float64{3}
	fitted, before := maxsimOf(t, old, o)
	updated := map[int]rerank.Matrix{}
	previous := Previous{MAvg: fitted.Report.MAvg, Beta: fitted.Report.Beta, VectorsOf: func(item int) rerank.Matrix { return before[item] }}
	result, err := Update(t.Context(), whole, o, previous, touched, func(item int, v rerank.Matrix) error {
		updated[item] = rerank.Matrix{Rows: v.Rows, Cols: v.Cols, Data: slices.Clone(v.Data)}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for x := range touched {
		if same := slices.Equal(updated[x].Data, before[x].Data); same == touched[x] {
			t.Errorf("item %d: touched %v, its vectors are the same: %v", x, touched[x], same)
		}
	}
	o.Betas = []float64{fitted.Report.Beta}
	_, full := maxsimOf(t, whole, o)
	later := repeatedLog(2, 1)
	for name, queries := range map[string]fit.Data{"asked before": whole, "new": later} {
		a, b := meanReciprocalRank(queries, updated), meanReciprocalRank(queries, full)
		if !(math.Abs(a-b) <= 0.002) {
			t.Errorf("queries %s: an update finds %.4f, a full fit %.4f", name, a, b)
		}
	}
	if result.Report.UpdatedItems != 12 {
		t.Errorf("%d items updated, want 12", result.Report.UpdatedItems)
	}
}

// meanReciprocalRank is the MRR of a collection with these vectors.
func meanReciprocalRank(d fit.Data, vectors map[int]rerank.Matrix) float64 {
	best := func(q []float32, x int) float64 {
		most := kernel.Dot(q, d.Items.Row(x)) / float32(rerank.Norm(d.Items.Row(x)))
		for r := range vectors[x].Rows {
			most = max(most, kernel.Dot(q, vectors[x].Row(r)))
		}
		return float64(most)
	}
	var sum float64
	for q := range d.Queries.Rows {
		own, rank := best(d.Queries.Row(q), int(d.Relevant[q][0])), 1
		for x := range d.Items.Rows {
			if best(d.Queries.Row(q), x) > own {
				rank++
			}
		}
		sum += 1 / float64(rank)
	}
	return sum / float64(d.Queries.Rows)
}
