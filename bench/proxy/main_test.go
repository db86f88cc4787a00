package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// The benchmark runs as `make bench-proxy` runs it, for a moment.
func TestRun(t *testing.T) {
	if servers.Dir() == "" {
		t.Skipf("%s is not set", servers.EnvDir)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "likeness")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/likeness").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out strings.Builder
	err := run(t.Context(), []string{
		"-binary", binary, "-data", "../../examples/data/banking77", "-models", "../../examples/models", "-out", dir,
		"-rounds", "1", "-alone", "1ms", "-load", "50ms",
	}, &out, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	figures, err := os.ReadFile(filepath.Join(dir, "proxy-overhead.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(figures, &r); err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Alone {
		for _, w := range a.Ways {
			if !(w.P50 > 0 && w.P99 >= w.P50) {
				t.Errorf("%s, %s: %+v", a.Call, w.Way, w)
			}
		}
	}
	for _, l := range r.Loaded {
		for _, w := range l.Ways {
			if !(w.Rate > 0 && w.Share > 0) || w.Rounds[0].Calls == 0 {
				t.Errorf("%s, %s: %+v", l.Call, w.Way, w)
			}
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "proxy-overhead.md")); err != nil || string(page) != out.String() {
		t.Errorf("the page is not what was printed: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-load", "0s"}, {"-binary", "/does/not/exist"}, {"-unknown"}} {
		if _, err := parse(args, t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, rounds := range map[float64][]float64{3: {9, 3, 1}, 2: {1, 3}, 5: {5}} {
		if got := median(rounds, func(_ int, v float64) float64 { return v }); got != want {
			t.Errorf("the median of %v is %v, want %v", rounds, got, want)
		}
	}
}
