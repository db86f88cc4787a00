package calibrate_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// calibrated stores a calibration of a route in a folder, and returns its file.
func calibrated(t *testing.T, dir string) (*calibrate.Report, string) {
	t.Helper()
	once.Do(func() {
		r, _ := newRoute(t, true)
		report, err := calibrate.Run(t.Context(), input(r))
		must(t, err)
		first, err = json.Marshal(report)
		must(t, err)
	})
	report := &calibrate.Report{}
	must(t, json.Unmarshal(first, report))
	path := calibrate.Path(dir, "things", version)
	must(t, report.Save(path))
	return report, path
}

// first is the calibration with which all tests begin, as JSON.
var (
	once  sync.Once
	first []byte
)

// served is a pipeline with a route that uses the promise at path, and its auditor.
type served struct {
	*search.Engine
	keeper  *calibrate.Keeper
	auditor *calibrate.Auditor
	counts  *counts
	looks   atomic.Int64 // at whether the sidecar is busy
	stop    func()
}

func serve(t *testing.T, path string, busy func() bool, change ...func(*route.Route, *lossy)) *served {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	r, store := newRoute(t, true)
	for _, c := range change {
		c(r, store)
	}
	s := &served{keeper: calibrate.Keep(path, .01), counts: &counts{}}
	r.Promise = s.keeper
	s.auditor = calibrate.NewAuditor(calibrate.AuditorOptions{
		Routes: map[string]calibrate.Audits{"things": {Share: 1, PerSecond: 1e9}}, Busy: busy, Recorder: s.counts, Logger: quiet(),
		DescribeEvery: 20 * time.Millisecond,
	})
	var err error
	s.Engine, err = search.New([]*route.Route{r}, search.Options{Observer: s.auditor})
	must(t, err)
	must(t, s.Open(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.auditor.Run(ctx, s.Engine) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-ended)
	})
	t.Cleanup(s.stop)
	return s
}

// ask searches, waits until the answer was audited, and returns its certificate.
func (s *served) ask(t *testing.T, q rerank.Query, change ...func(*search.Request)) rerank.Certificate {
	t.Helper()
	r := search.Request{Route: "things", Query: q, K: 10}
	for _, c := range change {
		c(&r)
	}
	before := s.counts.total()
	a, err := s.Search(t.Context(), r)
	must(t, err)
	if a.Certificate.Status == rerank.StatusCalibrated {
		s.counts.await(before + 1)
	}
	return a.Certificate
}

// counts is a Recorder.
type counts struct {
	mu       sync.Mutex
	changed  sync.Cond
	outcomes map[string]int
	holds    bool
	evidence float64
}

func (c *counts) Audited(_, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outcomes == nil {
		c.outcomes = map[string]int{}
	}
	c.outcomes[outcome]++
	c.cond().Broadcast()
}

func (c *counts) Promise(_ string, holds bool, _, evidence float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds, c.evidence = holds, evidence
	c.cond().Broadcast()
}

func (c *counts) cond() *sync.Cond {
	if c.changed.L == nil {
		c.changed.L = &c.mu
	}
	return &c.changed
}

func (c *counts) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v := range maps.Values(c.outcomes) {
		n += v
	}
	return n
}

func (c *counts) await(n int) {
	for c.total() < n {
		c.mu.Lock()
		sum := 0
		for v := range maps.Values(c.outcomes) {
			sum += v
		}
		if sum < n {
			c.cond().Wait()
		}
		c.mu.Unlock()
	}
}

func (c *counts) promised() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds
}

// awaitVoid waits until the promise is no longer claimed.
func (c *counts) awaitVoid() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.holds || c.evidence == 0 {
		c.cond().Wait()
	}
}

func (c *counts) of(outcome string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes[outcome]
}

// TestAudit: the promise stands while queries resemble the calibration's. When they shift it is
// rejected, stays rejected over a restart, and returns with another calibration.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	report, path := calibrated(t, dir)
	s := serve(t, path, nil)
	for _, q := range queries(20, 150, 0) {
		if c := s.ask(t, q); c.Status != rerank.StatusCalibrated || c.Depth != report.Calibration.Rule.Depth {
			t.Fatalf("%+v, want calibrated at depth %d", c, report.Calibration.Rule.Depth)
		}
	}
	audit := s.keeper.Audit()
	if audit.Audited != 150 || audit.Rejected != nil || audit.MeanRecall() < .9 || s.counts.of(calibrate.OutcomeKept)+s.counts.of(calibrate.OutcomeMissed) != 150 {
		t.Fatalf("audit %+v", audit)
	}

	rejected := 0
	for i, q := range queries(21, 300, 1.5) {
		if c := s.ask(t, q); c.Status == rerank.StatusUnknown {
			rejected = i
			if !strings.Contains(c.Uncalibrated, "rejected by the audit") || c.Calibration != nil || c.Depth != report.Calibration.Rule.Depth {
				t.Errorf("%+v", c)
			}
			break
		}
	}
	if rejected == 0 || s.keeper.Audit().Rejected == nil || s.counts.promised() {
		t.Fatalf("other queries are not noticed: %+v", s.keeper.Audit())
	}
	if a := calibrate.Keep(path, .01).Audit(); a.Rejected == nil {
		t.Errorf("a crash now would forget that the promise is rejected: %+v", a)
	}
	t.Logf("rejected after %d other queries, e-value %.3g", rejected, s.keeper.Audit().Evidence)
	s.stop()

	s = serve(t, path, nil)
	if c := s.ask(t, queries(20, 1, 0)[0]); c.Status != rerank.StatusUnknown || !strings.Contains(c.Uncalibrated, "rejected") {
		t.Errorf("after a restart: %+v", c)
	}
	report.Calibration.Made = report.Calibration.Made.Add(time.Hour)
	must(t, report.Save(path))
	if !s.keeper.Refresh() {
		t.Fatal("the new calibration is not seen")
	}
	if c := s.ask(t, queries(20, 1, 0)[0]); c.Status != rerank.StatusCalibrated || s.keeper.Audit().Audited != 1 {
		t.Errorf("after another calibration: %+v, audit %+v", c, s.keeper.Audit())
	}
}

// TestAuditIsKept: what an audit knows survives a restart.
func TestAuditIsKept(t *testing.T) {
	dir := t.TempDir()
	_, path := calibrated(t, dir)
	s := serve(t, path, nil)
	for _, q := range queries(20, 25, 0) {
		s.ask(t, q)
	}
	s.stop()
	if a := calibrate.Keep(path, .01).Audit(); a.Audited != 25 || a.RecallSum == 0 {
		t.Errorf("%+v", a)
	}
}

// TestNotAudited: answers without the promise are not audited, and none is while the
// sidecar is busy.
func TestNotAudited(t *testing.T) {
	_, path := calibrated(t, t.TempDir())
	s := serve(t, path, func() bool { return true })
	s.ask(t, queries(20, 1, 0)[0])
	if s.counts.of(calibrate.SkippedLoad) != 1 {
		t.Errorf("%d answers were left out for the load, want 1", s.counts.of(calibrate.SkippedLoad))
	}
	for _, change := range []func(*search.Request){
		func(r *search.Request) { r.Depth = 10 },
		func(r *search.Request) { r.K = 9 },
		func(r *search.Request) { r.Filter = `{"must":[{"has_id":[1,2,3]}]}` },
		func(r *search.Request) { r.Strategy = rerank.Scan },
	} {
		if c := s.ask(t, queries(20, 1, 0)[0], change); c.Status == rerank.StatusCalibrated {
			t.Errorf("%+v", c)
		}
	}
	s.stop()
	if a := s.keeper.Audit(); a.Audited != 0 || s.counts.total() != 1 {
		t.Errorf("audit %+v, %d outcomes", a, s.counts.total())
	}
}

// TestMisfit: a calibration is not claimed of a route that is not what was calibrated.
func TestMisfit(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*route.Route, *lossy)
		why    string
		keeps  bool // the depth
	}{
		{"as calibrated", func(*route.Route, *lossy) {}, "", true},
		{"other weights", func(r *route.Route, _ *lossy) { r.Weights = rerank.GateWeights }, "weights gates", false},
		{"less depth", func(r *route.Route, _ *lossy) { r.MaxDepth, r.Depth = 20, 20 }, "max_depth 20", false},
		{"another index", func(_ *route.Route, l *lossy) { l.settings.Store(&map[string]string{"index": "hnsw, m 4"}) }, `index setting collection.index was "brute force" and is "hnsw, m 4"`, true},
		{"another setting", func(_ *route.Route, l *lossy) {
			l.settings.Store(&map[string]string{"index": "brute force", "ef": "9"})
		}, `index setting collection.ef was "" and is "9"`, true},
		{"more segments", func(_ *route.Route, l *lossy) {
			l.settings.Store(&map[string]string{"index": "brute force", "segments": "7"})
		}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, path := calibrated(t, t.TempDir())
			s := serve(t, path, nil, c.change)
			got, void := s.keeper.Calibration()
			if (void == "") != (c.why == "") || !strings.Contains(void, c.why) || (got != nil) != c.keeps {
				t.Errorf("calibration %+v, not claimed because of %q, want %q", got, void, c.why)
			}
			cert := s.ask(t, queries(20, 1, 0)[0])
			if (cert.Status == rerank.StatusCalibrated) != (c.why == "") || cert.Uncalibrated != void || c.keeps && cert.Depth != report.Calibration.Rule.Depth {
				t.Errorf("%+v", cert)
			}
		})
	}
}

// TestIndexChanges: an index that changes while it is searched is noticed.
func TestIndexChanges(t *testing.T) {
	_, path := calibrated(t, t.TempDir())
	var store *lossy
	s := serve(t, path, nil, func(_ *route.Route, l *lossy) { store = l })
	if _, void := s.keeper.Calibration(); void != "" {
		t.Fatal(void)
	}
	store.settings.Store(&map[string]string{"index": "hnsw, m 4"})
	s.counts.awaitVoid()
	if c, void := s.keeper.Calibration(); c == nil || !strings.Contains(void, "hnsw, m 4") {
		t.Errorf("%+v, %q", c, void)
	}
}

// TestVersions: each model version has a calibration of its own.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	_, path := calibrated(t, dir)
	if other := calibrate.Path(dir, "things", "other"); other == path {
		t.Error("two versions share a file")
	} else if c, void := calibrate.Keep(other, .01).Calibration(); c != nil || void != "" {
		t.Errorf("a version without a calibration: %+v, %q", c, void)
	}
}

// TestBrokenFile: a file that cannot be used is said to be so, and promises nothing.
func TestBrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calibration-1.json")
	for _, content := range []string{"", "{", `{}`, `{"calibration":{"recall":0.9,"share":0.95,"alpha":0.05,"queries":10,"k":10,"rule":{"strategy":"average","depth":5}}}`} {
		must(t, os.WriteFile(path, []byte(content), 0o600))
		c, void := calibrate.Keep(path, .01).Calibration()
		if c != nil || !strings.Contains(void, path) || !strings.Contains(void, "calibrate again") {
			t.Errorf("%q: %+v, %q", content, c, void)
		}
	}
}

// FuzzLoad: whatever a calibration file holds, it is refused or promises what its
// queries can show.
func FuzzLoad(f *testing.F) {
	good, _ := json.Marshal(calibrate.Report{Calibration: &rerank.Calibration{
		Recall: .9, Share: .95, Alpha: .05, Queries: 100, K: 10, Rule: rerank.Rule{Strategy: rerank.Average, Depth: 20},
	}})
	f.Add(good)
	f.Add([]byte(`{"calibration":{"queries":-1}}`))
	f.Add([]byte(`{"calibration":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "c.json")
		must(t, os.WriteFile(path, content, 0o600))
		r, err := calibrate.Load(path)
		if err == nil && (r.Calibration.Rule.Depth < 1 || r.Calibration.K < 1 || !(r.Calibration.Share > 0 && r.Calibration.Share < 1)) {
			t.Errorf("%+v", r.Calibration)
		}
	})
}
