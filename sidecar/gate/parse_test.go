package gate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// Long JSON is parsed on half of the processors, and short JSON at any time.
func TestParsing(t *testing.T) {
	const long, short = 1 << 20, 1 << 10
	for processors, most := range map[int]int{1: 1, 2: 1, 5: 2} {
		synctest.Test(t, func(t *testing.T) {
			p := gate.New(gate.Options{Processors: turns.New(processors)})
			release := make(chan struct{})
			var running atomic.Int64
			for range 5 {
				go func() {
					_ = p.Parse(t.Context(), long, func() error {
						running.Add(1)
						<-release
						running.Add(-1)
						return nil
					})
				}()
				synctest.Wait()
			}
			if running.Load() != int64(most) {
				t.Errorf("%d processors: %d are parsed at a time, want %d", processors, running.Load(), most)
			}
			why := errors.New("not JSON")
			if err := p.Parse(t.Context(), short, func() error { return why }); !errors.Is(err, why) {
				t.Errorf("a short one: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := p.Parse(ctx, long, func() error {
				t.Error("it is parsed for nobody")
				return nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			close(release)
			synctest.Wait()
			if running.Load() != 0 {
				t.Errorf("%d are still parsed", running.Load())
			}
		})
	}
	var none *gate.Gate
	if err := none.Parse(t.Context(), long, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestParsingTakesTurnsAgain: a message gives its turn back, whether parsing succeeded or failed.
func TestParsingTakesTurnsAgain(t *testing.T) {
	g, broken := gate.New(gate.Options{Processors: turns.New(2)}), errors.New("broken")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for i := range 3 {
		if err := g.Parse(ctx, 1<<20, func() error { return broken }); !errors.Is(err, broken) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}
