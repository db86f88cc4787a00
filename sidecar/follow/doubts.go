package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/sidecar/route"
)

// patience is how long after a write was forwarded the database is taken to have carried it out, if it has
// not answered. A database refuses a write within about a millisecond.
const patience = 50 * time.Millisecond

// doubts tracks the writes to one collection that are on their way and that the database may
// refuse. If it refuses a write, derived data was fresh all along, so a search waits for the
// answer. It waits only for the writes that were on their way when it looked; such a group of
// writes is a round. A doubts is safe for concurrent use.
type doubts struct {
	mu      sync.Mutex
	open    *round   // the writes that began since a search last looked; nil if none did
	met     []*round // the rounds that searches wait for, oldest first; the oldest has writes on their way
	overdue int      // how many writes have been on their way for longer than patience
}

// round is a group of writes on their way. A search that waits for a round waits for the
// rounds before it as well.
type round struct {
	writes  int           // how many are still on their way
	applied bool          // a write was carried out, or took longer than patience; does not change after over is closed
	over    chan struct{} // closed when all writes of the round, and of the rounds before it, have ended
}

var _ route.Doubt = (*round)(nil)

// begin notes a write on its way. The caller calls end when the database has answered; if it
// carried out the write, the caller first adds the write to the backlog. Only the first call of end
// counts.
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

// progress is how far the outcome of a doubtful write is known.
type progress int

const (
	onItsWay progress = iota
	late
	ended
)

func newRound() *round { return &round{over: make(chan struct{})} }

// leave takes a write out of its round. The caller holds the lock.
func (d *doubts) leave(r *round, applied bool) {
	r.writes--
	if at := slices.Index(d.met, r); at >= 0 && applied {
		for _, later := range d.met[at:] { // a search that waits for a later round waits for this write too
			later.applied = true
		}
	}
	for len(d.met) > 0 && d.met[0].writes == 0 {
		close(d.met[0].over)
		d.met = d.met[1:]
	}
}

// lastRound returns the round that a search has to wait for, or nil if no write is on its way. ok is
// false if a write has been on its way for longer than patience.
func (d *doubts) lastRound() (r *round, ok bool) {
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

// Cleared implements route.Doubt. It waits for at most patience, and at most a quarter of the time
// until ctx's deadline.
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

// assessDoubts reports whether derived data can be fresh in spite of the writes on their way. If
// that depends on whether the database refuses them, doubt is not nil.
func assessDoubts(d *doubts) (fresh bool, doubt route.Doubt) {
	r, ok := d.lastRound()
	switch {
	case !ok:
		return false, nil
	case r == nil: // a nil *round must not become a non-nil interface
		return true, nil
	}
	return true, r
}
