package gain_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/gain"
)

func measured(model string, value float64) gain.Measurement {
	return gain.Measurement{Model: model, Metric: "mrr@10", Gain: value, Low: value - 0.01, High: value + 0.01}
}

// TestRecord: a model is compared with its own first measurement, which a refit made before it went live,
// and a fall within the uncertainty is none.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if s, err := gain.Read(dir, "r"); s != nil || err != nil {
		t.Fatal(s, err)
	}
	tried, other := measured("b", 0.08), measured("d", 0.3)
	by := func(metric string, m gain.Measurement) gain.Measurement { m.Metric = metric; return m }
	for i, step := range []struct {
		served      gain.Measurement
		candidate   *gain.Measurement
		first, fell float64
	}{
		{served: measured("a", 0.05), first: 0.05},
		{served: measured("a", 0.04), candidate: &tried, first: 0.05},
		{served: measured("a", 0.02), first: 0.05, fell: 1},
		{served: measured("b", 0.07), first: 0.08}, // the candidate went live
		{served: measured("b", 0.01), first: 0.08, fell: 1},
		{served: measured("c", 0.01), first: 0.01},                                 // by hand
		{served: by("ndcg@10", measured("c", 0.4)), candidate: &other, first: 0.4}, // another metric
		{served: by("ndcg@10", measured("d", 0.2)), first: 0.2},
	} {
		if err := gain.Record(dir, "r", step.served, step.candidate); err != nil {
			t.Fatal(err)
		}
		s, err := gain.Read(dir, "r")
		if err != nil || s.First.Gain != step.first || s.Now != step.served || s.Fell() != (step.fell == 1) {
			t.Errorf("step %d: %+v, %v", i, s, err)
		}
	}
	if err := os.WriteFile(filepath.Join(statedir.Route(dir, "r"), "gain.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gain.Read(dir, "r"); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged file: %v", err)
	}
}
