package guard_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/link"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rows = 100

var schema = adapters.Schema{Collection: "rows", Fields: []adapters.VectorField{{Dim: 4, Metric: adapters.InnerProduct}}}

// filled starts a Qdrant and fills the collection "rows".
func filled(t *testing.T) *servers.Server {
	t.Helper()
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	s, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(rows, 4)}}
	for i := range rows {
		all.IDs = append(all.IDs, rerank.UintID(uint64(i)))
		all.Vectors[0].Row(i)[0] = float32(i)
	}
	if err := errors.Join(s.Create(t.Context(), schema), s.Write(t.Context(), schema.Collection, schema, all)); err != nil {
		t.Fatal(err)
	}
	return server
}

// told is an observer that counts a store's calls, retries and hedges, and keeps the numbers of broken
// collections that were reported.
type told struct {
	mu       sync.Mutex
	outcomes map[string]int
	broken   []int
	retries  atomic.Int64
	hedges   atomic.Int64
}

func (o *told) StoreCalled(_ context.Context, _, operation string) func(string) {
	return func(outcome string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.outcomes[operation+" "+outcome]++
	}
}

// ended returns how many calls had an outcome.
func (o *told) ended(outcome string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for call, calls := range o.outcomes {
		if strings.HasSuffix(call, " "+outcome) {
			n += calls
		}
	}
	return n
}

func (o *told) StoreRetried(string, string) { o.retries.Add(1) }
func (o *told) StoreHedged(string)          { o.hedges.Add(1) }
func (o *told) StoreBroken(_ string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = append(o.broken, n)
}

// world is a guarded Qdrant, and counts the calls that reach the network.
type world struct {
	adapters.Store
	told  *told
	calls atomic.Int64
}

func open(t *testing.T, address string, o guard.Options) *world {
	t.Helper()
	w := &world{told: &told{outcomes: map[string]int{}}}
	s, err := qdrant.Open(qdrant.Options{Address: address, DescribeFor: time.Hour, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			w.calls.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "main"
	w.Store = guard.New(s, o)
	w.Store.(interface{ Watch(o guard.Observer) }).Watch(w.told)
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *world) search(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lists, err := w.Search(ctx, adapters.SearchRequest{
		Collection: "rows", Probes: []rerank.Probe{{Vector: []float32{1, 0, 0, 0}, Depth: 3}}, Exact: true,
	})
	if err == nil && (len(lists) != 1 || len(lists[0].IDs) != 3) {
		return errors.New("another answer")
	}
	return err
}

// In a full outage the store gets fewer reads than its callers make, and each write once. When the
// store is back, calls succeed again.
func TestOutage(t *testing.T) {
	server := filled(t)
	wire := link.ForTest(t, server.Address, nil)
	w := open(t, wire.Address, guard.Options{RetryBudget: 0.1})
	for range 50 {
		if err := w.search(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wire.Down()
	const asked = 1000
	before := w.calls.Load()
	for range asked {
		if err := w.search(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
			t.Fatalf("search in an outage: %v", err)
		}
	}
	sent := w.calls.Load() - before
	if float64(sent) > 1.1*asked || w.told.outcomes["search "+guard.Broken] == 0 {
		t.Errorf("%d calls for %d searches; %v", sent, asked, w.told.outcomes)
	}
	before = w.calls.Load()
	for range 20 {
		if err := w.Store.(adapters.Writer).Write(t.Context(), "rows", schema, adapters.Rows{IDs: []rerank.ID{rerank.UintID(1)}, Vectors: []rerank.Matrix{rerank.NewMatrix(1, 4)}}); !errors.Is(err, adapters.ErrUnavailable) {
			t.Fatalf("write in an outage: %v", err)
		}
	}
	if n := w.calls.Load() - before; n != 20 {
		t.Errorf("20 writes were sent %d times", n)
	}
	t.Logf("reliability row=14 figure=%d searches in a full outage, %d calls sent (%.2f times); 20 writes, each sent once", asked, sent, float64(sent)/asked)
	wire.Up()
	back := time.Now()
	for err := w.search(t.Context()); err != nil; err = w.search(t.Context()) {
		if !errors.Is(err, adapters.ErrUnavailable) || time.Since(back) > 20*time.Second {
			t.Fatalf("search after the outage: %v", err)
		}
	}
	t.Logf("reliability row=13 figure=opened after 5 failures, answered again %.1f s after the store was there", time.Since(back).Seconds())
	w.told.mu.Lock()
	defer w.told.mu.Unlock()
	if n := len(w.told.broken); n < 2 || w.told.broken[0] != 1 || w.told.broken[n-1] != 0 {
		t.Errorf("collections that are broken: %v", w.told.broken)
	}
}

// An error that the store itself answers, and a call whose deadline was too short, open no breaker.
func TestWhatIsNoFault(t *testing.T) {
	w := open(t, filled(t).Address, guard.Options{BreakAfter: 1, BreakFor: time.Hour})
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		if err := w.search(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without time: %v", err)
		}
		cancel()
		if _, err := w.Search(t.Context(), adapters.SearchRequest{Collection: "rows", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}}); !errors.Is(err, adapters.ErrDimension) {
			t.Errorf("a wrong dimension: %v", err)
		}
		if _, err := w.Search(t.Context(), adapters.SearchRequest{Collection: "none", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}}); !errors.Is(err, adapters.ErrNotFound) {
			t.Errorf("no collection: %v", err)
		}
		if err := w.search(t.Context()); err != nil {
			t.Errorf("search: %v", err)
		}
	}
}

// A scan whose connection is cut goes on behind the last batch that arrived.
func TestScanGoesOn(t *testing.T) {
	wire := link.ForTest(t, filled(t).Address, nil)
	w := open(t, wire.Address, guard.Options{RetryBudget: 0.5})
	var seen []rerank.ID
	err := w.Store.(adapters.Scanner).Scan(t.Context(), adapters.ScanRequest{Collection: "rows", Batch: 10}, func(r adapters.Rows, _ string) error {
		if len(seen) == 30 {
			wire.CutNext()
		}
		seen = append(seen, r.IDs...)
		return nil
	})
	if err != nil || len(seen) != rows || w.told.retries.Load() == 0 {
		t.Fatalf("%d rows, sent again %d times, %v", len(seen), w.told.retries.Load(), err)
	}
	for i, id := range seen {
		if id != rerank.UintID(uint64(i)) {
			t.Fatalf("row %d is %s", i, id)
		}
	}
	stop := errors.New("enough")
	if err := w.Store.(adapters.Scanner).Scan(t.Context(), adapters.ScanRequest{Collection: "rows", Batch: 10}, func(adapters.Rows, string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a scan that is stopped: %v", err)
	}
}

// With HedgeAfter, searches on a slow connection are sent on another one too, but no more than the
// permitted share.
func TestHedges(t *testing.T) {
	server := filled(t)
	for _, after := range []time.Duration{0, 20 * time.Millisecond} {
		slow := func(connection int) time.Duration {
			if connection == 1 {
				return 60 * time.Millisecond
			}
			return 0
		}
		w := open(t, link.ForTest(t, server.Address, slow).Address, guard.Options{HedgeAfter: after})
		if err := w.search(t.Context()); err != nil { // which reads what the collection is, too
			t.Fatal(err)
		}
		before := w.calls.Load()
		const asked = 200
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				for range asked / 20 {
					if err := w.search(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		sent, hedges := w.calls.Load()-before, w.told.hedges.Load()
		if sent < asked || sent > asked+hedges || hedges > asked/20+1 || (hedges > 0) != (after > 0) {
			t.Errorf("after %s: %d searches, %d calls, %d of them hedges", after, asked, sent, hedges)
		}
		if after > 0 {
			t.Logf("reliability row=15 figure=%d searches, one connection in four slow: %d calls more (%.1f %%); none by default", asked, hedges, float64(hedges)/asked*100)
		}
	}
}

// A connection whose bytes vanish is given up, and the server does not complain of keepalive pings.
// The test takes minutes, most of them waiting.
func TestHalfOpenLinks(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it waits for minutes; set LIKENESS_SOAK=1")
	}
	server := filled(t)
	wire := link.ForTest(t, server.Address, nil)
	w := open(t, wire.Address, guard.Options{})
	if err := w.search(t.Context()); err != nil {
		t.Fatal(err)
	}
	idle := time.NewTimer(3 * time.Minute)
	defer idle.Stop()
	<-idle.C
	if err := w.search(t.Context()); err != nil || wire.GoAways() > 0 || wire.Pings() == 0 {
		t.Errorf("after %d pings: %v, told to go away %d times", wire.Pings(), err, wire.GoAways())
	}
	pings := wire.Pings()
	wire.Stall()
	began := time.Now()
	_, err := w.Search(t.Context(), adapters.SearchRequest{Collection: "rows", Probes: []rerank.Probe{{Vector: []float32{1, 0, 0, 0}, Depth: 3}}})
	took := time.Since(began)
	if !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("search over a link that swallows everything: %v after %s", err, took)
	}
	t.Logf("reliability row=16 figure=Qdrant: given up after %.0f s; %d pings in three idle minutes, told to go away %d times", took.Seconds(), pings, wire.GoAways())
}
