package follow

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

const (
	// debounce is how long a written row waits before it is read, so that later writes
	// of the row, and writes of other rows, share the read.
	debounce = 5 * time.Millisecond
	// lag is how soon a read shows a write that the client did not wait for. It is also how long
	// the rows of a write stay due for another read, because the database may apply a write whose
	// call was cut off later than the call ended.
	lag = time.Second
	// maxRows is the most rows that may wait to be read. If more would wait, a pass over all rows
	// reads them instead.
	maxRows = 1 << 18
)

// passOnly is the value of write.unread for a write that no read of a row settles, only a pass.
const passOnly = -1

// write is a client's write that some table or companion does not show yet.
type write struct {
	began time.Time // when the write was seen
	// readable is from when on reads show the write; zero until the database has answered.
	readable time.Time
	seq      uint64 // its number in the journal; 0 if the journal lacks it
	unread   int    // how many of its rows were not read since readable, or passOnly
	// peers: the write is in the journal of another sidecar.
	peers bool
	// unjournaled: the shared journal should have the write and lacks it.
	unjournaled bool
}

// backlog holds the writes that derived data does not show yet, and the rows that have
// to be read for them. It reads no clock and calls nothing; its caller holds a lock.
type backlog struct {
	writes  map[*write]struct{} // every pending write
	rows    *rowQueue           // the rows to read
	forPass []*write            // the pending writes that only a pass settles
	// rowsChanged: some write of forPass may have changed rows, not only removed them.
	rowsChanged bool
	// dropped: a write may have dropped the collection, and no pass has found it again since.
	dropped bool
	// differing counts the queued rows that a pass found to differ from the collection.
	differing int
}

func newBacklog() *backlog {
	return &backlog{writes: map[*write]struct{}{}, rows: newRowQueue()}
}

// addWrite adds a write that is about to be sent to the database.
func (b *backlog) addWrite(now time.Time) *write {
	w := &write{began: now}
	b.writes[w] = struct{}{}
	return w
}

// settle removes a write, because all derived data shows it or because the database refused it.
func (b *backlog) settle(w *write) { delete(b.writes, w) }

// apply notes that the database carried out w, which jw describes, and that reads show it from
// readable on. It queues the rows that jw names, or leaves the write to a pass if jw names none. It
// reports whether nothing is left to do for the write.
func (b *backlog) apply(w *write, jw journal.Write, now, readable time.Time) (settled bool) {
	w.readable = readable
	unnamed := namesNoRows(jw)
	if unnamed || b.rows.len()+len(jw.IDs) > maxRows {
		b.dropped = b.dropped || jw.Kind == journal.Collection
		b.rowsChanged = b.rowsChanged || jw.Kind != journal.Delete
		if !unnamed {
			b.overflow()
		}
		b.leaveToPass(w)
		return false
	}
	for _, id := range jw.IDs {
		r := b.rows.put(id, now.Add(debounce))
		if n := len(r.writes); n > 0 && r.writes[n-1] == w {
			continue // the write named this row before, and counts it once
		}
		r.writes = append(r.writes, w)
		w.unread++
		if last := readable.Add(lag); last.After(r.lastRead) {
			r.lastRead = last
		}
	}
	return w.unread == 0
}

// namesNoRows reports whether a write may have changed rows whose ids it does not have.
func namesNoRows(w journal.Write) bool {
	return w.Kind == journal.Collection || w.All || w.Filter != ""
}

// leaveToPass makes the next pass settle a write.
func (b *backlog) leaveToPass(w *write) {
	w.unread = passOnly
	b.forPass = append(b.forPass, w)
}

// overflow empties the queue of rows, and leaves their writes to the next pass.
func (b *backlog) overflow() {
	for _, r := range b.rows.byID {
		for _, w := range r.writes {
			if w.unread >= 0 {
				b.leaveToPass(w)
			}
		}
	}
	b.rows, b.differing, b.rowsChanged = newRowQueue(), 0, true
}

// noteDiffering queues rows that a pass found to differ from the collection.
func (b *backlog) noteDiffering(ids []rerank.ID, now time.Time) {
	for _, id := range ids {
		if r := b.rows.put(id, now); !r.differs {
			r.differs = true
			b.differing++
		}
	}
}

// retry queues a row again because it could not be read or applied.
func (b *backlog) retry(r *row, at time.Time) {
	if b.rows.byID[r.id] == r { // if a pass took the rows over, the pass reads this one too
		b.rows.put(r.id, at)
	}
}

// rowApplied notes that all data derived from a row shows what the database held at readAt or
// later. It returns the writes that this settles. It queues the row again if one of its writes
// needs a later read.
func (b *backlog) rowApplied(r *row, readAt time.Time) (settled []*write) {
	if b.rows.byID[r.id] != r {
		return nil // a pass takes its place
	}
	if r.differs {
		r.differs = false
		b.differing--
	}
	next := r.lastRead
	kept := r.writes[:0]
	for _, w := range r.writes {
		switch {
		case w.unread < 0: // it was left to a pass
		case w.readable.After(readAt):
			kept = append(kept, w)
			if w.readable.Before(next) {
				next = w.readable
			}
		default:
			if w.unread--; w.unread == 0 {
				settled = append(settled, w)
			}
		}
	}
	clear(r.writes[len(kept):])
	r.writes = kept
	switch {
	case r.place >= 0: // it was written meanwhile, and waits already
	case next.After(readAt):
		b.rows.put(r.id, next)
	default:
		b.rows.forget(r)
	}
	return settled
}

// takeForPass removes and returns the writes that a pass settles if it begins at the time now: the
// writes that reads show by then.
func (b *backlog) takeForPass(began time.Time) (settles []*write) {
	var later []*write
	for _, w := range b.forPass {
		if w.readable.After(began) {
			later = append(later, w)
		} else {
			settles = append(settles, w)
		}
	}
	if b.forPass = later; len(later) == 0 {
		b.rowsChanged = false
	}
	return settles
}

// returnFromPass takes back the writes of a pass that was given up.
func (b *backlog) returnFromPass(writes []*write) {
	b.forPass = append(b.forPass, writes...)
	b.rowsChanged = true
}

// isShown reports whether all derived data shows every write that was seen, and no row is known to
// differ.
func (b *backlog) isShown() bool { return len(b.writes) == 0 && b.differing == 0 }

// waitsForPassOnly reports whether only a pass can settle what is left.
func (b *backlog) waitsForPassOnly() bool {
	if b.rows.len() > 0 {
		return false
	}
	for w := range b.writes {
		isElsewhere := w.peers && w.readable.IsZero() // the write's own sidecar settles it
		if w.unread >= 0 && !isElsewhere {
			return false
		}
	}
	return true
}

// hasNoUnjournaled reports whether the journal has every pending write that it should have.
func (b *backlog) hasNoUnjournaled() bool {
	for w := range b.writes {
		if w.unjournaled {
			return false
		}
	}
	return true
}

// isJournaled reports whether the next process can go on from the journal alone: no row waits for a
// read, and the journal has every write.
func (b *backlog) isJournaled() bool {
	if b.rows.len() > 0 {
		return false
	}
	for w := range b.writes {
		if w.seq == 0 {
			return false
		}
	}
	return true
}

// oldest returns when the oldest pending write was seen; zero if no write is pending.
func (b *backlog) oldest() (began time.Time) {
	for w := range b.writes {
		if began.IsZero() || w.began.Before(began) {
			began = w.began
		}
	}
	return began
}

// oldestOnItsWay returns when the oldest write was seen that the database has not answered; zero if
// it has answered all of them.
func (b *backlog) oldestOnItsWay() (began time.Time) {
	for w := range b.writes {
		if w.readable.IsZero() && (began.IsZero() || w.began.Before(began)) {
			began = w.began
		}
	}
	return began
}

// readableAt returns from when on reads show a write that the database answered now. They do so at
// once if the client waited for the write to be applied, or if this store's reads show every
// answered write.
func readableAt(now time.Time, applied bool) time.Time {
	if applied {
		return now
	}
	return now.Add(lag)
}

// gap is the time span in which writes may have been missed. The zero value is no gap.
type gap struct {
	since time.Time // when the first write was missed; zero if none was
	last  time.Time // when the last write was missed
}

// note records that a write was missed.
func (g *gap) note(now time.Time) {
	g.last = now
	if g.since.IsZero() {
		g.since = now
	}
}

// isOpen reports whether a write may have been missed.
func (g gap) isOpen() bool { return !g.since.IsZero() }

// closeBy closes the gap if a pass over all rows that began at the given time reads the missed writes.
func (g *gap) closeBy(began time.Time) {
	if !g.last.After(began) {
		*g = gap{}
	}
}

// strictest returns the smaller of two limits, where 0 means no limit.
func strictest[T ~int | ~int64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
