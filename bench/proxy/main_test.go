package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/testbinary"
)

// TestMain is the program where the benchmark starts itself as the process that copies bytes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == copyCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// The benchmark runs as `make bench-proxy` runs it, for a moment.
func TestRun(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it takes most of a minute of processor time; set LIKENESS_SOAK=1")
	}
	if servers.Dir() == "" {
		t.Skipf("%s is not set", servers.EnvDir)
	}
	dir := t.TempDir()
	binary := testbinary.Likeness(t)
	var out strings.Builder
	err := run(t.Context(), []string{
		"-binary", binary, "-data", "../../examples/data/banking77", "-models", "../../examples/models", "-out", dir,
		"-rounds", "1", "-alone", "1ms", "-full", "50ms", "-open", "50ms",
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
	if len(r.Systems) != 3 {
		t.Errorf("%d systems", len(r.Systems))
	}
	for _, s := range r.Systems {
		for _, w := range s.Ways {
			if !(w.Alone.P50 > 0 && w.Alone.P99 >= w.Alone.P50 && w.Rate > 0 && w.Share > 0 && len(w.Shares) == len(shares)) || w.Rounds[0].Calls == 0 {
				t.Errorf("%s, %s: %+v", s.System, w.Way, w)
			}
		}
	}
}

// TestMissed: figures just at the targets meet them, and others do not.
func TestMissed(t *testing.T) {
	passed := wayResult{Way: wayPassed, TimesP50: 1.15, TimesP99: 1.15, AddedP50: 0.15, Share: 0.85}
	tabled := wayResult{Way: wayTable, AddedP50: 1, CPU: map[string]float64{processServe: 0.3}}
	slow := wayResult{Way: wayRewritten, TimesP50: 1.2, TimesP99: 1.2, AddedP50: 0.2, Share: 0.8}
	slowScan := wayResult{Way: wayScan, AddedP50: 1.1, CPU: map[string]float64{processServe: 0.4}}
	for want, w := range map[int]wayResult{0: passed, 4: slow, 2: slowScan} {
		if got := w.missed(); len(got) != want {
			t.Errorf("%s misses %q", w.Way, got)
		}
	}
	if got := tabled.missed(); len(got) != 0 {
		t.Errorf("a table misses %q", got)
	}
}

// TestFiguresOfACall: milliseconds of processor time, and calls a second.
func TestFiguresOfACall(t *testing.T) {
	r := wayRound{Calls: 50, Seconds: 2, CPU: map[string]float64{processServe: 0.1}}
	if r.perCall(); r.Rate != 25 || r.CPU[processServe] != 2 {
		t.Errorf("%+v", r)
	}
}

// TestDirect: a rewritten call is compared with the request that it becomes, and others with the client's own.
func TestDirect(t *testing.T) {
	own, becomes := []wayRound{{Calls: 1}}, []wayRound{{Calls: 2}}
	s := systemResult{Ways: []wayResult{{Way: "direct", Rounds: own}, {Way: wayPassed}, {Way: wayByClient, Rounds: becomes}, {Way: wayRewritten}}}
	if s.direct(wayPassed)[0].Calls != 1 || s.direct(wayRewritten)[0].Calls != 2 {
		t.Error("the ways are compared with other calls")
	}
	s.Ways = s.Ways[:2]
	if s.direct(wayRewritten)[0].Calls != 1 {
		t.Error("without that way, the comparison is not with direct calls")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-open", "0s"}, {"-binary", "/does/not/exist"}, {"-unknown"}} {
		if _, err := parse(args, t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{3: {9, 3, 1}, 2: {1, 3}, 5: {5}} {
		if got := median(values); got != want {
			t.Errorf("the median of %v is %v, want %v", values, got, want)
		}
	}
}
