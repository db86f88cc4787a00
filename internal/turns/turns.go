// Package turns limits how many goroutines keep a processor busy at a time. More of them than
// processors would finish no sooner, and would leave no processor for short work, such as refusing
// a call.
package turns

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Turns hands out a fixed number of turns. It is safe for concurrent use.
type Turns struct {
	free    *semaphore.Weighted
	most    int
	waiting atomic.Int64
}

// New returns Turns with the given number of turns.
func New(most int) *Turns { return &Turns{free: semaphore.NewWeighted(int64(most)), most: most} }

// Most returns the number of turns.
func (t *Turns) Most() int { return t.most }

// Waiting returns how many goroutines wait for a turn.
func (t *Turns) Waiting() int { return int(t.waiting.Load()) }

// Take waits for a turn, in the order of the calls. It returns the error of a context that ends
// first.
func (t *Turns) Take(ctx context.Context) error {
	if t.free.TryAcquire(1) {
		return nil
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	return t.free.Acquire(ctx, 1)
}

// Some waits for one turn, and then takes as many more as are free at that moment, up to most in
// all. It returns how many it took; the caller gives each of them back.
func (t *Turns) Some(ctx context.Context, most int) (n int, err error) {
	if err := t.Take(ctx); err != nil {
		return 0, err
	}
	for n = 1; n < most && t.Try(); n++ {
	}
	return n, nil
}

// Try takes a turn if one is free and no goroutine waits for it.
func (t *Turns) Try() bool { return t.free.TryAcquire(1) }

// Give gives a turn back.
func (t *Turns) Give() { t.free.Release(1) }

// GiveAll gives the given number of turns back.
func (t *Turns) GiveAll(n int) { t.free.Release(int64(n)) }
