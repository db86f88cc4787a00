package gate

import (
	"context"
	"slices"
	"sync"
)

const (
	// At most 1/reserveShare of a room is the reserve, from which requests are granted that
	// come behind one for which there are not enough bytes.
	reserveShare = 8
	// At most 1/waitingShare of a room may be here of messages that wait.
	waitingShare = 2
)

// room is a number of bytes that senders share. A sender that has bytes gets more only while
// it has at most as many as are left free: one alone has half of the room, and those who come
// later find some. Requests of senders within their share are granted in their order, and
// from the reserve past one that is too large for the moment. A room may be overdrawn. It is
// safe for concurrent use.
type room struct {
	most int64

	mu       sync.Mutex
	used     int64 // the reserve's too
	reserved int64 // of the reserve
	waiting  int64 // bytes that are here of messages that wait
	requests uint64
	senders  map[string]*sender
}

// sender is who has bytes of a room, or waits for some.
type sender struct {
	name           string
	taken, waiting int64
	queue          []*roomRequest
}

// roomRequest asks for bytes. The room's lock guards it.
type roomRequest struct {
	from      *sender
	number    uint64 // in the order of the requests
	bytes     int64
	isReserve bool // its bytes belong to the reserve
	isGranted bool
	granted   chan struct{} // closed when isGranted
}

// take takes bytes for a sender; a request for more than a room has without its reserve takes
// that. held bytes of the message are here while it waits. take returns ErrFull if too many
// bytes of waiting messages would be here. Otherwise it waits until the request is granted,
// or returns the context's error.
func (r *room) take(ctx context.Context, from string, bytes, held int64) (*roomRequest, error) {
	r.mu.Lock()
	request := r.enqueue(from, min(bytes, r.ordered()))
	r.grantRequests()
	if request.isGranted {
		r.mu.Unlock()
		return request, nil
	}
	s, mostWaiting := request.from, r.most/waitingShare
	if r.waiting+held > mostWaiting || !isWithinShare(s.waiting, r.waiting, mostWaiting, held) {
		r.withdraw(request)
		r.mu.Unlock()
		return nil, messagesFull(r.most)
	}
	r.waiting, s.waiting = r.waiting+held, s.waiting+held
	r.mu.Unlock()
	select {
	case <-request.granted:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting, s.waiting = r.waiting-held, s.waiting-held
	if !request.isGranted {
		r.withdraw(request)
		return nil, ctx.Err()
	}
	return request, nil
}

// ordered returns how many bytes the room has without its reserve.
func (r *room) ordered() int64 { return r.most - r.most/reserveShare }

// isWithinShare reports whether a sender that has taken bytes of most may take more. All
// senders together use some.
func isWithinShare(taken, used, most, more int64) bool {
	return taken == 0 || taken+more <= most-used-more
}

// enqueue adds a request. The caller holds the lock.
func (r *room) enqueue(from string, bytes int64) *roomRequest {
	s := r.senders[from]
	if s == nil {
		if r.senders == nil {
			r.senders = map[string]*sender{}
		}
		s = &sender{name: from}
		r.senders[from] = s
	}
	r.requests++
	request := &roomRequest{from: s, number: r.requests, bytes: bytes, granted: make(chan struct{})}
	s.queue = append(s.queue, request)
	return request
}

// withdraw removes a request that was not granted. The caller holds the lock.
func (r *room) withdraw(request *roomRequest) {
	s := request.from
	s.queue = slices.DeleteFunc(s.queue, func(other *roomRequest) bool { return other == request })
	r.grantRequests() // the next request may need fewer bytes
	r.forget(s)
}

// forget removes a sender that neither has bytes nor waits. The caller holds the lock.
func (r *room) forget(s *sender) {
	if s.taken == 0 && s.waiting == 0 && len(s.queue) == 0 && r.senders[s.name] == s {
		delete(r.senders, s.name)
	}
}

// overdraw takes bytes of no sender, even if there are not enough.
func (r *room) overdraw(bytes int64) *roomRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += bytes
	return &roomRequest{from: &sender{taken: bytes}, bytes: bytes}
}

// shrink gives back all but so many bytes of a request.
func (r *room) shrink(request *roomRequest, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := request.bytes - bytes
	if back <= 0 {
		return
	}
	request.bytes = bytes
	request.from.taken -= back
	r.used -= back
	if request.isReserve {
		r.reserved -= back
	}
	r.grantRequests()
	r.forget(request.from)
}

// grantRequests grants the requests for which there are enough bytes. The caller holds the
// lock.
func (r *room) grantRequests() {
	for {
		request, isReserve := r.nextRequest()
		if request == nil {
			return
		}
		s := request.from
		s.queue = slices.Delete(s.queue, 0, 1)
		s.taken += request.bytes
		r.used += request.bytes
		if request.isReserve = isReserve; isReserve {
			r.reserved += request.bytes
		}
		request.isGranted = true
		close(request.granted)
	}
}

// nextRequest returns the request to grant next, and whether from the reserve; nil if there
// are not enough bytes for any.
func (r *room) nextRequest() (request *roomRequest, isReserve bool) {
	var first, small *roomRequest // of all, and of those that the reserve is enough for
	for _, s := range r.senders {
		if len(s.queue) == 0 || !isWithinShare(s.taken, r.used, r.most, s.queue[0].bytes) {
			continue
		}
		head := s.queue[0]
		if first == nil || head.number < first.number {
			first = head
		}
		if r.used+head.bytes <= r.most && r.reserved+head.bytes <= r.most/reserveShare && (small == nil || head.number < small.number) {
			small = head
		}
	}
	if first != nil && r.used-r.reserved+first.bytes <= r.ordered() {
		return first, false
	}
	return small, true
}

// taken returns the bytes that are taken.
func (r *room) taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
