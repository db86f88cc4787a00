package serve_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

// besides has two routes of one collection, one with a ranker that misbehaves.
const besides = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores:
  files:
    kind: embedded
    collections: {things: {vectors: %[1]s/many.npy}}
models: {plain: {path: plain.safetensors}}
plugins: {upset: {path: %[2]s, args: [-fault, %[3]s, -after, "20", -delay, %[4]s, -until, %[1]s/well]}}
rankers: {upset: {plugin: upset, timeout: 250ms}}
routes:
  ranked: {store: files, collection: things, model: plain, placement: stored, ranker: upset, calls: 20, depth: 20, timeout: 1s}
  plain: {store: files, collection: things, model: plain, placement: stored, depth: 20, timeout: 1s}
`

// troubled is a sidecar with a ranker that misbehaves, and what came of its answers.
type troubled struct {
	client likenessv1.SearchServiceClient
	well   string // the file whose making ends the fault
	once   bool   // it ends as soon as it is seen
	wrong  atomic.Pointer[string]

	ended, healed atomic.Int64 // when the fault ended, and the first ranked answer after that
}

// end ends the fault.
func (x *troubled) end() {
	if x.ended.CompareAndSwap(0, time.Now().UnixNano()) {
		_ = os.WriteFile(x.well, nil, 0o600)
	}
}

func startTroubled(t *testing.T, plugin, fault string, delay time.Duration) (*troubled, *sidecar) {
	t.Helper()
	dir := t.TempDir()
	many := rerank.NewMatrix(500, 2)
	for i := range many.Rows {
		many.Row(i)[0], many.Row(i)[1] = float32(i%23), float32(i%17)
	}
	if err := npy.Write(filepath.Join(dir, "many.npy"), many); err != nil {
		t.Fatal(err)
	}
	s := start(t, fmt.Sprintf(besides, dir, plugin, fault, delay), true)
	x := &troubled{client: likenessv1.NewSearchServiceClient(s.conn), well: filepath.Join(dir, "well")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil { // the plugin starts beside the routes
		if r, err := x.search(ctx, "ranked", 1); err == nil && r.GetDegraded() == nil {
			return x, s
		}
		_ = rest(ctx, 20*time.Millisecond)
	}
	t.Fatal("the ranker never answered")
	return nil, nil
}

// rest waits between two questions.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (x *troubled) search(ctx context.Context, route string, n int) (*likenessv1.SearchResponse, error) {
	return x.client.Search(ctx, &likenessv1.SearchRequest{
		Route: route, Query: &likenessv1.Query{Vector: []float32{float32(n%7) + 1, float32(n%5) + 1}}, K: 10,
	})
}

// ranked searches with the ranker: an answer is right, says what is wrong with it, or
// is an error.
func (x *troubled) ranked(ctx context.Context, n int) bench.Outcome {
	began := time.Now().UnixNano()
	r, err := x.search(ctx, "ranked", n)
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return bench.Refused
	case err != nil:
		return bench.Failed
	}
	flagged := r.GetDegraded() != nil || r.GetRanking().GetReason() != ""
	if flagged {
		if x.once {
			x.end()
		}
		return bench.Degraded
	}
	if began > x.ended.Load() && x.ended.Load() > 0 {
		x.healed.CompareAndSwap(0, time.Now().UnixNano())
	}
	last := float32(1)
	for _, h := range r.GetHits() {
		want := faulty.Score(rerank.UintID(h.GetId().GetNumber()))
		if !h.GetRanked() || h.GetScore() != want || want > last {
			text := fmt.Sprintf("answer %d has %v, ranked %v, of item %d, whose score is %v, behind %v",
				n, h.GetScore(), h.GetRanked(), h.GetId().GetNumber(), want, last)
			x.wrong.CompareAndSwap(nil, &text)
		}
		last = want
	}
	return bench.Good
}

// plain searches without the ranker.
func (x *troubled) plain(ctx context.Context, n int) bench.Outcome {
	switch r, err := x.search(ctx, "plain", n); {
	case status.Code(err) == codes.ResourceExhausted:
		return bench.Refused
	case err != nil:
		return bench.Failed
	case r.GetDegraded() != nil:
		return bench.Degraded
	}
	return bench.Good
}

// under loads both routes at once, at a rate each, and ends the fault in the middle.
func (x *troubled) under(ctx context.Context, rate float64, d time.Duration) (ranked, plain bench.LoadResult) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		plain = bench.Load{Rate: rate, Duration: d, MaxOpen: 256, Seed: 1}.Run(ctx, x.plain)
	}()
	end := time.AfterFunc(d/2, x.end)
	defer end.Stop()
	ranked = bench.Load{Rate: rate, Duration: d, MaxOpen: 256, Seed: 2}.Run(ctx, x.ranked)
	<-done
	return ranked, plain
}

// TestPluginsUnderLoad: whatever a ranker's process does, an answer is right or flagged, and routes
// without the ranker are answered. The load is an open loop at half of the capacity measured just
// before. LIKENESS_SOAK=1 makes it long enough for figures (docs/benchmarks/endurance.md).
func TestPluginsUnderLoad(t *testing.T) {
	plugin, err := faulty.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d, faults := time.Second, []string{faulty.Crash, faulty.Stop, faulty.Count, faulty.NaN, faulty.Shuffled}
	if os.Getenv("LIKENESS_SOAK") != "" {
		d, faults = 20*time.Second, []string{faulty.None, faulty.Crash, faulty.Stop, faulty.Hang, faulty.Slow, faulty.Count, faulty.NaN, faulty.Infinite,
			faulty.Shuffled, faulty.Fail, faulty.Flap}
	}
	var table strings.Builder
	capacity := 0.0
	for _, fault := range faults {
		t.Run(fault, func(t *testing.T) {
			delay := map[string]time.Duration{faulty.Slow: 2 * time.Second, faulty.Flap: 300 * time.Millisecond}[fault]
			x, s := startTroubled(t, plugin, fault, delay)
			x.once = fault == faulty.Crash || fault == faulty.Stop
			if capacity == 0 || fault == faulty.None {
				both := func(ctx context.Context, n int) bench.Outcome {
					if n%2 == 0 {
						return x.plain(ctx, n)
					}
					return x.ranked(ctx, n)
				}
				capacity = bench.Load{Workers: 8, Duration: d / 2}.Run(t.Context(), both).Goodput
			}
			ranked, plain := x.under(t.Context(), max(50, capacity/4), d)
			if text := x.wrong.Load(); text != nil {
				t.Error(*text)
			}
			if plain.Outcomes[bench.Good] == 0 {
				t.Errorf("the route without a ranker: %v", plain.Outcomes)
			}
			if fault == faulty.Slow && !t.Failed() {
				late := ranked.Latency[bench.Degraded]
				t.Logf("reliability row=4 figure=a ranker that takes %s and has 250ms, %.0f searches a second: %.2f %% of %d answered, flagged or right, p50 %.0f ms and at most %.0f ms of 1000",
					delay, ranked.Rate, 100*float64(ranked.Outcomes[bench.Good]+ranked.Outcomes[bench.Degraded])/float64(max(1, ranked.Calls)), ranked.Calls, late.P50, late.Max)
			}
			healed := "-"
			if at := x.healed.Load(); at > 0 {
				healed = time.Duration(at - x.ended.Load()).Round(time.Millisecond).String()
			}
			_, _ = fmt.Fprintf(&table, "| %s | %.0f | %d | %d | %d | %s | %.1f %% | %.1f | %.1f |\n", fault, ranked.Rate, ranked.Outcomes[bench.Good],
				ranked.Outcomes[bench.Degraded], ranked.Calls-ranked.Outcomes[bench.Good]-ranked.Outcomes[bench.Degraded], healed,
				100*float64(plain.Outcomes[bench.Good])/float64(max(1, plain.Calls)), plain.Latency[bench.Good].P50, plain.Latency[bench.Good].P99)
			s.stop()
			if err := s.wait(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("fault, a second on each route, right, flagged, others, end of the fault to a ranked answer, plain answered, p50, p99\n%s", table.String())
}
