package eval_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
)

func ranking(rows ...int) eval.Ranking {
	r := eval.Ranking{}
	for i, row := range rows {
		r = append(r, rerank.Scored{ID: rerank.UintID(uint64(row)), Score: float32(-i), Index: row})
	}
	return r
}

func TestMeasure(t *testing.T) {
	pairs := eval.NewPairs([][]int32{{9, 3}, {4}, {7}, nil})
	queries, counts := pairs.Choose(1)
	if !slices.Equal(queries, []int{0, 1, 2}) || counts.QueriesWithoutPairs != 1 || counts.Pairs != 4 {
		t.Fatalf("chose %v with %+v", queries, counts)
	}
	rankings := []eval.Ranking{
		ranking(1, 3, 9, 0, 2, 4), // relevant at 2 and 3, of 2
		ranking(4, 0, 1, 2, 3, 5), // relevant at 1, of 1
		ranking(0, 1, 2, 3, 4, 7), // relevant at 6, of 1
	}
	got := eval.Measure(rankings, queries, pairs, 6)
	want := eval.Metrics{
		"recall@1": (0. + 1 + 0) / 3, "hit_rate@1": (0. + 1 + 0) / 3, "mrr@1": (0. + 1 + 0) / 3, "p@1": (0. + 1 + 0) / 3,
		"recall@5": (1. + 1 + 0) / 3, "hit_rate@5": (1. + 1 + 0) / 3, "mrr@5": (1./2 + 1 + 0) / 3, "p@5": (2./5 + 1./5 + 0) / 3,
		"recall@6": (1. + 1 + 1) / 3, "hit_rate@6": 1, "mrr@6": (1./2 + 1 + 1./6) / 3, "p@6": (2./6 + 1./6 + 1./6) / 3,
	}
	two := (1/math.Log2(3) + 1/math.Log2(4)) / (1 + 1/math.Log2(3))
	want["ndcg@1"], want["ndcg@5"], want["ndcg@6"] = 1./3, (two+1)/3, (two+1+1/math.Log2(7))/3
	want["map@1"], want["map@5"], want["map@6"] = 1./3, ((1./2+2./3)/2+1)/3, ((1./2+2./3)/2+1+1./6)/3
	if len(got) != len(want) {
		t.Errorf("got %v, want the keys of %v", got, want)
	}
	for name, value := range want {
		if !(math.Abs(got[name]-value) <= 1e-12) {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
}

// Weights are gains of nDCG and shares of recall.
func TestMeasureWeights(t *testing.T) {
	pairs, err := eval.NewWeightedPairs([][]int32{{3, 9}}, [][]float32{{1, 4}})
	if err != nil {
		t.Fatal(err)
	}
	got := eval.Measure([]eval.Ranking{ranking(3, 1, 9)}, []int{0}, pairs, 3)
	ideal := 4 + 1/math.Log2(3)
	for name, want := range map[string]float64{
		"recall@1": 0.2, "recall@3": 1, "p@3": 2. / 3, "mrr@3": 1, "ndcg@1": 1. / 4, "ndcg@3": (1 + 4/math.Log2(4)) / ideal,
	} {
		if !(math.Abs(got[name]-want) <= 1e-12) {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	for _, bad := range [][][]float32{{{1}}, {{1, 0}}, {{1, float32(math.NaN())}}, {}} {
		if _, err := eval.NewWeightedPairs([][]int32{{3, 9}}, bad); !errors.Is(err, eval.ErrInput) {
			t.Errorf("weights %v: %v", bad, err)
		}
	}
}

func TestMeasureShortAnswers(t *testing.T) {
	pairs := eval.NewPairs([][]int32{{0}})
	got := eval.Measure([]eval.Ranking{ranking(0)}, []int{0}, pairs, 10)
	if got["recall@10"] != 1 || got["p@10"] != 0.1 || got["mrr@10"] != 1 {
		t.Errorf("an answer of one row: %v", got)
	}
	if got := eval.Measure(nil, nil, pairs, 10); len(got) != 0 {
		t.Errorf("no queries: %v", got)
	}
}

func TestCutoffs(t *testing.T) {
	for k, want := range map[int][]int{1: {1}, 3: {1, 3}, 5: {1, 5}, 10: {1, 5, 10}, 100: {1, 5, 10, 100}} {
		if got := eval.Cutoffs(k); !slices.Equal(got, want) {
			t.Errorf("Cutoffs(%d) = %v, want %v", k, got, want)
		}
	}
}

func TestPairsCountsWhatItLeavesOut(t *testing.T) {
	pairs := eval.NewPairs([][]int32{{1, 0, 1}, {0}, nil, nil, {0}})
	queries, counts := pairs.Choose(4)
	want := eval.Counts{Queries: 2, Pairs: 3, QueriesSkipped: 3, DuplicatePairs: 1}
	if counts != want || !slices.Equal(queries, []int{0, 4}) {
		t.Errorf("chose %v with %+v, want %+v", queries, counts, want)
	}
	if got := pairs.Relevant(0); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("query 0 has %v", got)
	}
}

func TestParseTrials(t *testing.T) {
	got, err := eval.ParseTrials("per_embedding:50, average:200:gates,combined:50:500,distilled:200:residual,distilled:100,stored:10,scan")
	if err != nil {
		t.Fatal(err)
	}
	want := []eval.Trial{
		{Name: "per_embedding:50", Strategy: rerank.PerEmbedding, Depth: 50},
		{Name: "average:200:gates", Strategy: rerank.Average, Depth: 200, Weights: rerank.GateWeights},
		{Name: "combined:50:500", Strategy: rerank.Combined, Depth: 50, AverageDepth: 500},
		{Name: "distilled:200:residual", Strategy: rerank.Distilled, Depth: 200, Head: "residual"},
		{Name: "distilled:100", Strategy: rerank.Distilled, Depth: 100},
		{Name: "stored:10", Strategy: eval.Stored, Depth: 10},
		{Name: "scan", Strategy: rerank.Scan},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, bad := range []string{"averag:10", "average", "average:0", "average:x", "average:10:sums", "combined:50", "scan:5", "stored:5:6", "scan,scan"} {
		if _, err := eval.ParseTrials(bad); !errors.Is(err, eval.ErrInput) {
			t.Errorf("%q: got %v, want ErrInput", bad, err)
		}
	}
}

func TestPercentile(t *testing.T) {
	d := []time.Duration{4 * time.Millisecond, 1 * time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond}
	for p, want := range map[float64]float64{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		if got := eval.Percentile(d, p); got != want {
			t.Errorf("Percentile(%v) = %v, want %v", p, got, want)
		}
	}
	if got := eval.Percentile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
