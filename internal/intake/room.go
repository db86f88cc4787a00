package intake

import (
	"context"
	"slices"
	"sync"
)

// room is a number of bytes that are taken in the order in which they are asked for.
// Unlike a semaphore's they may be overdrawn. It is safe for concurrent use.
type room struct {
	most int64

	mu    sync.Mutex
	used  int64
	queue []*asked
}

// asked waits for bytes; in is closed when it has them.
type asked struct {
	n  int64
	in chan struct{}
}

// tryTake takes n bytes if there are as many and nobody waits.
func (r *room) tryTake(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 || r.used+n > r.most {
		return false
	}
	r.used += n
	return true
}

// take takes n bytes, or waits until there are as many or ctx is done.
func (r *room) take(ctx context.Context, n int64) error {
	if r.tryTake(n) {
		return nil
	}
	r.mu.Lock()
	one := &asked{n, make(chan struct{})}
	r.queue = append(r.queue, one)
	r.letIn() // it may have become free in between
	r.mu.Unlock()
	select {
	case <-one.in:
		return nil
	case <-ctx.Done():
		return r.withdraw(ctx, one)
	}
}

// withdraw takes a wish back, which may have been granted meanwhile.
func (r *room) withdraw(ctx context.Context, one *asked) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.queue, one)
	if i < 0 {
		return nil
	}
	r.queue = slices.Delete(r.queue, i, i+1)
	r.letIn() // who came behind it may need less
	return ctx.Err()
}

// add takes n bytes whether there are as many or not.
func (r *room) add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += n
}

func (r *room) giveBack(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	r.letIn()
}

// letIn gives those who came first what they wait for; the caller holds the lock.
func (r *room) letIn() {
	for len(r.queue) > 0 && r.used+r.queue[0].n <= r.most {
		r.used += r.queue[0].n
		close(r.queue[0].in)
		r.queue = slices.Delete(r.queue, 0, 1)
	}
}

func (r *room) taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
