package turns_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/likenessdb/likeness/internal/turns"
)

func TestNoMoreThanMost(t *testing.T) {
	const most = 3
	all := turns.New(most)
	var at, highest atomic.Int64
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			for range 200 {
				n, err := all.Some(t.Context(), 1+i%5)
				if err != nil || n < 1 || n > min(most, 1+i%5) {
					t.Errorf("%d turns, %v", n, err)
				}
				if now := at.Add(int64(n)); now > highest.Load() {
					highest.Store(now)
				}
				at.Add(int64(-n))
				all.GiveAll(n)
			}
		})
	}
	group.Wait()
	if highest.Load() > most || all.Waiting() != 0 {
		t.Errorf("%d had a turn at a time, of %d; %d wait", highest.Load(), most, all.Waiting())
	}
}

// One that waits goes before one that only tries, and leaves with its context.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		if !all.Try() || all.Try() {
			t.Fatal("one turn is there, and only one")
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone, got := make(chan error), make(chan error)
		go func() { gone <- all.Take(ctx) }()
		synctest.Wait()
		go func() { got <- all.Take(t.Context()) }()
		synctest.Wait()
		if all.Waiting() != 2 {
			t.Errorf("%d wait, want 2", all.Waiting())
		}
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) || all.Waiting() != 1 {
			t.Errorf("one that left: %v; %d wait", err, all.Waiting())
		}
		all.Give()
		if err := <-got; err != nil || all.Try() {
			t.Errorf("the one that waited: %v", err)
		}
		all.Give()
	})
}
