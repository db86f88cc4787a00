package telemetry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// TestProxyHistory: searches count for each of their routes. The ten most different comparisons of
// a day are kept, the most different first.
func TestProxyHistory(t *testing.T) {
	m := telemetry.NewMetrics(buildinfo.Info{}, nil)
	m.Proxied([]string{"a", "b"}, "rewritten", "")
	m.Proxied([]string{"a"}, "rescored", "")
	m.Proxied([]string{"a"}, "shadow", "")
	m.Proxied([]string{"a"}, "passed", "filter")
	m.Proxied([]string{"a"}, "passed", "filter")
	m.Proxied([]string{"a"}, "passed", "ramp")
	m.Proxied([]string{"b"}, "degraded", "deadline")
	a, _ := m.ProxyOf("a")
	if a.Rewritten != 1 || a.Rescored != 1 || a.Shadow != 1 || a.Passed["filter"] != 2 || a.Passed["ramp"] != 1 || len(a.Degraded) != 0 {
		t.Errorf("a: %+v", a)
	}
	if b, _ := m.ProxyOf("b"); b.Rewritten != 1 || b.Rescored != 0 || b.Degraded["deadline"] != 1 {
		t.Errorf("b: %+v", b)
	}

	rows := make([]rerank.ID, 30)
	for i := range rows {
		rows[i] = rerank.UintID(uint64(i))
	}
	now := time.Now()
	m.Shadowed("a", telemetry.Comparison{At: now.Add(-25 * time.Hour), RankBiased: 0, Served: rows, Rescored: rows})
	m.Shadowed("a", telemetry.Comparison{At: now, RankBiased: 1, Served: rows, Rescored: rows})
	for i := range 12 {
		m.Shadowed("a", telemetry.Comparison{At: now, RankBiased: float64(11-i) / 100, Served: rows, Rescored: rows[1:]})
	}
	_, changed := m.ProxyOf("a")
	if len(changed) != 10 || changed[0].RankBiased != 0 || changed[9].RankBiased != 0.09 {
		t.Fatalf("%+v", changed)
	}
	if !slices.Equal(changed[0].Served, rows[:10]) || !slices.Equal(changed[0].Rescored, rows[1:11]) {
		t.Errorf("%v beside %v", changed[0].Served, changed[0].Rescored)
	}
}

// TestOldComparisons: a comparison from more than a day ago is not shown, even if none came since.
func TestOldComparisons(t *testing.T) {
	m := telemetry.NewMetrics(buildinfo.Info{}, nil)
	m.Shadowed("a", telemetry.Comparison{At: time.Now().Add(-25 * time.Hour)})
	if _, changed := m.ProxyOf("a"); len(changed) != 0 {
		t.Errorf("%+v", changed)
	}
}

// TestFirstChanged: the first rows decide; an empty answer beside one with rows differs.
func TestFirstChanged(t *testing.T) {
	one, two := []rerank.ID{rerank.UintID(1)}, []rerank.ID{rerank.UintID(2), rerank.UintID(1)}
	for _, c := range []struct {
		served, rescored []rerank.ID
		want             bool
	}{{one, one, false}, {one, two, true}, {nil, nil, false}, {nil, one, true}, {two, nil, true}} {
		if got := (telemetry.Comparison{Served: c.served, Rescored: c.rescored}).FirstChanged(); got != c.want {
			t.Errorf("%v beside %v: %v", c.served, c.rescored, got)
		}
	}
}
