package bench_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/likenessdb/likeness/sidecar/bench"
)

// TestRunRetrieval: exact methods return the exact top K, and so do strategies whose lists are
// as long as the collection; shorter lists return no more. Algorithm 1 finds what the scan finds.
func TestRunRetrieval(t *testing.T) {
	in := bench.Retrieval{Shape: "3x2x16", Hidden: 8, Items: 900, K: []int{1, 10, 100}, Batches: []int{1, 3}, Threads: 2, Runs: 2, TwoPass: 4}
	r, err := bench.RunRetrieval(context.Background(), in, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bench.Method{}
	for _, m := range r.Methods {
		found[m.Name] = m
		if len(m.Hit) != 3 || len(m.MS) != 2 || m.MS[1].Min <= 0 || m.Candidates < 5 || m.Candidates > 900 {
			t.Errorf("%+v", m)
		}
	}
	for _, exact := range []string{"every item scored", "exact scan", "average 1000", "average 4000", "combined 100, 1000"} {
		for i, hit := range found[exact].Hit {
			if !(math.Abs(hit-1) <= 1e-9) {
				t.Errorf("%s: %v of the top %d", exact, hit, r.K[i])
			}
		}
	}
	if all := found["every item scored"].Candidates; all != 900 || found["average 200"].Candidates != 200 {
		t.Errorf("%v items scored of 900, and %v of a list of 200", all, found["average 200"].Candidates)
	}
	short, long := found["per_embedding 10"], found["per_embedding 200"]
	if short.Hit[1] >= long.Hit[1] || short.Candidates >= long.Candidates || long.Hit[1] >= 1+1e-9 {
		t.Errorf("lists of 10 rows: %+v; of 200 rows: %+v", short, long)
	}
	if few := found["per_embedding 5"]; few.Hit[2] != -1 { // six lists of five rows have no hundred
		t.Errorf("%v of the top 100 among %v candidates", few.Hit[2], few.Candidates)
	}
	if len(r.TwoPass) != 3 {
		t.Fatalf("algorithm 1: %+v", r.TwoPass)
	}
	for _, p := range r.TwoPass {
		if !p.Same || p.Second <= 0 || p.Second > p.Printed || p.Printed > 1+1e-9 || p.Candidates < float64(p.K) {
			t.Errorf("algorithm 1: %+v", p)
		}
	}
	for i, e := range r.Example {
		if e.Pair < 1 || e.Average < 1 || len(e.Terms) != 2 || e.Terms[0].Gate < e.Terms[1].Gate || i > 0 && e.Score > r.Example[i-1].Score {
			t.Errorf("example %d: %+v", i, e)
		}
	}
	in.Shape = "8"
	if _, err := bench.RunRetrieval(context.Background(), in, func(string) {}); !errors.Is(err, bench.ErrShape) {
		t.Errorf("a shape of one number: %v", err)
	}
}
