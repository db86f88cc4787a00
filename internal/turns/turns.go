// Package turns lets work that keeps a processor busy take turns on as many
// processors as there are for it: more at a time would end none of it sooner, and
// leave none free for what only passes by, as a call that is to be refused.
package turns

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Turns are shared by all that is to take turns. It is safe for concurrent use.
type Turns struct {
	free    *semaphore.Weighted
	most    int
	waiting atomic.Int64
}

// New makes turns for so many at a time.
func New(most int) *Turns { return &Turns{free: semaphore.NewWeighted(int64(most)), most: most} }

// Most is how many have a turn at a time.
func (t *Turns) Most() int { return t.most }

// Waiting is how many wait for a turn.
func (t *Turns) Waiting() int { return int(t.waiting.Load()) }

// Take waits for a turn, first come, first served. It returns the error of a
// context that ends first.
func (t *Turns) Take(ctx context.Context) error {
	if t.free.TryAcquire(1) {
		return nil
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	return t.free.Acquire(ctx, 1)
}

// Some waits for a turn, and takes as many more, up to most in all, as are free just
// then; each of them is given back.
func (t *Turns) Some(ctx context.Context, most int) (n int, err error) {
	if err := t.Take(ctx); err != nil {
		return 0, err
	}
	for n = 1; n < most && t.Try(); n++ {
	}
	return n, nil
}

// Try takes a turn if one is free and nobody waits for it.
func (t *Turns) Try() bool { return t.free.TryAcquire(1) }

// Give gives a turn back.
func (t *Turns) Give() { t.free.Release(1) }

// GiveAll gives so many back.
func (t *Turns) GiveAll(n int) { t.free.Release(int64(n)) }
