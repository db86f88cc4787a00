package serve_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
)

// TestServedPromise: a sidecar claims the calibration that its state folder gets while
// it runs, in answers and in the catalog, and shows it in the metrics.
func TestServedPromise(t *testing.T) {
	state := t.TempDir()
	s := start(t, base+"state_dir: "+state+"\n", true)
	defer func() {
		s.stop()
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	}()
	a, err := s.search(t, "things")
	if err != nil {
		t.Fatal(err)
	}
	path := calibrate.Path(state, "things", a.GetModel().GetVersion())
	made := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	report := calibrate.Report{
		Route: "things", Collection: "things", Version: a.GetModel().GetVersion(), Settings: map[string]string{"collection.index": "other"},
		Calibration: &rerank.Calibration{
			Recall: .9, Share: .95, Alpha: .05, Queries: 100, K: 2, Made: made,
			Rule: rerank.Rule{Strategy: rerank.Average, Depth: 2, Weights: rerank.UniformWeights},
		},
	}
	if err := report.Save(path); err != nil {
		t.Fatal(err)
	}
	route := func(ready func(*likenessv1.Route) bool) *likenessv1.Route {
		t.Helper()
		r, err := backoff.Retry(t.Context(), func() (*likenessv1.Route, error) {
			r, err := likenessv1.NewCatalogServiceClient(s.conn).GetRoute(t.Context(), &likenessv1.GetRouteRequest{Name: "things"})
			if err == nil && !ready(r.GetRoute()) {
				err = context.DeadlineExceeded
			}
			return r.GetRoute(), err
		}, backoff.WithBackOff(backoff.NewConstantBackOff(50*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	void := route(func(r *likenessv1.Route) bool { return r.GetUncalibrated() != "" })
	if !strings.Contains(void.GetUncalibrated(), `index setting collection.index was "other"`) || void.GetCalibration().GetDepth() != 2 {
		t.Errorf("%v", void)
	}
	report.Settings = map[string]string{"collection.index": "brute force"}
	report.Calibration.Queries = 200
	if err := report.Save(path); err != nil {
		t.Fatal(err)
	}
	c := route(func(r *likenessv1.Route) bool { return r.GetUncalibrated() == "" }).GetCalibration()
	if c.GetQueries() != 200 || c.GetK() != 2 || c.GetRecall() != .9 || c.GetShare() != .95 || !c.GetMade().AsTime().Equal(made) {
		t.Errorf("%v", c)
	}
	if code, body := s.get(t, "/metrics"); code != 200 || !strings.Contains(body, `likeness_calibration_holds{route="things"} 1`) {
		t.Errorf("%d\n%s", code, body)
	}
}

// TestAuditNeeds: what an audit needs is said when the configuration is read.
func TestAuditNeeds(t *testing.T) {
	file := files(t, strings.Replace(base, "exact_search: true", "exact_search: true, audit: {share: 0.1}", 1))
	_, err := config.Load(config.Source{File: file, Environ: []string{}})
	if err == nil || !strings.Contains(err.Error(), "state_dir") || !strings.Contains(err.Error(), "an audit scores a table") {
		t.Errorf("error %v", err)
	}
}
