package eval

import (
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

func queriesOf(users []int64, vectors ...[]float32) (all []rerank.Query) {
	for i, v := range vectors {
		all = append(all, rerank.Query{Vector: v, UserID: users[i], HasUserID: true})
	}
	return all
}

// TestDraws: a bootstrap sample draws as many clusters as there are, each with equal probability. The seed and
// the sample's number determine it.
func TestDraws(t *testing.T) {
	queries := queriesOf([]int64{1, 1, 2, 1}, []float32{1, 2}, []float32{1, 2}, []float32{1, 2}, []float32{1, 3})
	s := newSampler(queries, &Input{Resamples: 4000, Confidence: 0.9, Seed: 7})
	if !slices.Equal(s.cluster, []int{0, 0, 1, 2}) || s.clusters != 3 {
		t.Fatalf("queries of two users and two vectors are in clusters %v", s.cluster)
	}
	alone := series{values: []float64{1, 1, 0, 0}}
	last := series{values: []float64{0, 0, 0, 1}}
	some := series{values: []float64{5, 1, 0, 0}, members: []bool{false, true, true, false}}
	means, err := s.resample(t.Context(), []series{alone, last, some})
	if err != nil {
		t.Fatal(err)
	}
	// The mean of three draws of clusters with sums and counts (2, 2), (0, 1) and (0, 1).
	share := func(m []float64, is func(x float64) bool) float64 {
		n := 0.
		for _, x := range m {
			if is(x) {
				n++
			}
		}
		return n / float64(len(m))
	}
	for name, c := range map[string]struct{ got, want float64 }{
		"the first cluster alone":      {share(means[0], func(x float64) bool { return x == 1 }), 1. / 27},
		"without the first":            {share(means[0], func(x float64) bool { return x == 0 }), 8. / 27},
		"the last cluster alone":       {share(means[1], func(x float64) bool { return x == 1 }), 1. / 27},
		"without the last":             {share(means[1], func(x float64) bool { return x == 0 }), 8. / 27},
		"no member of the third":       {share(means[2], math.IsNaN), 1. / 27},
		"the second query of two":      {share(means[2], func(x float64) bool { return x == 1 }), (8. - 1) / 27},
		"both members, of equal count": {share(means[2], func(x float64) bool { return x == 0.5 }), 6. / 27},
	} {
		if !(math.Abs(c.got-c.want) <= 0.025) {
			t.Errorf("%s: in %.3f of the samples, want %.3f", name, c.got, c.want)
		}
	}
	again, _ := s.resample(t.Context(), []series{alone})
	s.seed++
	other, _ := s.resample(t.Context(), []series{alone})
	if !slices.Equal(again[0], means[0]) || slices.Equal(other[0], means[0]) {
		t.Error("samples do not depend on the seed, or on something else")
	}
}

// TestPercentiles: an interval covers the middle share of the draws that the confidence names; NaNs are left
// out.
func TestPercentiles(t *testing.T) {
	var draws []float64
	for i := range 101 {
		draws = append(draws, float64(100-i), math.NaN())
	}
	for confidence, want := range map[float64]Interval{0.9: {5, 95}, 0.95: {2.5, 97.5}, 0.5: {25, 75}} {
		got := (&sampler{confidence: confidence}).percentileInterval(draws)
		if !(math.Abs(got.Low-want.Low) <= 1e-9) || !(math.Abs(got.High-want.High) <= 1e-9) {
			t.Errorf("%v of 0 to 100 is %+v, want %+v", confidence, got, want)
		}
	}
	if got := (&sampler{confidence: 0.9}).percentileInterval([]float64{math.NaN()}); got != (Interval{}) {
		t.Errorf("of no draw: %+v", got)
	}
}

// TestSharesOfADifference: a paired difference has the shares of queries that win, tie and lose, and the share
// of samples above 0.
func TestSharesOfADifference(t *testing.T) {
	s := &sampler{confidence: 0.5}
	d := series{values: subtract([]float64{3, 1, 2, 9}, []float64{1, 2, 2, 0}), members: []bool{true, true, true, false}}
	got := s.summarisePaired(d, []float64{-1, 0, 0, 1})
	want := Paired{Difference: 1. / 3, Interval: Interval{-0.25, 0.25}, Positive: 0.25, Wins: 1. / 3, Ties: 1. / 3, Losses: 1. / 3}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := s.summarisePaired(series{values: d.values}, []float64{1}); got.Wins != 0.5 || got.Difference != (2.-1+0+9)/4 {
		t.Errorf("of all queries: %+v", got)
	}
	for share, want := range map[float64]string{1: "all of 100 resamples", 0.996: "all of", 0.99: "99.0 % of", 0.5: "50.0 % of", 0.01: "1.0 % of", 0.004: "none of", 0: "none of"} {
		if got := formatShare(share, 100); !strings.HasPrefix(got, want) {
			t.Errorf("a share of %v is %q, want %q", share, got, want)
		}
	}
}

// TestRankItems: the rank of the best relevant item counts ties before it, and the margin is
// to the best item that is not relevant.
func TestRankItems(t *testing.T) {
	ids := make([]rerank.ID, 6)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	tb, err := table.FromMemory(table.Meta{Model: "m", ModelVersion: "v", Kind: "dot", Collection: "c"}, ids, rerank.NewMatrix(6, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		scores   []float32
		relevant []int32
		seen     []int32
		rank     int
		item     int
		margin   float64
	}{
		"first":               {[]float32{1, 9, 2, 3, 4, 5}, []int32{1}, nil, 1, 1, 4},
		"a tie before it":     {[]float32{1, 9, 9, 3, 4, 5}, []int32{2}, nil, 2, 2, 0},
		"a tie behind it":     {[]float32{1, 9, 9, 3, 4, 5}, []int32{1}, nil, 1, 1, 0},
		"the better of two":   {[]float32{1, 9, 2, 3, 4, 5}, []int32{2, 4}, nil, 3, 4, -5},
		"the last":            {[]float32{1, 9, 2, 3, 4, 5}, []int32{0}, nil, 6, 0, -8},
		"relevant ones count": {[]float32{8, 9, 2, 3, 4, 5}, []int32{0, 1}, nil, 1, 1, 4},
		"seen ones do not":    {[]float32{1, 9, 2, 3, 4, 5}, []int32{2, 3}, []int32{1, 4, 5}, 1, 3, 2},
	} {
		top, best := rankItems(tb, c.scores, c.relevant, c.seen, 3)
		if best.rank != c.rank || best.item != c.item || best.margin != c.margin || len(top) != 3 {
			t.Errorf("%s: item %d at rank %d with margin %v, of %d rows; want item %d at %d with %v", name, best.item, best.rank, best.margin, len(top), c.item, c.rank, c.margin)
		}
	}
}

// TestRegressionsNameTheirQuery: a regression has the row and the id of its query, also if only every other
// query is evaluated.
func TestRegressionsNameTheirQuery(t *testing.T) {
	ids := []rerank.ID{rerank.TextID("a"), rerank.TextID("b"), rerank.TextID("c")}
	tb, err := table.FromMemory(table.Meta{Model: "m", ModelVersion: "v", Kind: "dot", Collection: "c"}, ids, rerank.NewMatrix(3, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{QueryIDs: []rerank.ID{rerank.TextID("q0"), rerank.TextID("q1"), rerank.TextID("q2"), rerank.TextID("q3"), rerank.TextID("q4")}}
	top := Ranking{{ID: ids[2], Index: 2}}
	before := &exactScan{placed: []bestRelevant{{item: 0, rank: 2}, {item: 1, rank: 1}, {item: 2, rank: 3}}, rankings: []Ranking{top, top, top}}
	after := &exactScan{placed: []bestRelevant{{item: 0, rank: 4, margin: -2}, {item: 1, rank: 2, margin: math.Inf(-1)}, {item: 2, rank: 1}}, rankings: []Ranking{top, top, top}}
	got := in.findRegressions(tb, []int{0, 2, 4}, before, after)
	if len(got) != 2 || got[0].Query != 2 || *got[0].QueryID != in.QueryIDs[2] || got[0].Item != ids[1] || got[0].Margin != 0 || got[1].Query != 0 || *got[1].QueryID != in.QueryIDs[0] ||
		got[1].RankBefore != 2 || got[1].RankAfter != 4 || got[1].Margin != -2 || got[1].Instead != ids[2] {
		t.Errorf("regressions %+v, want queries 2 and 0, the worst first", got)
	}
}

// TestTheWorstRegressions: a report names no more than maxRegressions queries, those that lose most.
func TestTheWorstRegressions(t *testing.T) {
	tb, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1)}, rerank.NewMatrix(1, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	before, after := &exactScan{}, &exactScan{}
	rows := make([]int, maxRegressions+5)
	for i := range rows {
		rows[i] = i
		before.placed = append(before.placed, bestRelevant{rank: 1})
		after.placed, after.rankings = append(after.placed, bestRelevant{rank: 2 + i}), append(after.rankings, Ranking{{}})
	}
	got := (&Input{}).findRegressions(tb, rows, before, after)
	if len(got) != maxRegressions || got[0].Query != len(rows)-1 || got[maxRegressions-1].Query != 5 {
		t.Errorf("%d regressions, %+v; want the %d worst", len(got), got, maxRegressions)
	}
}

// TestRegressionsThatLoseAsMuch: of queries that lose the same, the one that is worst off now comes first.
func TestRegressionsThatLoseAsMuch(t *testing.T) {
	tb, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1)}, rerank.NewMatrix(1, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	before, after := &exactScan{placed: []bestRelevant{{rank: 2}, {rank: 3}}}, &exactScan{placed: []bestRelevant{{rank: 4}, {rank: 12}}, rankings: []Ranking{{{}}, {{}}}}
	if got := (&Input{}).findRegressions(tb, []int{0, 1}, before, after); len(got) != 2 || got[0].RankAfter != 12 || got[1].RankAfter != 4 {
		t.Errorf("1/2 − 1/4 and 1/3 − 1/12 come as %+v", got)
	}
}

// TestCopiesAreLeftOut: beside the items that were seen, and with the weights of the other pairs. The caller's pairs and seen
// items stay.
func TestCopiesAreLeftOut(t *testing.T) {
	relevant, weights, seen := [][]int32{{0, 1}, {2}}, [][]float32{{5, 7}, {3}}, [][]int32{{2}, {1}}
	given, err := NewWeightedPairs(relevant, weights)
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{
		Items: rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 1, 1}}, Queries: rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{2, 0, 1, -1}},
		Pairs: given, Seen: seen,
	}
	counts := Counts{Queries: 2, Pairs: 3}
	if _, err := in.leaveOut([]int{0, 1}, &counts); err != nil || counts.Copies != 1 || counts.Pairs != 2 {
		t.Fatalf("%+v, %v; want one copy, and two pairs left", counts, err)
	}
	if got := in.Pairs; !reflect.DeepEqual(got.relevant, [][]int32{{1}, {2}}) || !reflect.DeepEqual(got.weights, [][]float32{{7}, {3}}) || !reflect.DeepEqual(in.Seen, [][]int32{{0, 2}, {1}}) {
		t.Errorf("the pairs are %+v, the seen items %v", got, in.Seen)
	}
	if !reflect.DeepEqual(relevant, [][]int32{{0, 1}, {2}}) || !reflect.DeepEqual(weights, [][]float32{{5, 7}, {3}}) || !reflect.DeepEqual(seen, [][]int32{{2}, {1}}) {
		t.Errorf("the caller's pairs became %v of weights %v, seen %v", relevant, weights, seen)
	}
}

// TestTraffic: a part of the traffic has the figures of its own queries, each as often as it was asked. By
// traffic, so have the verdict and the segments of a report.
func TestTraffic(t *testing.T) {
	in := &Input{
		K: 10, Model: route.Model{Similarity: described{}}, Queries: rerank.NewMatrix(4, 1), Items: rerank.NewMatrix(3, 1), Pairs: NewPairs([][]int32{{0}, {1}, {1}, {2}}),
		Asked: []float64{7, 3, 1, 1}, SeenBefore: []bool{true, false, true, false}, ByTraffic: true,
	}
	rows := []int{0, 1, 3}
	j := newJudge(in, rows)
	if !slices.Equal(j.sampler.weights, []float64{7, 3, 1}) {
		t.Errorf("the queries count %v in means, want as often as they were asked", j.sampler.weights)
	}
	if got := j.sampler.meansOf(map[string][]float64{"m": {1, 0.5, 0}})["m"]; got != 8.5/11 {
		t.Errorf("the mean is %v, want that of the traffic", got)
	}
	got := j.measureTraffic(map[string][]float64{"m": {1, 0.5, 0}}, nil)
	want := []Traffic{
		{"all", 1, 3, Metrics{"m": 8.5 / 11}, nil}, {segmentSeen, 7. / 11, 1, Metrics{"m": 1}, nil}, {segmentNew, 4. / 11, 2, Metrics{"m": 1.5 / 4}, nil},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the traffic is %+v, want %+v", got, want)
	}
	parts := in.divideSeen(rows)
	if len(parts) != 2 || !slices.Equal(parts[0].members, []bool{true, false, false}) || parts[0].Items != 1 || !slices.Equal(parts[1].members, []bool{false, true, true}) || parts[1].Items != 2 {
		t.Errorf("the parts are %+v", parts)
	}
	if parts = in.divideSeen([]int{0, 2}); len(parts) != 1 || parts[0].Name != segmentSeen {
		t.Errorf("a part without queries is reported: %+v", parts)
	}
	in.ByTraffic, in.Asked = false, nil
	if j = newJudge(in, rows); j.sampler.weights != nil {
		t.Errorf("the queries count %v where each is to count once", j.sampler.weights)
	}
	if got = j.measureTraffic(map[string][]float64{"m": {1, 0.5, 0}}, nil); got[0].Metrics["m"] != 0.5 {
		t.Errorf("queries that were asked once: %+v", got)
	}
}

// TestSampledScores: a sample tells the scores of relevant items from all others.
func TestSampledScores(t *testing.T) {
	got := sampleScores([]float32{1, 2, 3, 4}, []int32{1, 3})
	if !slices.Equal(got.relevant, []float32{2, 4}) || !slices.Equal(got.others, []float32{1, 3}) {
		t.Errorf("relevant are %v, the others %v", got.relevant, got.others)
	}
	many := make([]float32, 3*sampledScores)
	if got := sampleScores(many, []int32{0}); len(got.others) != sampledScores-1 {
		t.Errorf("%d scores are sampled of %d", len(got.others), len(many))
	}
}

// TestAnUnknownItem: an answer with an item that the models did not rank has no metrics.
func TestAnUnknownItem(t *testing.T) {
	tb, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1)}, rerank.NewMatrix(1, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &trialRunner{table: tb, rows: []int{7}}
	_, err = b.summariseAnswers(t.Context(), []search.Answer{{Hits: []search.Hit{{ID: rerank.UintID(2)}}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "query row 7: the answer has the unknown item 2") {
		t.Errorf("%v", err)
	}
}

// TestHistogram: every score is in a bin, the greatest in the last.
func TestHistogram(t *testing.T) {
	inf := float32(math.Inf(1))
	h := newHistogram([]scoreSample{{relevant: []float32{0, 32}, others: []float32{15.5, float32(math.NaN()), inf}}, {}, {others: []float32{31.5, -inf}}})
	if h.From != 0 || h.To != 32 || h.Queries != 1 || h.Relevant[0] != 0.5 || h.Relevant[31] != 0.5 || h.Others[15] != 0.5 || h.Others[31] != 0.5 {
		t.Errorf("%+v", h)
	}
	if h := newHistogram([]scoreSample{{relevant: []float32{3, inf}, others: []float32{3}}}); h != nil {
		t.Errorf("one score has the histogram %+v", h)
	}
	g := &GateUsage{PairsQuery: 2, PairsItem: 3, Mean: make([]float64, 6)}
	g.addTerms([]rerank.Term{{QueryComponent: 1, ItemComponent: 2, Gate: 0.75}, {QueryComponent: 0, ItemComponent: 1, Gate: 0.25}})
	if g.Mean[5] != 0.75 || g.Mean[1] != 0.25 || g.Largest != 0.75 {
		t.Errorf("gates %+v", g)
	}
	g.addTerms([]rerank.Term{{QueryComponent: 1, ItemComponent: 2, Gate: 0.25}, {QueryComponent: 0, ItemComponent: 0, Gate: 0.75}})
	if g.average(2); !(math.Abs(g.Entropy-(0.5*math.Log(2)+0.375*math.Log(1/0.375)+0.125*math.Log(8))) <= 1e-9) || g.Largest != 0.75 || g.Mean[5] != 0.5 {
		t.Errorf("gates of two scores: %+v", g)
	}
}

// TestThirds divides items into head, torso and tail by weight. A query belongs to the segment that
// has most of its weight, and in a tie to the less popular one.
func TestThirds(t *testing.T) {
	if head, torso := popularityThirds([]float64{1, 1, 4, 2, 1}); head != 4 || torso != 2 {
		t.Errorf("the head begins at %v and the torso at %v, want 4 and 2", head, torso)
	}
	pairs, err := NewWeightedPairs([][]int32{{0}, {1}, {2}, {0, 1}, {0, 2}}, [][]float32{{8}, {4}, {1}, {1, 1}, {3, 1}})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{Pairs: pairs, Items: rerank.NewMatrix(4, 1)} // weights 12, 5 and 2; of 19 a third is 6.3
	rows := []int{0, 1, 2, 3, 4}
	got := in.divideQueries(rows)
	want := map[string][]bool{"head": {true, false, false, false, true}, "torso": {false, true, false, true, false}, "tail": {false, false, true, false, false}}
	for _, s := range got {
		if !slices.Equal(s.members, want[s.Name]) {
			t.Errorf("%s from %v below %v has the queries %v, want %v", s.Name, s.From, s.Below, s.members, want[s.Name])
		}
	}
	in.Popularity = []float64{9, 0, 0.25, 0}
	got = in.divideQueries(rows)
	want = map[string][]bool{"warm": {true, false, true, false, true}, "cold": {false, true, false, true, false}}
	for _, s := range got {
		if w, ok := want[s.Name]; ok && !slices.Equal(s.members, w) {
			t.Errorf("%s from %v below %v has the queries %v, want %v", s.Name, s.From, s.Below, s.members, w)
		}
		if items := map[string]int{"warm": 2, "cold": 2}[s.Name]; items > 0 && s.Items != items {
			t.Errorf("%s has %d items, want %d", s.Name, s.Items, items)
		}
	}
}

// TestDecisions: the report has the verdict's decision on its own figures, and warnings where
// the chosen model loses. The rules themselves are tested in learn/verdict.
func TestDecisions(t *testing.T) {
	const metric = "mrr@10"
	interval := func(mean, half float64) Paired {
		return Paired{Difference: mean, Interval: Interval{mean - half, mean + half}, Positive: 0.9}
	}
	model := func(name string, class Class, parameters int, gain, toBest Paired) ModelReport {
		return ModelReport{Model: Model{Name: name}, Class: class, Parameters: parameters, Metrics: Metrics{metric: 0.4 + gain.Difference}, Gains: map[string]Paired{metric: gain}, ToBest: &toBest}
	}
	best := func(name string, class Class, parameters int, gain Paired) ModelReport {
		m := model(name, class, parameters, gain, Paired{})
		m.ToBest = nil
		return m
	}
	better, close, far := interval(0.1, 0.05), interval(-0.001, 0.008), interval(-0.02, 0.008)
	for name, c := range map[string]struct {
		models []ModelReport
		answer verdict.Answer
		choose string
	}{
		"the simplest as good":           {[]ModelReport{best("mol", ClassMoL, 9, better), model("diagonal", ClassDiagonal, 4, interval(0.09, 0.05), close)}, "yes", "diagonal"},
		"a simpler one that is worse":    {[]ModelReport{best("mol", ClassMoL, 9, better), model("diagonal", ClassDiagonal, 4, interval(0.08, 0.05), far)}, "yes", "mol"},
		"a simpler one, perhaps as good": {[]ModelReport{best("mol", ClassMoL, 9, better), model("diagonal", ClassDiagonal, 4, interval(0.09, 0.05), interval(-0.001, 0.02))}, "yes", "mol"},
		"of two alike the smaller":       {[]ModelReport{best("large", ClassMoL, 9, better), model("small", ClassMoL, 4, interval(0.09, 0.05), close)}, "yes", "small"},
		"a low rank of fewer numbers":    {[]ModelReport{best("full", ClassBilinear, 16384, better), model("r32", ClassLowRank, 8192, interval(0.09, 0.05), close)}, "yes", "r32"},
		"a low rank of more numbers":     {[]ModelReport{best("full", ClassBilinear, 16384, better), model("r103", ClassLowRank, 26368, interval(0.09, 0.05), close)}, "yes", "full"},
		"a full matrix of fewer numbers": {[]ModelReport{best("r103", ClassLowRank, 26368, better), model("full", ClassBilinear, 16384, interval(0.09, 0.05), close)}, "yes", "full"},
		"none that is shown":             {[]ModelReport{best("mol", ClassMoL, 9, interval(0.1, 0.15))}, "unclear", "cosine"},
		"one that loses":                 {[]ModelReport{best("mol", ClassMoL, 9, interval(-0.1, 0.05))}, "no", "cosine"},
	} {
		r := &Report{
			Baseline: Metrics{metric: 0.4}, BaselineName: "cosine", Models: c.models, Counts: Counts{Queries: 100},
			Method: Method{Metric: metric, Confidence: 0.95, Resamples: 100, Margin: 0.1},
		}
		v := r.decide()
		if v.Answer != c.answer || v.Choose != c.choose {
			t.Errorf("%s: %+v, want %s, %s", name, v, c.answer, c.choose)
		}
		if text := strings.Join(v.Text, " "); !strings.Contains(text, "better in 90.0 % of 100 resamples") {
			t.Errorf("%s: %q does not say in how many resamples the model is better", name, text)
		}
		for _, m := range r.Models {
			if m.AsGood != slices.Contains(v.AsGood, m.Name) || (m.Standing == verdict.Unknown) != slices.Contains(v.Unknown, m.Name) {
				t.Errorf("%s: model %s stands as %s, as good %t; %+v", name, m.Name, m.Standing, m.AsGood, v)
			}
		}
	}
	base := 0.5
	lost := func(name string, g Paired) Segment { return Segment{Name: name, Baseline: &base, Gain: &g} }
	for name, c := range map[string]struct {
		m    ModelReport
		want string
	}{
		"a tail that loses":     {ModelReport{Segments: []Segment{lost("tail", Paired{Difference: -0.1, Interval: Interval{-0.2, -0.05}})}}, "tail items lose"},
		"a tail that may lose":  {ModelReport{Segments: []Segment{lost("tail", Paired{Difference: -0.1, Interval: Interval{-0.2, 0.05}})}}, ""},
		"cold items that may":   {ModelReport{Segments: []Segment{lost("cold", Paired{Difference: -0.1, Interval: Interval{-0.2, 0.05}})}}, "cold items may lose"},
		"cold items that gain":  {ModelReport{Segments: []Segment{lost("cold", Paired{Difference: 0.1, Interval: Interval{-0.2, 0.25}})}}, ""},
		"a first stage too low": {ModelReport{Strategies: Strategies{{FirstStageRecall: 0.9}, {FirstStageRecall: 0.94}}}, "finds more than 94.0 %"},
		"one that finds enough": {ModelReport{Strategies: Strategies{{FirstStageRecall: 0.95}, {FirstStageRecall: 0.5}}}, ""},
	} {
		got := strings.Join((&Report{Method: Method{Metric: metric}}).listWarnings(&c.m), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: warnings %q, want %q", name, got, c.want)
		}
	}
}

// TestQuickestStrategy: of the strategies that find about as much as the best, the quickest is taken.
func TestQuickestStrategy(t *testing.T) {
	s := Strategies{
		{Name: "scan", FirstStageRecall: 1, P50: 4},
		{Name: "companion:500", FirstStageRecall: 0.997, P50: 2},
		{Name: "companion:200", FirstStageRecall: 0.988, P50: 1},
	}
	if got := s.Quickest().Name; got != "companion:500" {
		t.Errorf("took %s", got)
	}
	if got := s[1:].Quickest().Name; got != "companion:200" {
		t.Errorf("without the scan: took %s", got)
	}
	if Strategies(nil).Quickest() != nil {
		t.Error("a strategy of none")
	}
}

// TestOverlap: the overlap is the share of the K best rows that are among the first K found. It is 1 if there
// is nothing to find.
func TestOverlap(t *testing.T) {
	rows := func(numbers ...uint64) (r Ranking) {
		for _, n := range numbers {
			r = append(r, rerank.Scored{ID: rerank.UintID(n)})
		}
		return r
	}
	for name, c := range map[string]struct {
		got, want Ranking
		k         int
		share     float64
	}{
		"all":                   {rows(3, 2, 1), rows(1, 2, 3), 3, 1},
		"what was wanted":       {rows(1, 9), rows(1, 2, 3, 4), 4, 0.25},
		"not behind K":          {rows(9, 8, 1), rows(1, 2), 2, 0},
		"nothing wanted behind": {rows(3, 4), rows(1, 2, 3, 4), 2, 0},
		"nothing to find":       {rows(1), nil, 2, 1},
	} {
		if got := MeanOverlap([]Ranking{c.got}, []Ranking{c.want}, c.k); got != c.share {
			t.Errorf("%s: %v, want %v", name, got, c.share)
		}
	}
}

// described is a similarity that has a specification and feature rows, and scores nothing.
type described struct {
	rerank.Similarity
	spec rerank.Spec
}

func (d described) Spec() rerank.Spec { return d.spec }

func (described) EncodeItems(dst, items rerank.Matrix) error {
	copy(dst.Data, items.Data)
	return nil
}

// TestQueriesOfRows: a query has the vector and the user of its own row, also if some rows are left out. A model
// with user-id embeddings needs users.
func TestQueriesOfRows(t *testing.T) {
	in := Input{Queries: rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 2, 3}}, UserIDs: []int64{7, 8, 9}, Items: rerank.NewMatrix(2, 1), K: 1, Confidence: 0.9, Resamples: 1}
	got := in.queries([]int{0, 2}, rerank.Spec{})
	if len(got) != 2 || got[1].Vector[0] != 3 || got[1].UserID != 9 || !got[1].HasUserID {
		t.Errorf("queries 0 and 2 are %+v", got)
	}
	in.Model.Similarity = described{spec: rerank.Spec{QueryDim: 1, ItemDim: 1, UserIDs: true}}
	if err := in.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(in *Input){
		"no users":             func(in *Input) { in.UserIDs = nil },
		"fewer users":          func(in *Input) { in.UserIDs = in.UserIDs[1:] },
		"other queries":        func(in *Input) { in.Queries.Cols = 2 },
		"other items":          func(in *Input) { in.Items.Cols = 2 },
		"no K":                 func(in *Input) { in.K = 0 },
		"confidence 1":         func(in *Input) { in.Confidence = 1 },
		"no resamples":         func(in *Input) { in.Resamples = 0 },
		"another popularity":   func(in *Input) { in.Popularity = make([]float64, 3) },
		"other ids":            func(in *Input) { in.ItemIDs = make([]rerank.ID, 3) },
		"other ids of queries": func(in *Input) { in.QueryIDs = make([]rerank.ID, 2) },
	} {
		other := in
		if change(&other); !errors.Is(other.check(), ErrInput) {
			t.Errorf("%s: %v", name, other.check())
		}
	}
}

// TestFeatures: every item has its feature row, the last one included, followed by those of its behavioural
// vectors.
func TestFeatures(t *testing.T) {
	m := route.Model{Name: "m", Similarity: described{spec: rerank.Spec{Features: 1, Kind: rerank.KindMaxSim}}}
	items := rerank.NewMatrix(blockRows+1, 1)
	for i := range items.Data {
		items.Data[i] = float32(i + 1)
	}
	tb, err := Input{Items: items}.features(t.Context(), m, nil)
	if err != nil || tb.Len() != items.Rows || tb.Features().Row(blockRows)[0] != blockRows+1 {
		t.Fatalf("%v: %d rows, the last is %v", err, tb.Len(), tb.Features().Row(blockRows))
	}
	name := filepath.Join(t.TempDir(), "vectors")
	w, err := maxsim.CreateVectors(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(rerank.UintID(1), rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{70, 80}}); err != nil {
		t.Fatal(err)
	}
	digest, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	v, err := maxsim.OpenVectors(name, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	tb, err = Input{Items: items.Slice(0, 3)}.features(t.Context(), m, v)
	if err != nil || !slices.Equal(tb.Features().Data, []float32{1, 2, 70, 80, 3}) {
		t.Errorf("%v: with the vectors of item 1 the rows are %v", err, tb.Features().Data)
	}
}

// judging returns an evaluation of four queries in two segments, with these values of the baseline.
func judging(baseline ...float64) *measureModel {
	queries := queriesOf([]int64{1, 2, 3, 4}, []float32{1}, []float32{1}, []float32{1}, []float32{1})
	return &measureModel{
		in: &Input{K: 10}, sampler: newSampler(queries, &Input{Resamples: 500, Confidence: 0.9, Seed: 1}), report: &Report{Method: Method{Metric: "mrr@10", Confidence: 0.9, Margin: 0.1}},
		segments:     []Segment{{Name: "head", members: []bool{true, true, false, false}}, {Name: "tail", members: []bool{false, false, true, true}}},
		baselineScan: &exactScan{values: map[string][]float64{"mrr@10": baseline}},
	}
}

// TestASegmentHasItsOwnFigures: the metrics of a segment cover only its queries.
func TestASegmentHasItsOwnFigures(t *testing.T) {
	j := judging(1, 1, 0, 0.5)
	got, err := j.measureSegments(t.Context(), &exactScan{values: map[string][]float64{"mrr@10": {0.5, 1, 1, 1}}})
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for i, want := range []struct{ metric, baseline, gain, wins, low, high float64 }{{0.75, 1, -0.25, 0, -0.5, 0}, {1, 0.25, 0.75, 1, 0.5, 1}} {
		s := got[i]
		if s.Metric != want.metric || *s.Baseline != want.baseline || s.Gain.Difference != want.gain || s.Gain.Wins != want.wins || s.Gain.Low != want.low || s.Gain.High != want.high {
			t.Errorf("%s: %v against %v, gain %+v; want %+v", s.Name, s.Metric, *s.Baseline, *s.Gain, want)
		}
	}
	if j.segments[0].Gain != nil {
		t.Error("the segments of the next model have figures of this one")
	}
	j.sampler.weights, j.baselineScan.values["mrr@10"][1] = []float64{3, 1, 1, 1}, 0.5
	got, err = j.measureSegments(t.Context(), &exactScan{values: map[string][]float64{"mrr@10": {0.5, 1, 1, 1}}})
	if err != nil || got[0].Metric != 0.625 || *got[0].Baseline != 0.875 || got[0].Gain.Difference != -0.25 || got[0].Gain.Losses != 0.75 {
		t.Errorf("a query that was asked three times: %+v against %v, gain %+v, %v", got[0], *got[0].Baseline, got[0].Gain, err)
	}
}

// TestDifferencesToTheBest: every model but the best has a paired difference to it.
func TestDifferencesToTheBest(t *testing.T) {
	j := judging(0, 0, 0, 0)
	j.baselineScan = nil
	j.bases = []series{{values: []float64{0.995, 0.6, 0.5, 0.4}}, {values: []float64{1, 0.6, 0.5, 0.4}}, {values: []float64{0.1, 0.1, 0.1, 0.1}}}
	for n, name := range []string{"close", "best", "worse"} {
		j.report.Models = append(j.report.Models, ModelReport{Model: Model{Name: name}, Class: ClassMoL, Metrics: Metrics{"mrr@10": meanOf(j.bases[n].values)}})
	}
	r, err := j.finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := r.Models
	if r.Verdict.Best != "best" || m[1].ToBest != nil || m[1].Standing != verdict.Best || m[0].Standing != verdict.AsGood || m[0].ToBest.Difference >= 0 || m[2].Standing != verdict.Worse || m[2].ToBest.High >= 0 {
		t.Errorf("close %+v, best %+v, worse %+v; %+v", m[0].ToBest, m[1].ToBest, m[2].ToBest, r.Verdict)
	}
	if r.Metrics["mrr@10"] != meanOf(j.bases[0].values) {
		t.Errorf("the report has the metrics of another model: %v", r.Metrics)
	}
}

// TestAnswersOfAStrategy: the report says how much of the exact answers a strategy finds, how many answers are
// proved, and what they lose against the exact ranking and gain over the baseline.
func TestAnswersOfAStrategy(t *testing.T) {
	ids := make([]rerank.ID, 8)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	tb, err := table.FromMemory(table.Meta{Model: "m", ModelVersion: "v", Kind: "dot", Collection: "c"}, ids, rerank.NewMatrix(8, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	ranked := func(rows ...int) (r Ranking) {
		for _, row := range rows {
			r = append(r, rerank.Scored{ID: ids[row], Index: row})
		}
		return r
	}
	answer := func(status rerank.Status, candidates int, rows ...int) (a search.Answer) {
		a.Certificate = rerank.Certificate{Status: status, Candidates: candidates}
		for _, row := range rows {
			a.Hits = append(a.Hits, search.Hit{ID: ids[row]})
		}
		return a
	}
	j := judging(0, 0.25, 0, 0)
	j.sampler.cluster, j.sampler.clusters = []int{0, 1}, 2
	j.baselineScan.values["mrr@10"] = []float64{0, 0.25}
	in := Input{K: 10, Pairs: NewPairs([][]int32{{1}, {5}})}
	b := &trialRunner{in: in, table: tb, rows: []int{0, 1}, judge: j, exact: &exactScan{
		rankings: []Ranking{ranked(1, 2, 3, 4), ranked(5)}, values: map[string][]float64{"mrr@10": {1, 1}},
	}}
	o, err := b.summariseAnswers(t.Context(), []search.Answer{answer(rerank.StatusCalibrated, 10, 1), answer(rerank.StatusExact, 20, 6, 5)}, []time.Duration{time.Millisecond, 3 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if o.FirstStageRecall != (0.25+1)/2 || o.Exact != 0.5 || o.Candidates != 15 || o.P50 != 1 || o.P99 != 3 {
		t.Errorf("%+v", o)
	}
	if o.Metrics["mrr@10"] != 0.75 || o.Loss.Difference != 0.25 || o.Gain.Difference != 0.625 {
		t.Errorf("metrics %v, loss %+v, gain %+v", o.Metrics, o.Loss, o.Gain)
	}
}

// TestRoutesOfTrials: a trial's strategy, depths, weights and head reach its route.
func TestRoutesOfTrials(t *testing.T) {
	s := described{spec: rerank.Spec{QueryDim: 2, ItemDim: 2, Normalise: true}}
	b := &trialRunner{in: Input{Model: route.Model{Name: "m", Similarity: s}}}
	r, err := b.newRoute(Trial{Name: "x", Strategy: rerank.Combined, Depth: 3, AverageDepth: 4, Weights: rerank.GateWeights, Head: "h"})
	if err != nil || r.Strategy != rerank.Combined || r.Depth != 3 || r.AverageDepth != 4 || r.Weights != rerank.GateWeights || r.Head != "h" || !r.UnitVectors || r.Failure != route.FailClosed || !r.ExactSearch {
		t.Errorf("%+v, %v", r, err)
	}
	if stored, err := b.newRoute(Trial{Name: "x", Strategy: Stored, Depth: 3}); err != nil || stored.Strategy != rerank.Distilled || stored.Model.Similarity.Spec().SingleInnerProduct {
		t.Errorf("%+v, %v", stored, err)
	}
	s.spec.ItemDim = 3
	b.in.Model.Similarity = s
	if _, err := b.newRoute(Trial{Name: "x", Strategy: Stored, Depth: 3}); !errors.Is(err, ErrInput) {
		t.Errorf("stored vectors of another dimension: %v", err)
	}
	if got := StoredTrials(10, 201); len(got) != 5 || got[4].Depth != 200 || got[0].Name != "stored:10" {
		t.Errorf("trials of 201 items: %+v", got)
	}
}

// TestSearchedFields: fields are derived that a strategy searches, by the weights that it searches with.
func TestSearchedFields(t *testing.T) {
	uniform := rerank.Field{Name: "uniform", Strategies: []rerank.Strategy{rerank.Average}, Weights: rerank.UniformWeights}
	gates := rerank.Field{Name: "gates", Strategies: []rerank.Strategy{rerank.Average}, Weights: rerank.GateWeights}
	each := rerank.Field{Name: "each", Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Combined}}
	for _, c := range []struct {
		trial Trial
		want  string
	}{
		{Trial{Strategy: rerank.Average}, "uniform"}, {Trial{Strategy: rerank.Average, Weights: rerank.GateWeights}, "gates"},
		{Trial{Strategy: rerank.PerEmbedding}, "each"}, {Trial{Strategy: rerank.Scan}, ""},
	} {
		b := &trialRunner{in: Input{Trials: []Trial{c.trial}}}
		var searched []string
		for _, f := range []rerank.Field{uniform, gates, each} {
			if b.isSearched(f) {
				searched = append(searched, f.Name)
			}
		}
		if got := strings.Join(searched, ", "); got != c.want {
			t.Errorf("%+v searches %q, want %q", c.trial, got, c.want)
		}
	}
}

// TestPlanOfQueries: each model is planned against the baseline and against the best model, at the confidence of the report.
func TestPlanOfQueries(t *testing.T) {
	gain := Paired{Difference: 0.1, Interval: Interval{0.05, 0.15}}
	toBest := Paired{Difference: -0.02, Interval: Interval{-0.04, 0}}
	r := &Report{
		BaselineName: "cosine", Counts: Counts{Queries: 400}, Method: Method{Metric: "m", Confidence: 0.8}, Verdict: Verdict{Best: "best"},
		Models: []ModelReport{{Model: Model{Name: "best"}, Gains: map[string]Paired{"m": gain}}, {Model: Model{Name: "other"}, ToBest: &toBest}},
	}
	p := r.plan(0.03)
	of := func(x Paired) float64 { return r.difference(x).Deviation(0.8) }
	if p.Difference != 0.03 || p.Power != verdict.Power || len(p.Models) != 2 {
		t.Fatalf("%+v", p)
	}
	for i, want := range []struct {
		model, against string
		deviation      float64
	}{{"best", "cosine", of(gain)}, {"other", "best", of(toBest)}} {
		m := p.Models[i]
		if m.Model != want.model || m.Against != want.against || m.Deviation != want.deviation || m.Queries != verdict.QueriesFor(want.deviation, 0.03, 0.8) || m.Detectable != verdict.Detectable(want.deviation, 400, 0.8) {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
}
