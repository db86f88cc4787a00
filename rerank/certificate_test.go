package rerank_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

var inf = float32(math.Inf(1))

// table6 is the worked example of the RAILS paper, appendix B.
type table6 struct {
	K               int
	DotProducts     map[string][]float32 `json:"dot_products"`
	Scores          map[string]float32
	Candidates      []string  `json:"first_stage_candidates"`
	KthScore        float32   `json:"S_K"`
	NextListScores  []float32 `json:"next_list_scores"`
	GapWithNext     float32   `json:"gap_bound_with_next"`
	GapWithLastRow  float32   `json:"gap_bound_with_last_row"`
	TrueGap         float32   `json:"true_gap"`
	Top             []string  `json:"top_2"`
	RangeSearchAdds []string  `json:"range_search_adds"`
}

func readTable6(t *testing.T) table6 {
	t.Helper()
	b, err := os.ReadFile("../testdata/golden/retrieval/table6.json")
	if err != nil {
		t.Fatal(err)
	}
	var w table6
	if err := json.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestCertifyTable6: two lists of two rows each. With the lists' last rows as
// thresholds, 0.8, the gap is 0.8 − 0.4 = 0.4; with the rows behind them, 0.7,
// it is 0.3, which is the truth: d scores 0.7.
func TestCertifyTable6(t *testing.T) {
	w := readTable6(t)
	evidence := func(upper float32) rerank.Evidence {
		return rerank.Evidence{K: w.K, Returned: w.K, KthScore: w.KthScore, Bound: rerank.Bound{Max: upper}, MaxScore: inf, ListsExact: true}
	}
	last := float32(0)
	for pair := range 2 {
		list := make([]float32, 0, len(w.DotProducts))
		for _, dots := range w.DotProducts {
			list = append(list, dots[pair])
		}
		slices.Sort(list)
		last = max(last, list[len(list)-w.K])
	}
	for _, c := range []struct {
		name       string
		upper, gap float32
	}{
		{"threshold of the last row", last, w.GapWithLastRow},
		{"threshold of the next row", slices.Max(w.NextListScores), w.GapWithNext},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := rerank.Certify(evidence(c.upper))
			if got.Status != rerank.StatusUnknown || !(math.Abs(float64(got.Gap-c.gap)) <= 1e-6) || got.Gap+1e-6 < w.TrueGap {
				t.Errorf("status %q, gap %v; want %q, %v, at least the true gap %v", got.Status, got.Gap, rerank.StatusUnknown, c.gap, w.TrueGap)
			}
		})
	}
	// The second pass adds d, every item above S_K, so nothing unseen exceeds it.
	e := evidence(w.KthScore)
	e.KthScore = w.Scores[w.Top[1]]
	if got := rerank.Certify(e); got.Status != rerank.StatusExact || got.Proof != rerank.ProofBound || got.Gap != 0 {
		t.Errorf("after the second pass: %+v, want exact by the bound", got)
	}
}

// TestCertifyMeasured: a scan that rests on a measured error is calibrated and names it, and its
// gap does not use it. A bound that closes needs no measurement.
func TestCertifyMeasured(t *testing.T) {
	by := &rerank.Measured{Pairs: 1000, Error: 0.1}
	e := rerank.Evidence{K: 2, Returned: 2, KthScore: 5, MaxScore: 20, Scanned: true, Measured: by, Bound: rerank.Bound{Epsilon: 0.5}}
	if c := rerank.Certify(e); c.Status != rerank.StatusCalibrated || c.Measured != by || c.Gap != 16 || c.Proof != rerank.ProofNone {
		t.Errorf("%+v, want calibrated, with a gap of 16", c)
	}
	e.KthScore = 20
	if c := rerank.Certify(e); c.Status != rerank.StatusExact || c.Measured != nil || c.Proof != rerank.ProofBound {
		t.Errorf("%+v, want exact by the bound", c)
	}
	e.KthScore, e.Bound.Epsilon = 5, inf
	if c := rerank.Certify(e); c.Status != rerank.StatusUnknown || c.Measured != nil {
		t.Errorf("%+v, want unknown", c)
	}
	e.Bound.Epsilon, e.Scanned = 0.5, false
	if c := rerank.Certify(e); c.Status != rerank.StatusUnknown || c.Measured != nil {
		t.Errorf("%+v of no scan, want unknown", c)
	}
}

func TestCertify(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		in     rerank.Evidence
		status rerank.Status
		proof  rerank.Proof
		gap    float32
	}{
		{"scan", rerank.Evidence{K: 2, Returned: 2, KthScore: 1, MaxScore: inf, Scanned: true, Bound: rerank.Bound{Max: inf, Epsilon: .1}}, rerank.StatusExact, rerank.ProofScan, 0},
		{"scan of fewer than K", rerank.Evidence{K: 9, Returned: 2, MaxScore: inf, Scanned: true}, rerank.StatusExact, rerank.ProofScan, 0},
		{"exhausted", rerank.Evidence{K: 9, Returned: 2, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: -inf}}, rerank.StatusExact, rerank.ProofExhausted, 0},
		{"inner product", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, ListsExact: true, SingleInnerProduct: true, Bound: rerank.Bound{Max: .5, Epsilon: .125}}, rerank.StatusExact, rerank.ProofInnerProduct, 0},
		{"threshold just closes", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: 1, Epsilon: .125}}, rerank.StatusExact, rerank.ProofBound, .25},
		{"threshold just does not", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: 1.5, Epsilon: .125}}, rerank.StatusUnknown, rerank.ProofNone, .75},
		{"threshold is above by less than the rounding", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: 1.125, Epsilon: .125}}, rerank.StatusUnknown, rerank.ProofNone, .375},
		{"epsilon negative", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: 20, Scanned: true, Measured: &rerank.Measured{Pairs: 9}, Bound: rerank.Bound{Epsilon: -1}}, rerank.StatusUnknown, rerank.ProofNone, 17},
		{"inexact list of an inner product, nothing scores more", rerank.Evidence{K: 1, Returned: 1, KthScore: 20, MaxScore: 20, SingleInnerProduct: true}, rerank.StatusExact, rerank.ProofBound, 0},
		{"inexact lists", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: 20, SingleInnerProduct: true, Bound: rerank.Bound{Max: .5}}, rerank.StatusUnknown, rerank.ProofNone, 19},
		{"inexact lists, nothing scores more", rerank.Evidence{K: 1, Returned: 1, KthScore: 20, MaxScore: 20}, rerank.StatusExact, rerank.ProofBound, 0},
		{"too few rows", rerank.Evidence{K: 2, Returned: 1, KthScore: 1, MaxScore: 20, ListsExact: true, Bound: rerank.Bound{Max: 0}}, rerank.StatusUnknown, rerank.ProofNone, inf},
		{"no bound", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: inf}}, rerank.StatusUnknown, rerank.ProofNone, inf},
		{"K-th score not a number", rerank.Evidence{K: 1, Returned: 1, KthScore: nan, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: 0}}, rerank.StatusUnknown, rerank.ProofNone, inf},
		{"bound not a number", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: nan, ListsExact: true, Bound: rerank.Bound{Max: nan}}, rerank.StatusUnknown, rerank.ProofNone, inf},
		{"epsilon infinite", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, ListsExact: true, Bound: rerank.Bound{Max: 0, Epsilon: inf}}, rerank.StatusUnknown, rerank.ProofNone, inf},
		{"epsilon not a number", rerank.Evidence{K: 1, Returned: 1, KthScore: 1, MaxScore: inf, Scanned: true, Bound: rerank.Bound{Epsilon: nan}}, rerank.StatusUnknown, rerank.ProofNone, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := rerank.Certify(c.in)
			if got.Status != c.status || got.Proof != c.proof || got.Gap != c.gap {
				t.Errorf("%q by %q with gap %v; want %q by %q with gap %v", got.Status, got.Proof, got.Gap, c.status, c.proof, c.gap)
			}
		})
	}
}

// TestOrdered: an answer is ordered if rounding decided neither its rows nor their order.
func TestOrdered(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, c := range map[string]struct {
		change func(*rerank.Evidence)
		want   bool
	}{
		"scores far apart":              {func(*rerank.Evidence) {}, true},
		"two hits within both errors":   {func(e *rerank.Evidence) { e.Closest = 0.5 }, false},
		"a scored item may be above":    {func(e *rerank.Evidence) { e.Outside = 3.75 }, false},
		"an unseen item may be above":   {func(e *rerank.Evidence) { e.Bound.Max, e.Bound.Lists = 3.5, 0.25 }, false},
		"an unseen item is below":       {func(e *rerank.Evidence) { e.Bound.Max, e.Bound.Lists = 3.5, 0.125 }, true},
		"every item was scored":         {func(e *rerank.Evidence) { e.Scanned, e.ListsExact, e.Bound.Max = true, false, inf }, true},
		"fewer than K, all that exist":  {func(e *rerank.Evidence) { e.Returned, e.Scanned = 2, true }, true},
		"approximate lists":             {func(e *rerank.Evidence) { e.ListsExact = false }, false},
		"nothing is known of distances": {func(e *rerank.Evidence) { e.Closest, e.HitError = 0, 0 }, false},
		"not a number":                  {func(e *rerank.Evidence) { e.HitError = float32(math.NaN()) }, false},
	} {
		e := rerank.Evidence{
			K: 3, Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 1, Epsilon: 0.5, Lists: 0.25}, MaxScore: inf, ListsExact: true,
			HitError: 0.25, Closest: 1, Outside: 3,
		}
		if c.change(&e); rerank.Certify(e).Ordered != c.want {
			t.Errorf("%s: ordered %t, want %t: %+v", name, !c.want, c.want, rerank.Certify(e))
		}
	}
}
