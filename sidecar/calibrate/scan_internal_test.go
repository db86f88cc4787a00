package calibrate

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestScanIsDue: a short scan begins at any time where nothing is promised yet; any other one in its hour, which may pass midnight.
func TestScanIsDue(t *testing.T) {
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 27, hour, minute, 0, 0, time.Local) }
	night, late := Scans{At: 3 * time.Hour, RowsPerSecond: 1000}, Scans{At: 23*time.Hour + 30*time.Minute, RowsPerSecond: 1000}
	for name, c := range map[string]struct {
		scans    Scans
		now      time.Time
		rows     int64
		promised bool
		want     bool
	}{
		"ten minutes by day":            {night, at(12, 0), 600_000, false, true},
		"more by day":                   {night, at(12, 0), 600_001, false, false},
		"an unknown number by day":      {night, at(12, 0), -1, false, false},
		"an audit by day":               {night, at(12, 0), 10, true, false},
		"before the hour":               {night, at(2, 59), 1e9, true, false},
		"the beginning of the hour":     {night, at(3, 0), 1e9, true, true},
		"the end of the hour":           {night, at(3, 59), -1, false, true},
		"after the hour":                {night, at(4, 0), 1e9, true, false},
		"the hour goes past midnight":   {late, at(0, 29), 1e9, true, true},
		"after the hour, past midnight": {late, at(0, 30), 1e9, true, false},
	} {
		if got := c.scans.isDue(c.now, c.rows, c.promised); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestALookHoldsNoVersion: whoever looks whether a scan is due, and finds that it is not, gives the route's version back.
func TestALookHoldsNoVersion(t *testing.T) {
	o := &outcomes{route: &route.Route{Policy: route.Policy{Name: "things"}}}
	a := o.auditor(Audits{Self: true})
	a.sample("things", "v").scans = true
	if a.scanOneDue(t.Context(), o, time.Now()) || o.held != 0 {
		t.Errorf("%d versions are held", o.held)
	}
}

// TestScansRest: the next scan of a collection waits for an hour, or for selfPause times as long as the last scan took if that is
// longer, also if the last scan failed.
func TestScansRest(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{time.Minute: scanRetry, time.Hour: selfPause * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			o := &outcomes{route: &route.Route{Policy: route.Policy{Name: "things"}}}
			a := o.auditor(Audits{Self: true})
			a.scanning = true
			a.takeScan(o, scanResult{route: "things", took: took, err: errBehind})
			if next := a.nextScan["things"]; a.scanning || !next.Equal(time.Now().Add(want)) || o.held != 0 {
				t.Errorf("after a scan of %s the next one waits %s, want %s; %d versions are held", took, time.Until(next), want, o.held)
			}
		})
	}
}

// TestWhatMayBeScanned: a collection whose store lists its rows, each of them an item that the model scores by its own vector.
func TestWhatMayBeScanned(t *testing.T) {
	own, err := maxsim.New(maxsim.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	behavioural, err := maxsim.New(maxsim.Config{Dim: 2, Vectors: strings.Repeat("0", 64)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rows   int
		change func(*route.Route)
		want   bool
	}{
		"rows that are items":      {10, func(*route.Route) {}, true},
		"nobody lets it":           {0, func(*route.Route) {}, false},
		"a store that cannot":      {10, func(r *route.Route) { r.Store = struct{ adapters.Store }{r.Store} }, false},
		"items of several rows":    {10, func(r *route.Route) { r.Owner = "item" }, false},
		"vectors that are no rows": {10, func(r *route.Route) { r.Model.Similarity = behavioural }, false},
	} {
		o := &outcomes{}
		r := &route.Route{Policy: route.Policy{Name: "things"}, Parts: route.Parts{Store: embedded.New(), Model: route.Model{Similarity: own}}}
		c.change(r)
		if got := o.auditor(Audits{Self: true, Scans: Scans{RowsPerSecond: c.rows}}).mayScan(r); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestABusySidecarIsAskedNowAndThen: waiting for it takes no processor.
func TestABusySidecarIsAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := NewAuditor(AuditorOptions{Busy: func() bool { asked++; return asked <= 10 }, Logger: slog.New(slog.DiscardHandler)})
		began := time.Now()
		if err := a.awaitIdle(t.Context()); err != nil || time.Since(began) != 10*busyPoll {
			t.Errorf("asked %d times in %s, %v; want a pause of %s after each", asked, time.Since(began), err, busyPoll)
		}
	})
}

// TestSeenItemsAreSpelledAsTheStoreDoes: and none is lost.
func TestSeenItemsAreSpelledAsTheStoreDoes(t *testing.T) {
	ids := []rerank.ID{rerank.UintID(1), rerank.TextID("a")}
	for name, s := range map[string]adapters.Store{"spells": embedded.New(), "spells nothing": struct{ adapters.Store }{}} {
		if seen, err := itemsOf(s, ids); err != nil || len(seen) != 2 || !seen[ids[0]] || !seen[ids[1]] {
			t.Errorf("%s: %v, %v", name, seen, err)
		}
	}
}

// TestQuerySample: each of the queries is in a full sample with the same probability.
func TestQuerySample(t *testing.T) {
	const samples, added = 200, 4 * selfQueries
	var early int
	for range samples {
		var s querySample
		for i := range added {
			s.add(rerank.Query{UserID: int64(i)})
		}
		if len(s.queries) != selfQueries {
			t.Fatalf("a sample has %d queries", len(s.queries))
		}
		for _, q := range s.queries {
			if q.UserID < added/2 {
				early++
			}
		}
	}
	// Half of them, within five standard deviations of a sum of so many draws.
	if n := samples * selfQueries; early < n/2-500 || early > n/2+500 {
		t.Errorf("%d of %d sampled queries are of the first half", early, n)
	}
}
