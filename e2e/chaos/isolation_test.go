package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// TestOneSlowStore: while one store answers five seconds late, searches of another store's route go
// on. With LIKENESS_SOAK=1 their delay is measured.
func TestOneSlowStore(t *testing.T) {
	span, rate := time.Second, 40.0
	if os.Getenv("LIKENESS_SOAK") != "" {
		span, rate = 30*time.Second, 100
	}
	w := &world{ledger: newLedger(), rng: rand.New(rand.NewPCG(1, 1)), folder: t.TempDir(), links: map[string]*relay{}}
	w.qdrant = servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	w.oracle = newOracle(t, w.rng, w.folder)
	w.toQdrant = dial(t, w.qdrant.Address)
	w.fillQdrant(t)
	w.one = newSidecar(t, "one", build(t, w.folder, ""), w.folder)
	late := startRelay(t, w.qdrant.Address, w.ledger)
	must(t, os.WriteFile(w.one.file, fmt.Appendf(nil, `
listen: {grpc: %q, admin: %q}
stores:
  slow: {kind: qdrant, address: %q}
  well: {kind: qdrant, address: %q}
models: {w: {path: w.safetensors}}
routes:
  slow: {store: slow, collection: fixed, model: w, placement: stored, exact_search: true, depth: %[5]d, timeout: 10s}
  well: {store: well, collection: fixed, model: w, placement: stored, exact_search: true, depth: %[5]d, timeout: 10s}
`, w.one.api, w.one.admin, late.address(), w.qdrant.Address, depth), 0o600))
	must(t, w.one.start())
	must(t, w.one.ready(within(t, time.Minute)))
	well := &lane{"well", w.one, "", true, apiWithin(w.one, "well", 4*time.Second), w.oracle.check} // less than the slow store's delay
	slowed := &lane{"slow", w.one, "", true, api(w.one, "slow"), w.oracle.check}
	measure := func() bench.LoadResult {
		load := bench.Load{Rate: rate, Duration: span, WarmUp: span / 10, MaxOpen: 512, Seed: 1}
		return load.Run(t.Context(), func(ctx context.Context, n int) bench.Outcome { return w.search(ctx, well, n) })
	}
	before := measure()
	end := late.begin(slow, 5*time.Second)
	stop := w.searching(t.Context(), []*lane{slowed}, rate, 2)
	after := measure()
	stop()
	end()
	for name, r := range map[string]bench.LoadResult{"before": before, "beside a slow store": after} {
		if r.Outcomes[bench.Good] == 0 {
			t.Errorf("%s: %v, and none right", name, r.Outcomes)
		}
	}
	for _, text := range w.ledger.wrongs {
		t.Errorf("neither right nor flagged: %s", text)
	}
	if answers := w.ledger.answers["slow"]; answers[refused]+answers[flagged] == 0 {
		t.Errorf("the slow store was not slow: %v", answers)
	}
	a, b := before.Latency[bench.Good], after.Latency[bench.Good]
	t.Logf("reliability row=11 figure=%.0f searches/s of the other store: p50 %.2f ms before, %.2f ms beside a store 5 s late with as many; p99 %.2f and %.2f ms; right %d of %d and %d of %d",
		rate, a.P50, b.P50, a.P99, b.P99, before.Outcomes[bench.Good], before.Calls, after.Outcomes[bench.Good], after.Calls)
}
