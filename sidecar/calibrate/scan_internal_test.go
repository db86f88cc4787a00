package calibrate

import (
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
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
