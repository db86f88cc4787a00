package calibrate_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// serveSelf serves a route without a table that calibrates itself, and draws every answer for that.
func serveSelf(t *testing.T, path string, scans calibrate.Scans, change ...func(*route.Route, *lossy)) *served {
	t.Helper()
	r, store := newRoute(t, false)
	for _, c := range change {
		c(r, store)
	}
	s := &served{keeper: calibrate.Keep(path, .01), counts: &counts{}}
	r.Promise = s.keeper
	s.auditor = calibrate.NewAuditor(calibrate.AuditorOptions{
		Routes: map[string]calibrate.Audits{"things": {Self: true, Every: 1, Scans: scans}}, Recorder: s.counts, Logger: quiet(),
		Busy: func() bool { s.looks.Add(1); return false },
	})
	var err error
	s.Engine, err = search.New([]*route.Route{r}, search.Options{Observer: s.auditor})
	must(t, err)
	must(t, s.Open(t.Context()))
	s.auditor.AuditDrawn(t.Context(), s.Engine)
	return s
}

// draw searches, has the answer compared if it is drawn, and returns its certificate.
func (s *served) draw(t *testing.T, q rerank.Query, change ...func(*search.Request)) (c rerank.Certificate, drawn bool) {
	t.Helper()
	r := search.Request{Route: "things", Query: q, K: 10}
	for _, c := range change {
		c(&r)
	}
	a, err := s.Search(t.Context(), r)
	must(t, err)
	return a.Certificate, s.auditor.AuditDrawn(t.Context(), s.Engine) > 0
}

// TestSelfCalibration: the answers of a route are unknown until it has compared two hundred of them
// with exact ones, and then carry the recall that those show, which holds for other queries like them.
// When the queries change, the audit rejects the promise, and the next answers make another one.
func TestSelfCalibration(t *testing.T) {
	for name, path := range map[string]string{
		"in memory":           "",
		"in the state folder": calibrate.Path(t.TempDir(), "things", version),
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSelf(t, path, calibrate.Scans{})
			for i, q := range queries(30, 200, 0) {
				if c, drawn := s.draw(t, q); c.Status != rerank.StatusUnknown || c.Uncalibrated != "" || !drawn {
					t.Fatalf("query %d: %+v, drawn: %t", i, c, drawn)
				}
			}
			if n := s.counts.of(calibrate.OutcomeSampled); n != 200 {
				t.Fatalf("%d answers were sampled", n)
			}
			c, _ := s.draw(t, queries(31, 1, 0)[0])
			if c.Status != rerank.StatusCalibrated || c.Calibration.Queries != 200 || c.Calibration.K != 10 || c.Calibration.Rule.Depth != c.Depth {
				t.Fatalf("%+v", c)
			}
			promised := c.Calibration.Recall
			if promised < .5 || promised == 1 {
				t.Errorf("a recall of %v is promised, by an index that misses a few rows", promised)
			}
			for _, q := range queries(32, 300, 0) {
				s.draw(t, q)
			}
			audit := s.keeper.Audit()
			if share := 1 - float64(audit.Missed)/float64(audit.Audited); audit.Audited < 300 || share < .95 || audit.Rejected != nil {
				t.Errorf("the promise was kept by %v of %d answers", share, audit.Audited)
			}
			for _, q := range queries(33, 600, 1.5) {
				if c, _ = s.draw(t, q); c.Calibration != nil && c.Calibration.Recall < promised {
					break
				}
			}
			if c.Calibration == nil || !(c.Calibration.Recall < promised) {
				t.Fatalf("after other queries: %+v, want a recall below %v; sampled %d", c, promised, s.counts.of(calibrate.OutcomeSampled))
			}
			if path == "" {
				return
			}
			report, err := calibrate.Load(path)
			must(t, err)
			if report.Source != calibrate.SelfSource || report.Calibration.Recall != c.Calibration.Recall {
				t.Errorf("the file has %+v", report)
			}
		})
	}
}

// TestSelfCalibrationWaitsForTheIndex: answers found while the store builds its index, of which other rows are found
// later, count for no calibration; nor does a scan begin.
func TestSelfCalibrationWaitsForTheIndex(t *testing.T) {
	for _, scans := range []bool{false, true} {
		var store *lossy
		s := serveSelf(t, "", calibrate.Scans{RowsPerSecond: 1 << 30}, func(_ *route.Route, l *lossy) { store, l.neverExact = l, scans })
		if scans {
			for _, q := range queries(35, 209, 0) { // nine of them fail, after which queries are kept for a scan
				s.draw(t, q)
			}
		}
		store.indexing = "3 of 7 rows"
		now := time.Now()
		for _, q := range queries(36, 200, 0) {
			s.draw(t, q)
		}
		if s.auditor.ScanAt(t.Context(), s.Engine, now) {
			t.Error("a scan begins while the index is built")
		}
		if n := s.counts.of(calibrate.SkippedIndexing); !scans && n != 200 {
			t.Errorf("%d of 200 answers were left out", n)
		}
		store.indexing = ""
		for _, q := range queries(37, 200, 0) {
			s.draw(t, q)
		}
		if scans != s.auditor.ScanAt(t.Context(), s.Engine, now) {
			t.Errorf("a scan after the index was built: want %t", scans)
		}
		if c, _ := s.draw(t, queries(38, 1, 0)[0]); c.Status != rerank.StatusCalibrated || c.Calibration.Queries != 200 {
			t.Errorf("after the index was built: %+v", c)
		}
	}
}

// TestSelfCalibrationByScans: where the store gives no exact answers, the route goes over to reading its collection, once for two
// hundred queries. The scan that makes the calibration begins at once, since the collection is small; those that audit it wait for
// their hour.
func TestSelfCalibrationByScans(t *testing.T) {
	day, night := time.Date(2026, 11, 27, 12, 0, 0, 0, time.Local), time.Date(2026, 11, 27, 3, 30, 0, 0, time.Local)
	s := serveSelf(t, "", calibrate.Scans{At: 3 * time.Hour, RowsPerSecond: 1 << 30}, func(_ *route.Route, l *lossy) { l.neverExact = true })
	ask := func(seed uint64, n int, shift float32) (c rerank.Certificate) {
		for _, q := range queries(seed, n, shift) {
			c, _ = s.draw(t, q)
		}
		return c
	}
	scanned := func(now time.Time) bool { return s.auditor.ScanAt(t.Context(), s.Engine, now) }
	ask(40, 9, 0)
	if n := s.counts.of(calibrate.SkippedFailed); n != 9 || s.counts.total() != 9 {
		t.Fatalf("%d exact answers failed, of %d", n, s.counts.total())
	}
	ask(41, 199, 0)
	if scanned(day) {
		t.Fatal("the collection was read for 199 queries")
	}
	if c := ask(42, 1, 0); c.Status != rerank.StatusUnknown {
		t.Fatalf("after 200 queries: %+v", c)
	}
	before := s.looks.Load()
	if !scanned(day) {
		t.Fatal("after 200 queries the collection was not read")
	}
	if looks := s.looks.Load() - before; looks < 201 { // after each batch of rows, and before each search
		t.Errorf("the scan looked %d times whether live searches need the processors", looks)
	}
	c := ask(43, 1, 0)
	if c.Status != rerank.StatusCalibrated || c.Calibration.Queries != 200 || c.Calibration.K != 10 {
		t.Fatalf("after the scan: %+v", c)
	}
	promised := c.Calibration.Recall
	if promised < .5 || promised == 1 {
		t.Errorf("a recall of %v is promised, by an index that misses a few rows", promised)
	}
	ask(44, 300, 0)
	if scanned(day) || !scanned(night) {
		t.Error("the scan that audits a calibration does not begin at night, and then only")
	}
	audit := s.keeper.Audit()
	if share := 1 - float64(audit.Missed)/float64(audit.Audited); audit.Audited != 200 || share < .95 || audit.Rejected != nil {
		t.Errorf("the promise was kept by %v of %d answers", share, audit.Audited)
	}
	for seed := uint64(45); seed < 48 && s.keeper.Audit().Rejected == nil; seed++ {
		ask(seed, 200, 1.5)
		scanned(night)
	}
	if s.keeper.Audit().Rejected == nil {
		t.Fatalf("other queries do not end the promise: %+v", s.keeper.Audit())
	}
	ask(50, 300, 1.5) // some of them are answered at twice the depth, and count for themselves
	scanned(day)
	if c = ask(51, 1, 1.5); c.Calibration == nil || !(c.Calibration.Recall < promised) {
		t.Errorf("after other queries: %+v, want a recall below %v", c, promised)
	}
}

// TestFailedScan: a scan that fails promises nothing, and the next one has its queries.
func TestFailedScan(t *testing.T) {
	var failing atomic.Bool
	s := serveSelf(t, "", calibrate.Scans{RowsPerSecond: 1 << 30}, func(_ *route.Route, l *lossy) {
		l.neverExact, l.after = true, func(int64) error {
			if failing.Load() {
				return adapters.ErrUnavailable
			}
			return nil
		}
	})
	for _, q := range queries(60, 209, 0) {
		s.draw(t, q)
	}
	failing.Store(true)
	if !s.auditor.ScanAt(t.Context(), s.Engine, time.Now()) {
		t.Fatal("the collection was not read")
	}
	failing.Store(false)
	if c, _ := s.draw(t, queries(61, 1, 0)[0]); c.Status != rerank.StatusUnknown {
		t.Fatalf("after the failed scan: %+v", c)
	}
	if !s.auditor.ScanAt(t.Context(), s.Engine, time.Now()) {
		t.Fatal("the collection was not read again")
	}
	if c, _ := s.draw(t, queries(62, 1, 0)[0]); c.Status != rerank.StatusCalibrated {
		t.Errorf("after the second scan: %+v", c)
	}
}

// TestSelfCalibrationLeavesTheOperatorsAlone: a calibration that somebody made is audited, and not replaced when it is rejected.
func TestSelfCalibrationLeavesTheOperatorsAlone(t *testing.T) {
	report, path := calibrated(t, t.TempDir())
	s := serveSelf(t, path, calibrate.Scans{})
	for _, q := range queries(34, 600, 1.5) {
		if c, _ := s.draw(t, q); c.Status == rerank.StatusUnknown {
			break
		}
	}
	if s.keeper.Audit().Rejected == nil {
		t.Fatal("the calibration was not rejected")
	}
	for _, q := range queries(35, 300, 0) {
		s.draw(t, q)
	}
	if now, err := calibrate.Load(path); err != nil || !now.Calibration.Made.Equal(report.Calibration.Made) || s.counts.of(calibrate.OutcomeSampled) != 0 {
		t.Errorf("%+v, %v; %d answers were sampled", now, err, s.counts.of(calibrate.OutcomeSampled))
	}
}

// TestNoSelfCalibration: of answers that are not what the route gives to a plain search nothing is
// learned, and a store that cannot search exactly is asked ten times.
func TestNoSelfCalibration(t *testing.T) {
	q := queries(36, 1, 0)[0]
	s := serveSelf(t, filepath.Join(t.TempDir(), "none.json"), calibrate.Scans{}, func(_ *route.Route, l *lossy) { l.neverExact = true })
	gap := float32(1)
	for name, change := range map[string]func(*search.Request){
		"a filter": func(r *search.Request) { r.Filter = `{}` },
		"a gap":    func(r *search.Request) { r.MaxGap = &gap },
	} {
		if _, drawn := s.draw(t, q, change); drawn {
			t.Errorf("the answer to a search with %s was drawn", name)
		}
	}
	for range 30 {
		s.draw(t, q)
	}
	if n := s.counts.of(calibrate.SkippedFailed); n != 10 || s.counts.total() != 10 {
		t.Errorf("%d exact answers were asked for in vain, of %d", n, s.counts.total())
	}
}
