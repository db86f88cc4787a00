package mol

import (
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
)

var updateMoL = flag.Bool("update-mol", false, "write testdata/quality.json anew")

// TestQualityMoL holds the MRR@10 on BANKING77's test questions to the committed figures, and to the
// result of a competent fit. The mixture is small; those of the default size, full gates, and the
// guard of items without logs are in the soak.
func TestQualityMoL(t *testing.T) {
	fittest.SkipUnderRace(t)
	const file = "testdata/quality.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]float64{}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	train, test := fittest.OpenIntents(t, "train"), fittest.OpenIntents(t, "test")
	for _, tc := range []struct {
		name   string
		soak   bool
		least  float64
		change func(o *Options)
	}{
		{"query gates", true, 0.950, func(*Options) {}},
		{"query gates, 4x2, 4 rounds", false, 0.930, func(o *Options) {
			o.PairsQuery, o.PairsItem, o.Rounds, o.Cold = 4, 2, 4, fit.ColdIgnore
			o.Pulls = []float64{1e-5}
		}},
		{"full gates, 4x2, 4 rounds", true, 0.930, func(o *Options) {
			o.Gates, o.PairsQuery, o.PairsItem, o.GatePairHidden, o.Rounds, o.Cold = GatesFull, 4, 2, 16, 4, fit.ColdIgnore
			o.Pulls = []float64{1e-5}
		}},
		{"full gates", true, 0.950, func(o *Options) { o.Gates = GatesFull }},
	} {
		if tc.soak && os.Getenv("LIKENESS_SOAK") == "" {
			continue
		}
		o := DefaultOptions()
		tc.change(&o)
		fitted, err := Fit(t.Context(), train, o)
		if err != nil {
			t.Fatal(err)
		}
		got[tc.name], _ = measure(t, test, fitted, nil)
		if got[tc.name] < tc.least {
			t.Errorf("%s: MRR@10 is %.4f, want %.3f", tc.name, got[tc.name], tc.least)
		}
		checkMoLReport(t, tc.name, fitted.Report)
	}
	if os.Getenv("LIKENESS_SOAK") != "" {
		maps.Copy(got, guardedMoL(t, train, test))
	}
	for name, v := range got {
		if !(math.Abs(v-golden[name]) <= 0.004) && !*updateMoL { // sums differ between processors
			t.Errorf("%s: MRR@10 is %.4f, committed is %.4f", name, v, golden[name])
		}
	}
	if *updateMoL {
		for name, v := range got {
			golden[name] = math.Round(1e4*v) / 1e4
		}
		text, err := json.MarshalIndent(golden, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func checkMoLReport(t *testing.T, name string, r Report) {
	t.Helper()
	if r.Logged.Gain < 0.2 || r.Guarded || r.Usage.Entropy <= 0 || r.Usage.MeanEntropy > r.Usage.Entropy {
		t.Errorf("%s: reported %+v", name, r)
	}
	for _, s := range r.Recall {
		if r.Gates == GatesQuery && s.Strategy != "plain inner product" && s.Recall < 1 {
			t.Errorf("%s: one inner product, and %s at depth %d has recall %.4f", name, s.Strategy, s.Depth, s.Recall)
		}
	}
	if r.Cold != nil && r.Cold.Gain < 0 && len(r.Warnings) == 0 {
		t.Errorf("%s: cold items lose (%+v) without a warning", name, r.Cold)
	}
}

// guardedMoL leaves out the logs of fifteen intents, twice, and returns the means.
func guardedMoL(t *testing.T, train, test fit.Data) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	var cosine float64
	for _, seed := range []uint64{2, 3} {
		d, without := fittest.WithoutLogs(train, seed, 15)
		fitted, err := Fit(t.Context(), d, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		all, _ := measure(t, test, fitted, nil)
		cold, plain := measure(t, test, fitted, func(x int32) bool { return without[x] })
		if all < 0.88 || !fitted.Report.Guarded {
			t.Errorf("seed %d: MRR@10 of all items is %.4f, want 0.88; guarded: %t", seed, all, fitted.Report.Guarded)
		}
		out["guarded, all items"] += all / 2
		out["guarded, items without logs"] += cold / 2
		cosine += plain / 2
	}
	if out["guarded, items without logs"] < cosine {
		t.Errorf("MRR@10 of items without logs is %.4f, cosine's %.4f", out["guarded, items without logs"], cosine)
	}
	return out
}
