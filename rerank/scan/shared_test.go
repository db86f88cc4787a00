package scan_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
)

// counted counts who scores at a time, over all of its kind.
type counted struct {
	rerank.Encoded
	now, most *atomic.Int64
}

func (c counted) Score(dst []float32, items rerank.Items) error {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for was := c.most.Load(); n > was && !c.most.CompareAndSwap(was, n); was = c.most.Load() {
	}
	runtime.Gosched()
	return c.Encoded.Score(dst, items)
}

// Scans keep to the turns that they share with other work, however many threads
// there are: the others stay free. One that gets no turn ends with its context, and the
// ones that count on it are answered.
func TestSharedTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	w := worlds(t, false)["dot"]
	shared := turns.New(2)
	s := scan.NewShared(w.table, w.sim.Spec(), shared)
	want, _ := w.naive(t, w.encoded[0], 5, nil)
	var now, most atomic.Int64
	query := scan.Query{Encoded: counted{w.encoded[0], &now, &most}, K: 5}
	scans := func(n int) *sync.WaitGroup {
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				if r, err := s.Scan(context.Background(), query, nil); err != nil || !same(r.Top, want) {
					t.Errorf("%v, %v", r.Top, err)
				}
			})
		}
		return &group
	}
	for range 20 {
		scans(6).Wait()
	}
	if most.Load() > int64(shared.Most()) {
		t.Errorf("%d scored at a time, of %d turns", most.Load(), shared.Most())
	}
	for range shared.Most() {
		must(t, shared.Take(context.Background()))
	}
	most.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Scan(ctx, query, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a turn: %v", err)
	}
	others := scans(3)
	if most.Load() != 0 {
		t.Error("somebody scored without a turn")
	}
	shared.GiveAll(shared.Most())
	others.Wait()
	if shared.Waiting() != 0 || !shared.Try() || !shared.Try() {
		t.Error("a turn was not given back")
	}
}

// TestAQueryOutlivesTheOneThatBeganThePass: a query that joined a pass is answered, though the one
// that began the pass left while it waited for a turn.
func TestAQueryOutlivesTheOneThatBeganThePass(t *testing.T) {
	w := worlds(t, false)["dot"]
	want, _ := w.naive(t, w.encoded[0], 5, nil)
	synctest.Test(t, func(t *testing.T) {
		shared := turns.New(1)
		s := scan.NewShared(w.table, w.sim.Spec(), shared)
		must(t, shared.Take(t.Context()))
		ctx, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := s.Scan(ctx, scan.Query{Encoded: w.encoded[1], K: 5}, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("the one that left: %v", err)
			}
		})
		synctest.Wait()
		group.Go(func() {
			if r, err := s.Scan(t.Context(), scan.Query{Encoded: w.encoded[0], K: 5}, nil); err != nil || !same(r.Top, want) {
				t.Errorf("the one that stayed: %v, %v", r.Top, err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		shared.Give()
		group.Wait()
	})
}
