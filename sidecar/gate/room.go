package gate

import (
	"context"
	"slices"
	"sync"
)

// room is a number of bytes that are handed out in the order of the requests. Unlike a semaphore's,
// they may be overdrawn. It is safe for concurrent use.
type room struct {
	most int64

	mu    sync.Mutex
	used  int64
	queue []*roomRequest
}

// roomRequest waits for bytes. granted is closed when it has them.
type roomRequest struct {
	bytes   int64
	granted chan struct{}
}

// tryTake takes bytes if there are enough and no request waits.
func (r *room) tryTake(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 || r.used+bytes > r.most {
		return false
	}
	r.used += bytes
	return true
}

// take takes bytes. It waits until there are enough, or returns the context's error.
func (r *room) take(ctx context.Context, bytes int64) error {
	if r.tryTake(bytes) {
		return nil
	}
	r.mu.Lock()
	request := &roomRequest{bytes, make(chan struct{})}
	r.queue = append(r.queue, request)
	r.grantFirst() // bytes may have been given back since tryTake
	r.mu.Unlock()
	select {
	case <-request.granted:
		return nil
	case <-ctx.Done():
		return r.withdraw(ctx, request)
	}
}

// withdraw removes a request from the queue and returns the context's error. It returns nil if the
// request was granted in the meantime.
func (r *room) withdraw(ctx context.Context, request *roomRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.queue, request)
	if i < 0 {
		return nil
	}
	r.queue = slices.Delete(r.queue, i, i+1)
	r.grantFirst() // the next request may need fewer bytes
	return ctx.Err()
}

// add takes bytes even if there are not enough.
func (r *room) add(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += bytes
}

func (r *room) giveBack(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= bytes
	r.grantFirst()
}

// grantFirst grants requests from the front of the queue while there are enough bytes. The
// caller holds the lock.
func (r *room) grantFirst() {
	for len(r.queue) > 0 && r.used+r.queue[0].bytes <= r.most {
		r.used += r.queue[0].bytes
		close(r.queue[0].granted)
		r.queue = slices.Delete(r.queue, 0, 1)
	}
}

// taken returns the bytes that are taken.
func (r *room) taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
