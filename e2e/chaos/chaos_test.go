package chaos_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(isolated{m}) }

// isolated runs the tests in a network of their own.
type isolated struct{ m *testing.M }

func (i isolated) Run() int { return servers.Isolate(i.m) }

// TestChaos: under all faults that can be injected here, several at a time, an answer is right, or
// flagged, or an error. No acknowledged write is lost, and after one reconcile all derived data
// agree with the stores. LIKENESS_SOAK=1 runs for CHAOS_FOR (30m). CHAOS_SEED repeats the faults of
// a run; CHAOS_FAULTS, a regular expression, selects some ("half-open link of link one").
func TestChaos(t *testing.T) {
	p, rate, every := plan{span: 20 * time.Second, shortest: 100 * time.Millisecond, longest: 300 * time.Millisecond,
		least: 20 * time.Millisecond, greatest: 200 * time.Millisecond, once: true}, 60.0, 100*time.Millisecond
	if os.Getenv("LIKENESS_SOAK") != "" {
		p = plan{span: 30 * time.Minute, shortest: 100 * time.Millisecond, longest: 4 * time.Second, least: 200 * time.Millisecond, greatest: 8 * time.Second}
		rate = 150
	}
	if text := os.Getenv("CHAOS_FOR"); text != "" {
		d, err := time.ParseDuration(text)
		must(t, err)
		p.span, p.once = d, false
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		seed = n
	}
	t.Logf("CHAOS_SEED=%d", seed)
	w := newWorld(t, seed, !p.once)
	lanes := w.lanes()
	w.allRight(t, lanes)
	watch := w.watch(t.Context(), p.span/200)
	ofQdrant, ofMilvus := w.writers()
	stopWriting := writing(t.Context(), append(ofQdrant[:len(ofQdrant):len(ofQdrant)], ofMilvus...), every)
	stopSearching := w.searching(t.Context(), lanes, rate, seed)
	began := time.Now()
	w.unleash(t.Context(), t, p, lanes)
	took := time.Since(began)
	if p.once { // next to other tests the machine may be too busy for answers in time
		stopSearching()
		stopSearching = w.searching(t.Context(), lanes, rate/10, seed+1)
	}
	w.recover(t)
	stopSearching()
	stopWriting()
	usage := watch()
	w.allRight(t, lanes)
	rows := w.qdrantRows(t)
	ackedQdrant, unsureQdrant := acknowledged(t, "Qdrant", rows, ofQdrant, false)
	w.derived(t, w.one, rows)
	w.derived(t, w.two, rows)
	rows = w.milvusRows(t)
	ackedMilvus, unsureMilvus := acknowledged(t, "milvus-lite", rows, ofMilvus, true)
	w.derived(t, w.three, rows)
	w.report(t, took, usage, ackedQdrant+ackedMilvus, unsureQdrant+unsureMilvus)
}

// searching sends searches on all lanes in an open loop until stop, which waits for open calls.
func (w *world) searching(ctx context.Context, lanes []*lane, rate float64, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		load := bench.Load{Rate: rate, Duration: 48 * time.Hour, MaxOpen: 512, Seed: seed}
		load.Run(ctx, func(_ context.Context, n int) bench.Outcome {
			return w.search(context.WithoutCancel(ctx), lanes[n%len(lanes)], n)
		})
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// allRight searches on each lane until the answer is right.
func (w *world) allRight(t *testing.T, lanes []*lane) {
	t.Helper()
	ctx := within(t, time.Minute)
	for _, l := range lanes {
		for n := 0; w.search(ctx, l, n) != bench.Good; n++ {
			if rest(ctx, 50*time.Millisecond); ctx.Err() != nil {
				a, err := l.ask(within(t, 10*time.Second), content(1, 1))
				t.Fatalf("lane %s gives no right answer with nothing broken: %q, %v", l.name, a.flag, err)
			}
		}
	}
}

// recover waits until every lane has given a right answer after the last fault.
func (w *world) recover(t *testing.T) {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		left := w.ledger.unhealed()
		if len(left) == 0 {
			return
		}
		if rest(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Errorf("a minute after the last fault %v have given no right answer", left)
			return
		}
	}
}
