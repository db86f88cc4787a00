package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// down is a store that does not answer.
type down struct{ adapters.Store }

func (down) Broken() []string { return []string{"<i>c", "d"} }

func (down) Ping(context.Context) error {
	return fmt.Errorf("%w: canary of a store's own words", adapters.ErrUnavailable)
}

// TestTrouble: a store is in trouble while searches fail because of it, and no longer.
func TestTrouble(t *testing.T) {
	w := telemetry.NewSearchHistory([]string{"things"})
	answered := search.Answer{Timings: search.Timings{Retrieve: time.Millisecond}}
	degraded := search.Answer{Degraded: &search.Degraded{Reason: failure.Store}}
	for i, c := range []struct {
		answer search.Answer
		err    error
		want   string // the number of searches; empty: no line
	}{
		{answered, nil, ""},
		{search.Answer{}, fmt.Errorf("x: %w", adapters.ErrUnavailable), "unavailable 1"},
		{search.Answer{}, plan.ErrRequest, "unavailable 1"}, // says nothing of the store
		{search.Answer{}, nil, "unavailable 1"},             // neither does a scan of the table
		{degraded, nil, "store_failed 2"},
		{answered, nil, ""},
		{search.Answer{}, context.Canceled, ""},
	} {
		w.Searched(t.Context(), "things", search.Request{}, c.answer, c.err)
		got := ""
		if trouble := w.Trouble("things"); trouble != nil {
			got = fmt.Sprint(trouble.Error, " ", trouble.Searches)
		}
		if got != c.want {
			t.Errorf("after %d: %q, want %q", i, got, c.want)
		}
	}
	w.Searched(t.Context(), "another's", search.Request{}, answered, nil)
	if w.Trouble("another's") != nil {
		t.Error("a route that does not exist is watched")
	}
}

// TestBoard: every part shows its source's values, escaped, and never a store's own error text.
func TestBoard(t *testing.T) {
	w := telemetry.NewSearchHistory([]string{"<i>things"})
	for i := range 600 {
		w.Searched(t.Context(), "<i>things", search.Request{}, search.Answer{Timings: search.Timings{Total: time.Duration(i+1) * time.Millisecond}}, nil)
	}
	w.Searched(t.Context(), "<i>things", search.Request{}, search.Answer{}, errors.New("canary"))
	b := telemetry.NewStatusBoard(telemetry.StatusSources{
		Watch:  w,
		Stores: []telemetry.StoreStatus{{Name: "main", Kind: "qdrant", Address: "db:6334", Pinged: down{}}},
		Ready:  func() (bool, string) { return true, "ok\nroute <i>things: waits" },
		Routes: func() []*route.Route {
			return []*route.Route{{Policy: route.Policy{Name: "<i>things", StoreName: "main", EmbedderName: "<i>mini"}, WhyNotRewritten: "field <i>v"}}
		},
		Waiting: func(string) string { return "not checked yet" },
		Plugins: func() []plugins.State {
			return []plugins.State{{Name: "p", Status: plugins.Quarantined, LastError: "canary"}}
		},
		Unanswered: func() map[string]telemetry.Unanswered {
			return map[string]telemetry.Unanswered{"<i>things": {Status: "passed; reason=vector", Searches: 41}}
		},
		Off: func() map[string]bool { return map[string]bool{"<i>things": false} },
		Proxied: func(string) (telemetry.ProxyCounts, []telemetry.Comparison) {
			return telemetry.ProxyCounts{Rewritten: 7, Passed: map[string]int64{"filter": 2, "ramp": 3}},
				[]telemetry.Comparison{{RankBiased: 0.25, Served: []rerank.ID{rerank.TextID("<i>x")}, Rescored: []rerank.ID{rerank.UintID(8)}}}
		},
		Embedders: func() map[string]embed.State {
			return map[string]embed.State{"<i>mini": {Name: "<i>mini", Host: "models:80", Breaker: "open", Calls: 9, Failed: 2, Failure: "timeout", Found: 40, Missed: 7, P50: .012, P95: .034}}
		},
		Rankers: func() []telemetry.RankerStatus {
			return []telemetry.RankerStatus{{Name: "r", Source: "rerank:80", State: "half-open"}}
		},
	})
	s := b.Status(t.Context())
	if !s.Ready || len(s.Detail) != 1 || len(s.Routes) != 1 || s.Routes[0].Searches.Rescored != 600 || s.Routes[0].Searches.Failed != 1 {
		t.Errorf("%+v", s)
	}
	r := s.Routes[0]
	if r.Open || r.Answers != 512 || len(r.Stages) == 0 {
		t.Fatalf("%+v", r)
	}
	// The last 512 answers took 89 to 600 ms.
	if total := r.Stages[len(r.Stages)-1]; total.Stage != "total" || total.P50 != .345 || total.P99 != .595 {
		t.Errorf("%+v", total)
	}
	if s.Stores[0].Answers || s.Stores[0].Error != "unavailable" || s.Stores[0].Breaker != "open for <i>c, d" {
		t.Errorf("%+v", s.Stores[0])
	}
	page, err := b.Handler()
	if err != nil {
		t.Fatal(err)
	}
	for path, wants := range map[string][]string{
		"/": {"&lt;i&gt;things", "not open", "quarantined", "half-open", "rerank:80", "345 ms", "left to the database", "the last 41, since never, were all answered by the database itself (passed; reason=vector)", "not rewritten: field &lt;i&gt;v",
			`data-embedder="&lt;i&gt;mini">&lt;i&gt;mini at models:80, breaker <span class="bad">open<`, "9 calls, 12 ms in the median, 34 ms at", "2 failed, also the last (timeout)", "40 texts found in the cache, 7 not",
			`data-count="proxy-rewritten">7<`, "5: ramp 3, filter 2", "<td>0.25</td><td class=\"ids\"><code>&lt;i&gt;x</code> </td><td class=\"ids\"><code>8</code> </td>", `data-post="/proxy/off" data-route="&lt;i&gt;things"`},
		"/status.json": {`"name": "p"`, `"cache_found": 40`, `"call_p95_seconds": 0.034`, `"breaker": "open for \u003ci\u003ec, d"`, `"p50_seconds": 0.345`, `"status": "passed; reason=vector"`, `"why_not_rewritten": "field \u003ci\u003ev"`, `"rewritten": 7`, `"rank_biased_overlap": 0.25`},
	} {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		body := answer.Body.String()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q:\n%s", path, want, body)
			}
		}
		if strings.Contains(body, "<i>") || path == "/" && strings.Contains(body, "canary") || strings.Contains(body, "own words") {
			t.Errorf("%s:\n%s", path, body)
		}
	}
}

// counting is a store that counts its pings.
type counting struct {
	adapters.Store

	pings int
}

func (c *counting) Ping(context.Context) error { c.pings++; return nil }

// TestPingsAreShared: two looks at the status ping a store once.
func TestPingsAreShared(t *testing.T) {
	store := &counting{}
	board := telemetry.NewStatusBoard(telemetry.StatusSources{Stores: []telemetry.StoreStatus{{Name: "s", Pinged: store}}})
	for range 2 {
		if s := board.Status(t.Context()); len(s.Stores) != 1 || !s.Stores[0].Answers {
			t.Errorf("%+v", s.Stores)
		}
	}
	if store.pings != 1 {
		t.Errorf("%d pings", store.pings)
	}
}

// TestProxyOfARoute: the status of a proxied route says how much is rescored and compared, and one of no proxy nothing.
func TestProxyOfARoute(t *testing.T) {
	r := &route.Route{Policy: route.Policy{Name: "r"}}
	r.Ramp, r.Shadow.Share = 30, 0.25
	for _, off := range []map[string]bool{nil, {"r": false}, {"r": true}} {
		board := telemetry.NewStatusBoard(telemetry.StatusSources{
			Routes: func() []*route.Route { return []*route.Route{r} }, Off: func() map[string]bool { return off },
		})
		got := board.Status(t.Context()).Routes[0]
		isOff, proxied := off["r"]
		if got.Off != isOff || (got.Proxy != nil) != proxied || proxied && (got.Proxy.Ramp != 30 || got.Proxy.Shadow != 0.25) {
			t.Errorf("off %v: %t, %+v", off, got.Off, got.Proxy)
		}
	}
}
