package rollout_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/bench"
)

// reload makes a sidecar read its configuration again, and returns the keys that took effect.
func (s *sidecar) reload(t testing.TB) []string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.adminPort+"/reload", http.NoBody)
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	must(t, err)
	defer answer.Body.Close()
	var out struct {
		Applied []string
		Error   string
	}
	must(t, json.NewDecoder(answer.Body).Decode(&out))
	if out.Error != "" {
		t.Fatalf("%s: %s", answer.Status, out.Error)
	}
	return out.Applied
}

// TestReloadsUnderLoad changes keys of a route and its version by reloading the configuration while
// the route is searched. No search fails, every answer is one version's own, and a replaced version
// ends with its last search. With LIKENESS_SOAK there are 100 reloads under 500 searches a second.
func TestReloadsUnderLoad(t *testing.T) {
	reloads, rate, between := 10, 0.0, 20
	if os.Getenv("LIKENESS_SOAK") != "" {
		reloads, rate, between = 100, 500, 250
	}
	w := newWorld(t)
	s, err := w.run(t, "listen.admin=127.0.0.1:0")
	must(t, err)
	u := &under{world: w, s: s, t: t, rate: rate}
	u.more.L = &u.mu
	quiet := u.during(func() { u.await(between * reloads / 3) })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	busy := u.during(func() {
		for n := range reloads {
			text := strings.Replace(configuration, "limits: {adaptive: false}",
				fmt.Sprintf("limits: {adaptive: %v, max_searches: %d}\nlog: {level: %s}", n%5 == 4, 1024+n, []string{"warn", "info"}[n%2]), 1)
			text = strings.Replace(text, "strategy: scan", fmt.Sprintf("strategy: scan\n    timeout: %dms\n    max_rounds: %d", 5000+n, 1+n%7), 1)
			want := "routes.things.timeout"
			if n%10 == 9 {
				text, want = strings.Replace(text, "active: v1", fmt.Sprintf("active: v%d", 1+n/10%2), 1), "routes.things.active"
			} else {
				text = strings.Replace(text, "active: v1", fmt.Sprintf("active: v%d", 1+max(0, n/10-1)%2), 1)
			}
			w.configure(t, text)
			if applied := s.reload(t); n/10 > 0 && n%10 == 9 && !strings.Contains(strings.Join(applied, " "), want) {
				t.Errorf("reload %d changed %v, want %s among them", n, applied, want)
			}
			u.await(between)
		}
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	l, q := busy.Latency[bench.Good], quiet.Latency[bench.Good]
	t.Logf("reliability row=27 figure=%d reloads under %d searches: %d failed, p99 %.2f ms against %.2f without, heap %d KiB before and %d after",
		reloads, busy.Calls, busy.Calls-busy.Outcomes[bench.Good], l.P99, q.P99, before.HeapAlloc>>10, after.HeapAlloc>>10)
	s.stop()
	if n := w.mapped(); n > 0 {
		t.Errorf("%d mappings of the world's files are left", n)
	}
}
