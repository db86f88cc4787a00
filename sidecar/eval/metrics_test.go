package eval_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/eval"
)

func readPairs(t *testing.T, text string, in eval.PairsInput) *eval.Pairs {
	t.Helper()
	p, err := eval.ReadPairs(strings.NewReader(text), in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ranking(rows ...int) eval.Ranking {
	r := eval.Ranking{}
	for i, row := range rows {
		r = append(r, rerank.Scored{ID: rerank.UintID(uint64(row)), Score: float32(-i), Index: row})
	}
	return r
}

func TestMeasure(t *testing.T) {
	pairs := readPairs(t, "query,item\n0,3\n0,9\n1,4\n2,7\n", eval.PairsInput{Queries: 4, Items: 10})
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
	if len(got) != len(want) {
		t.Errorf("got %v, want the keys of %v", got, want)
	}
	for name, value := range want {
		if math.Abs(got[name]-value) > 1e-12 {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
}

func TestMeasureShortAnswers(t *testing.T) {
	pairs := readPairs(t, "query,item\n0,0\n", eval.PairsInput{Queries: 1, Items: 2})
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

func TestReadPairsCountsWhatItDrops(t *testing.T) {
	ids := map[string]int{"a": 0, "b,c": 1}
	in := eval.PairsInput{Queries: 5, Items: 2, ItemRow: func(id string) (int, bool) { row, ok := ids[id]; return row, ok }}
	pairs := readPairs(t, "\ufeffquery,item\r\n0,a\r\n0,\"b,c\"\r\n0,a\r\n1,gone\r\n4,a\r\n", in)
	queries, counts := pairs.Choose(4)
	want := eval.Counts{Queries: 2, Pairs: 3, QueriesSkipped: 3, DuplicatePairs: 1, UnknownItems: 1}
	if counts != want || !slices.Equal(queries, []int{0, 4}) {
		t.Errorf("chose %v with %+v, want %+v", queries, counts, want)
	}
	if got := pairs.Relevant(0); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("query 0 has %v", got)
	}
}

func TestReadPairsNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "empty",
		"item,query\n":              "line 1",
		"query,item,weight\n":       "query,item",
		"query,item\n0,1\nx,1\n":    `line 3: query "x"`,
		"query,item\n0,1\n\n0,-1\n": "line 4: item is row -1",
		"query,item\n3,1\n":         "line 2: query is row 3; the matrix has rows 0 to 2",
		"query,item\n0,1,2\n":       "line 2",
		"query,item\n0,\"1\n":       "line",
	} {
		_, err := eval.ReadPairs(strings.NewReader(text), eval.PairsInput{Queries: 3, Items: 3})
		if !errors.Is(err, eval.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want ErrInput with %q", text, err, want)
		}
	}
}

func FuzzReadPairs(f *testing.F) {
	f.Add("query,item\n0,1\n")
	f.Add("query,item\n\"0\",\"1\"\n2,2\n2,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := eval.ReadPairs(strings.NewReader(text), eval.PairsInput{Queries: 3, Items: 3})
		if err != nil {
			if !errors.Is(err, eval.ErrInput) {
				t.Fatalf("%q: %v is not ErrInput", text, err)
			}
			return
		}
		queries, _ := p.Choose(1)
		for _, q := range queries {
			rel := p.Relevant(q)
			if !slices.IsSorted(rel) || rel[0] < 0 || rel[len(rel)-1] > 2 {
				t.Fatalf("%q: query %d has %v", text, q, rel)
			}
		}
	})
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
