package scan

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
)

// TestATurnLastsASlice: a worker gives its turn to those who wait for one once it has had the
// turn for longer than a slice, and its next turn lasts as long again.
func TestATurnLastsASlice(t *testing.T) {
	for name, c := range map[string]struct {
		isAwaited bool
		had       time.Duration // how long the worker has had its turn
		yields    bool
	}{
		"nobody waits":          {false, time.Hour, false},
		"within the slice":      {true, slice, false},
		"longer than the slice": {true, slice + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Scanner{turns: turns.New(1)}
				if !s.turns.Try() {
					t.Fatal("no turn is free")
				}
				began := time.Now()
				w := &worker{turnBegan: began}
				var others sync.WaitGroup
				hadTurn := false
				if c.isAwaited {
					others.Go(func() {
						if s.turns.Take(context.Background()) == nil {
							hadTurn = true
							time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
							s.turns.Give()
						}
					})
					synctest.Wait()
				}
				time.Sleep(c.had) //nolint:forbidigo // of the bubble: no time passes
				s.yieldTurn(w)
				want := began
				if c.yields {
					want = began.Add(c.had + time.Second)
				}
				if hadTurn != c.yields || !w.turnBegan.Equal(want) {
					t.Errorf("the waiting one had a turn: %t; the worker's began after %s", hadTurn, w.turnBegan.Sub(began))
				}
				if s.turns.Try() {
					t.Error("the worker has no turn any more")
				}
				s.turns.Give()
				others.Wait()
			})
		})
	}
}
