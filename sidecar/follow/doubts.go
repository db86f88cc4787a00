package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/sidecar/route"
)

// patience is how long a write may be on its way before it counts as carried out. The
// database takes about a millisecond to refuse a write.
const patience = 50 * time.Millisecond

// doubts tracks the writes to one collection that are on their way and that the database
// may refuse. While such a write is on its way, nothing derived from the collection is
// known to be fresh. A write that the database refuses leaves no trace. A search waits only
// for the writes that were on their way when it looked: they form a round.
// A doubts is safe for concurrent use.
type doubts struct {
	mu      sync.Mutex
	open    *round   // the writes that came since a search last looked; nil: none came
	met     []*round // the rounds that a search waits for, oldest first; writes of the oldest are on their way
	overdue int      // writes that have been on their way for longer than patience
}

// round is a group of writes on their way. A search that waits for a round waits for the
// rounds before it as well.
type round struct {
	writes  int           // how many are on their way
	applied bool          // a write was carried out, or took too long; fixed once over is closed
	over    chan struct{} // closed when no write of the round, or of one before it, is on its way
}

var _ route.Doubt = (*round)(nil)

// begin notes a write on its way. The caller calls end when the database has answered,
// and makes a write that was carried out pending before that. Later calls of end change
// nothing.
func (d *doubts) begin() (end func(applied bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = newRound()
	}
	r, state := d.open, onItsWay
	r.writes++
	timer := time.AfterFunc(patience, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if state == onItsWay {
			state = late
			d.overdue++
			d.leave(r, true)
		}
	})
	return func(applied bool) {
		timer.Stop()
		d.mu.Lock()
		defer d.mu.Unlock()
		switch state {
		case onItsWay:
			d.leave(r, applied)
		case late:
			d.overdue--
		case ended:
		}
		state = ended
	}
}

// progress says what is known of a doubtful write.
type progress int

const (
	onItsWay progress = iota
	late
	ended
)

func newRound() *round { return &round{over: make(chan struct{})} }

// leave takes a write out of its round; the caller holds the lock.
func (d *doubts) leave(r *round, applied bool) {
	r.writes--
	if at := slices.Index(d.met, r); at >= 0 && applied {
		for _, later := range d.met[at:] { // who waits for a later round waits for this write too
			later.applied = true
		}
	}
	for len(d.met) > 0 && d.met[0].writes == 0 {
		close(d.met[0].over)
		d.met = d.met[1:]
	}
}

// look returns the round that a search has to wait for, nil if no write is on its way.
// It is not ok if a write has been on its way for longer than patience.
func (d *doubts) look() (r *round, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.overdue > 0 {
		return nil, false
	}
	if d.open != nil && d.open.writes > 0 {
		d.met, d.open = append(d.met, d.open), nil
	}
	if len(d.met) == 0 {
		return nil, true
	}
	return d.met[len(d.met)-1], true
}

// none reports whether no write is on its way.
func (d *doubts) none() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.overdue == 0 && len(d.met) == 0 && (d.open == nil || d.open.writes == 0)
}

// Cleared implements route.Doubt. It waits for patience at most, and for a
// quarter of the time that ctx leaves.
func (r *round) Cleared(ctx context.Context) bool {
	wait := patience
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/4)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.over:
		return !r.applied
	default:
	}
	select {
	case <-r.over:
		return !r.applied
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// lookForDoubts reports whether the writes on their way let derived data be fresh. If
// that depends on writes that the database may refuse, doubt is not nil.
func lookForDoubts(d *doubts) (fresh bool, doubt route.Doubt) {
	r, ok := d.look()
	switch {
	case !ok:
		return false, nil
	case r == nil: // not to be wrapped into an interface
		return true, nil
	}
	return true, r
}
