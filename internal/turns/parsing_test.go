package turns_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
)

// Long JSON is parsed on half of the processors, and short JSON beside it.
func TestParsing(t *testing.T) {
	const long, short = 1 << 20, 1 << 10
	for processors, most := range map[int]int{1: 1, 2: 1, 5: 2} {
		synctest.Test(t, func(t *testing.T) {
			p := turns.NewParsing(processors)
			release := make(chan struct{})
			var running atomic.Int64
			for range 5 {
				go func() {
					_ = p.Do(t.Context(), long, func() error {
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
			if err := p.Do(t.Context(), short, func() error { return why }); !errors.Is(err, why) {
				t.Errorf("a short one: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := p.Do(ctx, long, func() error {
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
	var none *turns.Parsing
	if err := none.Do(t.Context(), long, func() error { return nil }); err != nil {
		t.Error(err)
	}
}
