package telemetry_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// figures returns the values of a metric by its labels, ordered by name. For a histogram it returns
// sum and count.
func figures(t *testing.T, m prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "likeness_")
		if !ours {
			continue
		}
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.TrimSpace(name+" "+strings.Join(labels, " "))] = figure(one)
		}
	}
	return found
}

func figure(m *dto.Metric) string {
	if h := m.GetHistogram(); h != nil {
		return fmt.Sprintf("%.4g in %d", h.GetSampleSum(), h.GetSampleCount())
	}
	return fmt.Sprintf("%.4g", m.GetGauge().GetValue()+m.GetCounter().GetValue())
}

// expect compares the figures whose names begin with a prefix.
func expect(t *testing.T, m prometheus.Gatherer, prefixes []string, want map[string]string) {
	t.Helper()
	got := figures(t, m)
	maps.DeleteFunc(got, func(name, _ string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("and there are %v", got)
	}
}

// TestFiguresOfSearches: every number of an answer appears in its metric, in the right unit.
func TestFiguresOfSearches(t *testing.T) {
	m := metrics()
	answer := search.Answer{
		Strategy: rerank.Average, Certificate: rerank.Certificate{Status: rerank.StatusCalibrated, Candidates: 40, Rounds: 3}, NotFinite: 5, NotIndexed: 7,
		Timings: search.Timings{
			Embed: 6 * time.Millisecond, Encode: time.Millisecond, Retrieve: 2 * time.Millisecond, Score: 3 * time.Millisecond, Certify: 4 * time.Millisecond, Rank: 5 * time.Millisecond, Total: time.Minute,
		},
		Reembedded: &search.Reembedded{Candidates: 40, New: 17},
	}
	asked := search.Request{Strategy: rerank.Scan}
	m.Searched(t.Context(), "things", asked, answer, nil)
	answer.Ranking = &rank.Ranking{Calls: 11, Budget: 100, Rounds: 2, Cut: 13, Reason: rank.CutBudget}
	m.Searched(t.Context(), "things", asked, answer, nil)
	answer.Ranking.Cut, answer.Degraded = 0, &search.Degraded{Reason: failure.Scoring}
	m.Searched(t.Context(), "things", asked, answer, nil)
	m.Searched(t.Context(), "things", asked, search.Answer{}, adapters.ErrUnavailable)
	m.Searched(t.Context(), "things", asked, search.Answer{}, route.ErrUnknown)
	m.Searched(t.Context(), "of another process", asked, search.Answer{}, adapters.ErrUnavailable)
	expect(t, m, []string{"search", "candidates"}, map[string]string{
		"searches_total rescored things average": "2", "searches_total degraded things average": "1",
		"searches_total error things scan": "1", "searches_total error unknown scan": "2",
		"search_degraded_total " + failure.Scoring + " things": "1",
		"search_certificates_total things calibrated":          "3",
		"search_duration_seconds things":                       "180 in 3",
		"search_step_duration_seconds things embed":            "0.018 in 3",
		"search_step_duration_seconds things encode":           "0.003 in 3",
		"search_step_duration_seconds things retrieve":         "0.006 in 3",
		"search_step_duration_seconds things score":            "0.009 in 3",
		"search_step_duration_seconds things certify":          "0.012 in 3",
		"search_step_duration_seconds things rank":             "0.01 in 2",
		"search_candidates things":                             "120 in 3", "search_rounds things": "9 in 3",
		"candidates_not_finite_total things": "15", "candidates_not_indexed_total things": "21",
		"candidates_reembedded_total new things": "51", "candidates_reembedded_total bridge things": "69",
		"search_ranker_calls things": "22 in 2", "search_ranker_rounds things": "4 in 2", "search_ranker_cut_total budget things": "13",
	})
}

// TestFiguresOfRoutes: a route's metrics have the labels of the version in service, and no others.
func TestFiguresOfRoutes(t *testing.T) {
	m := metrics()
	expect(t, m, []string{"route_"}, map[string]string{"route_info m v table things main": "1", "route_open things": "0"})
	m.RouteServed(&route.Route{Policy: route.Policy{Name: "things", StoreName: "main", Placement: route.PlacementStored}, Parts: route.Parts{Model: route.Model{Name: "n", Version: "w"}}})
	m.RouteOpen("things", true)
	expect(t, m, []string{"route_"}, map[string]string{"route_info n w stored things main": "1", "route_open things": "1"})

	g := gate.New(gate.Options{ReceivedBytes: 1 << 20, Limits: gate.Limits{MaxSearches: 9, Adaptive: true, Routes: map[string]gate.Limit{"things": {MaxSearches: 3}}}})
	m.WatchGate(g)
	g.Hold(1 << 17)
	leave, err := g.Admit(t.Context(), "things")
	if err != nil {
		t.Fatal(err)
	}
	defer leave(nil)
	l, _ := g.Load("things")
	m.Refused("things", "rate")
	expect(t, m, []string{"admission_", "received_"}, map[string]string{
		"admission_limit things": fmt.Sprint(l.Limit), "admission_in_flight things": "1", "admission_queued things": "0",
		"received_bytes": "1.311e+05", "admission_refused_total rate things": "1",
	})
}

// TestFiguresOfWork: the counters of calls, stores, rankers, the proxy, audits and reloads.
func TestFiguresOfWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics()
		for _, end := range []func(){
			func() { ended := m.CallStarted(t.Context(), "Search"); time.Sleep(2 * time.Second); ended(codes.OK) }, //nolint:forbidigo // of the bubble: no time passes
			func() { m.CallStarted(t.Context(), "Search") },
			func() {
				ended := m.StoreCalled(t.Context(), "main", "fetch")
				time.Sleep(3 * time.Second) //nolint:forbidigo // of the bubble: no time passes
				ended(guard.OK)
			},
			func() { m.StoreCalled(t.Context(), "main", "fetch")(guard.Broken) },
			func() { m.StoreRetried("main", "scan"); m.StoreHedged("main"); m.StoreBroken("main", 4) },
			func() { ended := m.RankerCalled(t.Context(), "r", 32); time.Sleep(time.Second); ended(ranker.OK) }, //nolint:forbidigo // of the bubble: no time passes
			func() { m.RankerCalled(t.Context(), "r", 5) },
			func() { m.RankerRetried("r"); m.RankerNotAsked("r", 6, ranker.Late); m.RankerBroken("r", true) },
			func() {
				m.Proxied([]string{"things"}, "passed", "filter")
				m.Raced("late", "won")
				m.Switched("things", true)
			},
			func() {
				one, two := []rerank.ID{rerank.UintID(1)}, []rerank.ID{rerank.UintID(2)}
				m.Shadowed("things", telemetry.Comparison{Overlap: 0.5, RankBiased: 0.75, Served: one, Rescored: two})
				m.Shadowed("things", telemetry.Comparison{Overlap: 1, RankBiased: 1, Served: one, Rescored: one})
				m.Shadowed("things", telemetry.Comparison{Overlap: 1, RankBiased: 1})
				m.ShadowFailed("things", "busy")
			},
			func() { m.Audited("things", "kept"); m.Promise("things", true, 0.9, 7) },
			func() { m.Reloaded(true); m.Reloaded(false); m.RestartKeys(3); m.Panicked() },
		} {
			end()
		}
		expect(t, m, []string{"rpc_", "store_", "ranker_", "proxy_", "audit", "calibration", "config", "panics"}, map[string]string{
			"rpc_calls_total OK Search": "1", "rpc_duration_seconds Search": "2 in 1", "rpc_in_flight Search": "1",
			"store_calls_total fetch ok main": "1", "store_calls_total fetch broken main": "1", "store_call_duration_seconds fetch main": "3 in 1",
			"store_retries_total scan main": "1", "store_hedges_total main": "1", "store_broken main": "4",
			"ranker_calls_total ok r": "1", "ranker_items_total ok r": "32", "ranker_call_duration_seconds r": "1 in 1", "ranker_calls_in_flight r": "1",
			"ranker_retries_total r": "1", "ranker_items_not_asked_total r late": "6", "ranker_broken r": "1",
			"proxy_searches_total passed filter": "1", "proxy_originals_total late won": "1", "proxy_off things": "1",
			"proxy_shadow_overlap things": "2.5 in 3", "proxy_shadow_rank_biased_overlap things": "2.75 in 3",
			"proxy_shadow_first_changed_total things": "1", "proxy_shadow_failed_total busy things": "1",
			"audited_answers_total kept things": "1", "audit_recall things": "0.9", "audit_evidence things": "7", "calibration_holds things": "1",
			"config_reloads_total applied": "1", "config_reloads_total refused": "1", "config_last_reload_successful": "0", "config_restart_keys": "3", "panics_total": "1",
		})
	})
}

// TestFiguresOfStates: the states of followed tables, plugins and devices, which are read when the
// metrics are scraped.
func TestFiguresOfStates(t *testing.T) {
	m := metrics()
	m.WatchFollowing(func() []follow.Status {
		return []follow.Status{
			{Route: "behind", Pending: 2, Stale: true, Age: 3 * time.Second, Unjournaled: 4, JournalError: "full", PeerError: "gone", Failures: 5, Reconciling: true,
				Reconciled: time.UnixMilli(6500), Reconciles: 7, Rows: 8, Drift: follow.Drift{Missing: 9, Changed: 10, Surplus: 11, Unfit: 12},
				Foreign: &follow.Foreign{Rows: 13}},
			{Route: "fresh"},
		}
	})
	want := map[string]string{"reconcile_running fresh": "0"}
	for name, value := range map[string]string{
		"follow_pending": "2", "follow_stale": "1", "table_age_seconds": "3", "follow_unjournaled_total": "4", "follow_journal_failed": "1", "follow_sidecars_not_seen": "1", "follow_failures_total": "5", "follow_foreign_rows": "13",
		"reconcile_running": "1", "reconcile_last_timestamp_seconds": "6.5", "reconcile_runs_total": "7", "reconcile_rows_total": "8",
	} {
		want[name+" behind"], want[name+" fresh"] = value, "0"
	}
	for kind, value := range map[string]string{"missing": "9", "changed": "10", "surplus": "11", "unfit": "12"} {
		want["drift_rows "+kind+" behind"], want["drift_rows "+kind+" fresh"] = value, "0"
	}
	expect(t, m, []string{"follow", "table_", "reconcile", "drift"}, want)

	m.WatchPlugins(func() []plugins.State {
		return []plugins.State{
			{Name: "p", Status: plugins.Ready, Since: time.UnixMilli(2500), Resident: 3, Restarts: 4, Ends: map[plugins.Reason]int64{plugins.Hung: 5}},
			{Name: "q", Status: plugins.Quarantined, Since: time.UnixMilli(1500)},
			{Name: "s", Status: plugins.Starting},
		}
	})
	want = map[string]string{}
	for name, values := range map[string][3]string{
		"plugin_up": {"1", "0", "0"}, "plugin_quarantined": {"0", "1", "0"}, "plugin_status_timestamp_seconds": {"2.5", "1.5", "0"},
		"plugin_resident_memory_bytes": {"3", "0", "0"}, "plugin_restarts_total": {"4", "0", "0"},
	} {
		want[name+" p"], want[name+" q"], want[name+" s"] = values[0], values[1], values[2]
	}
	for _, reason := range plugins.Reasons() {
		for _, name := range []string{"p", "q", "s"} {
			want[fmt.Sprintf("plugin_ends_total %s %s", name, reason)] = "0"
		}
	}
	want["plugin_ends_total p hung"] = "5"
	expect(t, m, []string{"plugin"}, want)

	m.WatchDevices(func() []offload.Status {
		return []offload.Status{
			{Route: "r", Version: "v", Plugin: "gpu", State: offload.Ready, Rows: 2, Loads: 3, Patches: 4, Answers: map[string]int64{offload.Used: 5}},
			{Route: "r", Version: "v", Plugin: "gpu", State: offload.Broken}, // of the version that is being reopened
			{Route: "s", Version: "v", Plugin: "gpu", State: offload.Broken},
		}
	})
	want = map[string]string{}
	for name, values := range map[string][2]string{"device_ready": {"1", "0"}, "device_broken": {"0", "1"}, "device_rows": {"2", "0"}, "device_loads_total": {"3", "0"}, "device_patches_total": {"4", "0"}} {
		want[name+" gpu r v"], want[name+" gpu s v"] = values[0], values[1]
	}
	for _, outcome := range offload.Outcomes() {
		want[fmt.Sprintf("device_answers_total %s gpu r v", outcome)], want[fmt.Sprintf("device_answers_total %s gpu s v", outcome)] = "0", "0"
	}
	want["device_answers_total used gpu r v"] = "5"
	expect(t, m, []string{"device"}, want)
}

// TestWrongNorms: the routes that declare unit_vectors say whether a row contradicts them.
func TestWrongNorms(t *testing.T) {
	m := metrics()
	routes := []*route.Route{{Policy: route.Policy{Name: "none"}}}
	for _, name := range []string{"right", "wrong"} {
		r := &route.Route{Policy: route.Policy{Name: name}}
		r.Norms = new(route.Norms)
		r.Norms.See([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{map[string]float32{"right": -1, "wrong": 2}[name]}})
		routes = append(routes, r)
	}
	m.WatchNorms(func() []*route.Route { return routes })
	expect(t, m, []string{"wrong_norm"}, map[string]string{"wrong_norm right": "0", "wrong_norm wrong": "1"})
}

// TestHistoryOfTrouble: trouble with a store begins with the first search that fails by it, counts
// the others, and ends with an answer from the store.
func TestHistoryOfTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := telemetry.NewSearchHistory([]string{"things"})
		began := time.Now()
		for range 3 {
			h.Searched(t.Context(), "things", search.Request{}, search.Answer{}, adapters.ErrUnavailable)
			time.Sleep(time.Hour) //nolint:forbidigo // of the bubble: no time passes
		}
		if got := h.Trouble("things"); got == nil || got.Searches != 3 || !got.Since.Equal(began) {
			t.Errorf("after three searches: %+v, want since %s", got, began)
		}
		h.Searched(t.Context(), "things", search.Request{}, search.Answer{}, nil) // a scan, which asks no store
		if h.Trouble("things") == nil {
			t.Error("an answer without the store ends the trouble")
		}
		h.Searched(t.Context(), "things", search.Request{}, search.Answer{Timings: search.Timings{Retrieve: time.Millisecond}}, nil)
		if got := h.Trouble("things"); got != nil {
			t.Errorf("after an answer of the store: %+v", got)
		}
	})
}
