package bench_test

import (
	"testing"

	"github.com/likenessdb/likeness/sidecar/bench"
)

// TestEventsCost: events are kept in every second block of searches, and cost no allocation for a candidate.
func TestEventsCost(t *testing.T) {
	const candidates = 100
	all, err := bench.RunSynthetic(t.Context(), bench.Synthetic{Items: candidates, Candidates: candidates, Searches: 1, K: 50, Turns: 1}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if e := all[0].Events; len(all) != 1 || e.Searches == 0 || e.Dropped != 0 || !(e.Allocations > 1 && e.Allocations < 50) {
		t.Errorf("%d cases, events cost %+v", len(all), e)
	}
}
