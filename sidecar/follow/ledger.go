package follow

import (
	"slices"
	"time"

	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// ledger holds the writes to a collection that its derived data does not show yet, and what is not known of
// other writes. Its caller holds a lock.
type ledger struct {
	routes  []*derivation // replaced as a whole
	backlog *backlog
	foreign foreignWrites
	missed  gap
	unfit   bool             // a table cannot hold some row
	forget  func(seq uint64) // removes a write from the journal
}

// addWrite adds a write to the backlog, and announces it to the routes' live tables.
func (l *ledger) addWrite(now time.Time) *write {
	for _, d := range l.routes {
		d.announce()
	}
	return l.backlog.addWrite(now)
}

// apply notes that the database carried out a write, and that reads show it from readable on.
func (l *ledger) apply(w *write, jw journal.Write, now, readable time.Time) {
	l.foreign.explain(jw)
	if l.backlog.apply(w, jw, now, readable) {
		l.settle(w)
	}
}

// settle ends a write that all derived data shows: the live tables and the journal forget it.
func (l *ledger) settle(w *write) {
	l.backlog.settle(w)
	for _, d := range l.routes {
		d.settle()
	}
	if w.seq > 0 {
		l.forget(w.seq)
	}
}

// adopt adds a route, and tells its live table of every write that it does not show yet.
func (l *ledger) adopt(d *derivation) {
	l.routes = append(slices.Clone(l.routes), d)
	for range l.backlog.writes {
		d.announce()
	}
}

// replace puts d in the place of the route of that name; nil only removes the route. Derived data is not
// fresh until all rows were compared.
func (l *ledger) replace(name string, d *derivation, now time.Time) {
	l.routes = slices.DeleteFunc(slices.Clone(l.routes), func(d *derivation) bool { return d.route.Name == name })
	if d != nil {
		l.adopt(d)
	}
	l.foreign = foreignWrites{unnamed: true} // until the next pass
	l.missed.note(now)
}

// noteRows settles the writes that the applied rows complete, and queues the failed and unapplied
// rows again. The rows were read at readAt. unfit reports that a table cannot hold some of them.
func (l *ledger) noteRows(rows []*row, failed []rowFailure, unapplied []*row, readAt time.Time, unfit bool, now time.Time) {
	l.unfit = l.unfit || unfit
	retryAt := map[*row]time.Time{}
	for _, f := range failed {
		retryAt[f.row] = now.Add(retryRow)
	}
	for _, r := range unapplied {
		retryAt[r] = now // at once: run waits after the error
	}
	for _, r := range rows {
		if at, retry := retryAt[r]; retry {
			l.backlog.retry(r, at)
			continue
		}
		for _, w := range l.backlog.rowApplied(r, readAt) {
			l.settle(w)
		}
	}
}

// endPass settles the writes of a pass that has ended. gone reports that the collection no longer exists.
func (l *ledger) endPass(p *pass, gone bool) {
	l.backlog.dropped = l.backlog.dropped && gone
	for _, w := range p.writes {
		l.settle(w)
	}
}

// declaresProxy reports whether the operator declares that all writes to the collection
// pass through this process.
func (l *ledger) declaresProxy() bool {
	return slices.ContainsFunc(l.routes, func(d *derivation) bool { return d.route.Writes == route.WritesProxy })
}

// isFresh reports whether all derived data is known to show the collection.
func (l *ledger) isFresh() bool {
	return l.backlog.isShown() && !l.missed.isOpen() && !l.unfit
}

// behindSince returns when the oldest write was seen or missed that some derived data may not show;
// zero if all derived data shows all writes.
func (l *ledger) behindSince() time.Time {
	oldest := l.backlog.oldest()
	if l.missed.isOpen() && (oldest.IsZero() || l.missed.since.Before(oldest)) {
		return l.missed.since
	}
	return oldest
}

// endsClean reports whether the next process learns from the journal alone what is left to do.
// noDoubts says that every doubtful write has ended.
func (l *ledger) endsClean(noDoubts bool) bool {
	return l.backlog.isJournaled() && !l.missed.isOpen() && !l.unfit && noDoubts
}
