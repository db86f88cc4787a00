package main

import (
	"io"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/route"
)

func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-searches", "0"}, "-searches starts at 1"},
		{[]string{"-load", "0s"}, "-load is more than 0"},
		{[]string{"-binary", "none"}, "build it with `make build`"},
		{[]string{"-nonsense"}, "not defined"},
	} {
		if err := run(t.Context(), tc.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
	if err := run(t.Context(), []string{"-help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("-help: %v", err)
	}
}

func TestPageSaysWhatIsNotMet(t *testing.T) {
	one := func(placement route.Placement) bench.Result {
		return bench.Result{Case: "made up", Placement: placement, Store: &bench.Quantiles{}}
	}
	both := []bench.Result{one(route.PlacementTable), one(route.PlacementStored)}
	load := func(p99 float64) bench.LoadResult {
		own := bench.LatencyQuantile{P50: .25, P99: p99}
		return bench.LoadResult{Calls: 10, Outcomes: map[bench.Outcome]int{bench.Good: 9}, Own: &own, Around: &own}
	}
	for _, tc := range []struct {
		p99  float64
		want string
	}{{.5, "Met by all."}, {1.5, "Not met: quick (0.25 / 1.50)."}} {
		r := report{PlainGo: both, MadeUp: both, Alone: both, Loaded: []loadedResult{{"quick", 100, load(tc.p99)}}}
		page := string(r.markdown())
		for _, want := range []string{tc.want, "| quick | 100 | 0 | 90.0 % |"} {
			if !strings.Contains(page, want) {
				t.Errorf("p99 of %g: the page lacks %q:\n%s", tc.p99, want, page)
			}
		}
	}
}
