package rollout_test

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// under is a load of searches. Each answer is compared with the version that it names.
type under struct {
	*world
	s    *sidecar
	t    *testing.T
	rate float64  // 0: four callers that wait for each answer
	met  sync.Map // the versions that answered

	mu      sync.Mutex
	more    sync.Cond // signals further answers
	answers int
}

// call makes a search or, occasionally, a batch of three that one version must answer.
func (u *under) call(ctx context.Context, n int) bench.Outcome {
	query := n % u.queries.Rows
	var all []*likenessv1.SearchResponse
	var err error
	if n%8 == 0 {
		one := u.request(query)
		var r *likenessv1.SearchBatchResponse
		r, err = u.s.search.SearchBatch(ctx, &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{one, one, one}})
		for _, x := range r.GetResults() {
			if x.GetError() != nil {
				u.t.Errorf("a search of a batch failed: %v", x.GetError())
			}
			all = append(all, x.GetResponse())
		}
	} else {
		var r *likenessv1.SearchResponse
		r, err = u.s.search.Search(ctx, u.request(query))
		all = append(all, r)
	}
	if err != nil {
		if ctx.Err() == nil {
			u.t.Errorf("search %d: %v", n, err)
		}
		return bench.Failed
	}
	for _, a := range all {
		if err := u.agrees(query, a); err != nil {
			u.t.Errorf("search %d: %v", n, err)
			return bench.Failed
		}
		if a.GetModel().GetVersion() != all[0].GetModel().GetVersion() {
			u.t.Errorf("search %d: one batch has answers of two versions", n)
		}
	}
	u.met.Store(u.names[all[0].GetModel().GetVersion()], true)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers++
	u.more.Broadcast()
	return bench.Good
}

// during loads the sidecar until change returns.
func (u *under) during(change func()) bench.LoadResult {
	ctx, stop := context.WithCancel(u.t.Context())
	result := make(chan bench.LoadResult)
	began := time.Now()
	go func() {
		result <- bench.Load{Rate: u.rate, Workers: 4, Duration: time.Hour, MaxOpen: 2000, Seed: 1}.Run(ctx, func(_ context.Context, n int) bench.Outcome {
			return u.call(u.t.Context(), n)
		})
	}()
	change()
	stop()
	r := <-result
	r.Seconds = time.Since(began).Seconds()
	return r
}

// await waits for n more answers.
func (u *under) await(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for until := u.answers + n; u.answers < until; {
		u.more.Wait()
	}
}

// TestSwitchesUnderLoad activates versions and rolls them back while the route is
// searched: no search fails, every answer is one version's own, the tables of
// versions that are not served are unmapped, and no goroutine stays (TestMain).
// With LIKENESS_SOAK there are 100 activations and rollbacks under 500 searches
// a second: docs/benchmarks/endurance.md.
func TestSwitchesUnderLoad(t *testing.T) {
	switches, rate, between := 12, 0.0, 15
	if os.Getenv("LIKENESS_SOAK") != "" {
		switches, rate, between = 100, 500, 500 // one a second
	}
	if os.Getenv("LIKENESS_CLOSED") != "" { // four callers that wait for each answer
		rate = 0
	}
	w := newWorld(t)
	u := &under{world: w, s: w.start(t), t: t, rate: rate}
	u.more.L = &u.mu
	// With two switches only, because the versions take different times.
	versions := []string{"v1", "v2", "v3"}
	quiet := u.during(func() {
		for i, v := range versions {
			if i > 0 {
				u.s.activate(t, v)
			}
			u.await(between * switches / len(versions))
		}
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	busy := u.during(func() {
		for i := range switches {
			switch {
			case i%4 == 3:
				_, err := u.s.admin.RollBack(t.Context(), &likenessv1.RollBackRequest{Route: "things"})
				must(t, err)
			default:
				u.s.activate(t, []string{"v2", "v1", "v3"}[i%3])
			}
			u.await(between)
		}
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, v := range versions {
		if _, ok := u.met.Load(v); !ok {
			t.Errorf("no answer is of %s", v)
		}
	}
	for _, r := range []struct {
		name string
		bench.LoadResult
	}{{"as good as none", quiet}, {"switches", busy}} {
		l := r.Latency[bench.Good]
		t.Logf("%s: %d answers in %.0f s, %v, p50 %.2f p90 %.2f p99 %.2f max %.2f ms", r.name, r.Outcomes[bench.Good], r.Seconds, r.Outcomes, l.P50, l.P90, l.P99, l.Max)
	}
	t.Logf("%d switches; p99 %.2f of what it is without; heap %d KiB before, %d KiB after", switches,
		busy.Latency[bench.Good].P99/quiet.Latency[bench.Good].P99, before.HeapAlloc>>10, after.HeapAlloc>>10)
	if n := w.mapped(); n > switches/2 {
		t.Errorf("%d mappings of the world's files after %d switches", n, switches)
	}
	u.s.stop()
	if n := w.mapped(); n > 0 {
		t.Errorf("%d mappings of the world's files are left", n)
	}
}

// mapped counts this process's mappings of the world's files, if the system shows them.
func (w *world) mapped() int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	return bytes.Count(maps, []byte(w.dir))
}
