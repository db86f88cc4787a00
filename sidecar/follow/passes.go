package follow

import "time"

// passes decides when all rows of a collection are compared, and keeps what the comparisons found. Its caller
// holds a lock.
type passes struct {
	onRequest bool                      // only requests begin a pass
	interval  time.Duration             // between two comparisons of all rows
	rate      int                       // rows that a comparison reads in a second
	draining  bool                      // no pass may begin
	requests  []chan<- map[string]Drift // calls of Reconcile that the next pass answers
	running   *pass                     // nil without one
	ended     time.Time                 // when the last pass of any kind ended
	record    record                    // the record to write for the next process
	// unreported is the drift that was not returned by Reconcile yet.
	unreported           map[string]Drift
	reconciles, rowsRead int64
}

// schedule collects the facts that decide when the next pass is due.
func (p *passes) schedule(l *ledger) schedule {
	return schedule{
		underWay: p.running != nil, requested: len(p.requests) > 0, draining: p.draining, onRequest: p.onRequest,
		interval: p.interval, full: p.record.Reconciled, ended: p.ended, missed: l.missed,
		writes: l.backlog.forPass, rowsChanged: l.backlog.rowsChanged,
	}
}

// begin begins the pass that is due, or returns the one under way.
func (p *passes) begin(l *ledger, now time.Time) *pass {
	if p.running == nil {
		p.running = &pass{began: now, full: p.schedule(l).isFull(now), complete: true, requests: p.requests, writes: l.backlog.takeForPass(now)}
		p.requests = nil
	}
	r := p.running
	if r.routes == nil {
		l.foreign.begin(l.backlog.rows.byID, l.missed.isOpen() || len(r.writes)+len(l.backlog.forPass) > 0)
		r.start(l.routes, p.record.Place)
	}
	if !r.full {
		r.stage = max(r.stage, len(sourcesOf(r.routes)))
	}
	return r
}

// giveUp ends the running pass early: its writes and requests wait for the next one.
func (p *passes) giveUp(b *backlog) {
	if r := p.running; r != nil {
		b.returnFromPass(r.writes)
		p.requests = append(p.requests, r.requests...)
		p.running = nil
	}
}

// end notes that a pass has ended, and what it found.
func (p *passes) end(r *pass, now time.Time) {
	p.running, p.ended = nil, now
	if r.full {
		p.reconciles++
		p.record.Reconciled, p.record.Drift = now, r.driftByRoute()
	}
}

// complete notes what a pass proves that this process began, and that compared every row.
func (p *passes) complete(r *pass, l *ledger) {
	if !r.full || !r.complete {
		return
	}
	p.record.Complete = r.began
	if r.acknowledges(p.record.Foreign, l.foreign.suspects) {
		p.record.Foreign = nil
	}
	l.missed.closeBy(r.began)
	l.unfit = r.unfit()
}

// report returns the drift that the callers of Reconcile get from a pass.
func (p *passes) report(r *pass) map[string]Drift {
	if !p.onRequest {
		return r.driftByRoute()
	}
	told := addUnreported(r.driftByRoute(), p.unreported) // the passes of this process are one run
	if p.unreported = told; len(r.requests) > 0 {
		p.unreported = nil
	}
	return told
}

// keepPlace puts the position of the pass under way into the record. A resumed pass that has not
// read a page yet leaves the position in the record as it was.
func (p *passes) keepPlace() {
	switch r := p.running; {
	case r == nil:
		p.record.Place = nil
	case r.routes != nil:
		p.record.Place = r.place()
	}
}
