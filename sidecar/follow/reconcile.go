package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

// errPassGivenUp ends a pass early: because a route was replaced, so that the pass compares the
// wrong data, or because the process ends, and the next process resumes the pass.
var errPassGivenUp = errors.New("the pass was given up")

// awaitPass requests a pass and waits for its end, as Follower.Reconcile says.
func (s *syncer) awaitPass(ctx context.Context) (map[string]Drift, error) {
	answer := make(chan map[string]Drift, 1)
	s.mu.Lock()
	s.requests = append(s.requests, answer)
	s.signal()
	s.mu.Unlock()
	select {
	case drift := <-answer:
		return drift, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, ErrClosed
	}
}

// nextPass returns when the next pass is due.
func (s *syncer) nextPass() (due time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.schedule().due()
}

// schedule collects the facts that decide when the next pass is due. The caller holds the lock.
func (s *syncer) schedule() schedule {
	return schedule{
		underWay: s.pass != nil, requested: len(s.requests) > 0, draining: s.draining, onRequest: s.o.OnRequest,
		interval: s.interval, full: s.record.Reconciled, ended: s.ended, missed: s.missed,
		writes: s.backlog.forPass, rowsChanged: s.backlog.rowsChanged,
	}
}

// reconcile begins the pass that is due, or resumes the one under way. It compares page after page,
// waits until the rows that differ are repaired, and settles the writes that the pass took from the
// backlog. Between pages it follows rows that were written meanwhile. After an error the next call
// resumes at the same page.
func (s *syncer) reconcile(ctx context.Context) error {
	p, dropped := s.beginPass()
	c := comparison{scanner: s.scanner, collection: s.collection, routes: p.routes, dropped: dropped}
	stages := c.stages()
	for ; p.stage < len(stages); s.nextStage(p) {
		err := stages[p.stage].run(ctx, p.cursor, func(found page) error { return s.addPage(ctx, p, found) })
		if errors.Is(err, errPassGivenUp) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", stages[p.stage].name, err)
		}
	}
	if err := s.repairDiffering(ctx); err != nil {
		return err
	}
	return s.endPass(ctx, p)
}

// beginPass begins the pass that is due, or returns the one under way.
func (s *syncer) beginPass() (p *pass, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pass == nil {
		now := time.Now()
		s.pass = &pass{began: now, full: s.schedule().isFull(now), complete: true, requests: s.requests, writes: s.backlog.takeForPass(now)}
		s.requests = nil
	}
	p = s.pass
	if p.routes == nil {
		s.foreign.begin(s.backlog.rows.byID, s.missed.isOpen() || len(p.writes)+len(s.backlog.forPass) > 0)
		p.start(s.routes, s.record.Place)
	}
	if !p.full {
		p.stage = max(p.stage, len(sourcesOf(p.routes)))
	}
	return p, s.backlog.dropped
}

func (s *syncer) nextStage(p *pass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.stage++
	p.cursor = ""
}

// addPage takes a page of differences: it queues the rows that differ, and follows rows until the
// next page may be read.
func (s *syncer) addPage(ctx context.Context, p *pass, found page) error {
	s.mu.Lock()
	if s.pass != p {
		s.mu.Unlock()
		return errPassGivenUp
	}
	now := time.Now()
	s.foreign.suspect(found.ids, now)
	s.backlog.noteDiffering(found.ids, now)
	p.addPage(found, now, s.rate)
	s.rowsRead += int64(found.rows)
	save := now.Sub(p.saved) >= saveEvery
	if save {
		p.saved = now
		s.keepPlace()
	}
	kept, draining, nextPage := s.record, s.draining, p.nextPage
	s.mu.Unlock()
	if draining {
		return errPassGivenUp
	}
	if save {
		s.save(kept)
	}
	return s.followUntil(ctx, nextPage)
}

// followUntil follows rows until the given time has come and few differing rows are left.
func (s *syncer) followUntil(ctx context.Context, until time.Time) error {
	for ctx.Err() == nil {
		followed, err := s.followRows(ctx)
		now := time.Now()
		switch {
		case err != nil:
			return err
		case followed:
		case !until.After(now) && s.differing() < maxDiffering:
			return nil
		case until.After(now.Add(debounce)):
			s.wait(ctx, until)
		default:
			s.wait(ctx, now.Add(debounce))
		}
	}
	return ctx.Err()
}

// repairDiffering follows rows until none is left that a pass found to differ.
func (s *syncer) repairDiffering(ctx context.Context) error {
	for s.differing() > 0 {
		if followed, err := s.followRows(ctx); err != nil {
			return err
		} else if !followed {
			s.wait(ctx, time.Now().Add(retryRow))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (s *syncer) differing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog.differing
}

// endPass settles the writes that the pass took from the backlog, and answers the callers of
// Reconcile.
func (s *syncer) endPass(ctx context.Context, p *pass) error {
	gone, missesPeers := s.isGone(ctx), s.peers.awaitRead(sharedBudget) != nil
	s.mu.Lock()
	if s.pass != p {
		s.mu.Unlock()
		return nil // a route was replaced meanwhile
	}
	now := time.Now()
	s.pass, s.ended = nil, now
	s.backlog.dropped = s.backlog.dropped && gone
	for _, w := range p.writes {
		s.settle(w)
	}
	found := p.driftByRoute()
	if p.full {
		s.reconciles++
		s.record.Reconciled, s.record.Drift = now, found
	}
	s.findForeign(now, missesPeers)
	if p.full && p.complete {
		s.record.Complete = p.began
		if p.acknowledges(s.record.Foreign, s.foreign.suspects) {
			s.record.Foreign = nil
		}
		s.missed.closeBy(p.began)
		s.unfit = p.unfit()
	}
	told := found
	if s.o.OnRequest { // the passes of this process are one run
		s.unreported = addUnreported(found, s.unreported)
		if told = s.unreported; len(p.requests) > 0 {
			s.unreported = nil
		}
	}
	s.keepPlace()
	kept := s.record
	s.mu.Unlock()
	for _, answer := range p.requests {
		answer <- told
	}
	s.save(kept)
	return nil
}

// keepPlace puts the position of the pass under way into the record. A resumed pass that has not
// read a page yet leaves the position in the record as it was. The caller holds the lock.
func (s *syncer) keepPlace() {
	switch p := s.pass; {
	case p == nil:
		s.record.Place = nil
	case p.routes != nil:
		s.record.Place = p.place()
	}
}

// save writes the record. If that fails, the next process has to compare more rows.
func (s *syncer) save(r record) {
	err := r.write(s.o.Disk, recordPath(s.dir))
	if err != nil && !s.unsaved {
		s.log.Warn("follow: record cannot be written, will retry after the next pass", "error", err)
	}
	s.unsaved = err != nil
}

// isGone reports whether the collection no longer exists, after a write that may have dropped it.
func (s *syncer) isGone(ctx context.Context) bool {
	s.mu.Lock()
	dropped := s.backlog.dropped
	s.mu.Unlock()
	if !dropped {
		return false
	}
	exists := errors.New("the collection exists")
	err := s.scanner.Scan(ctx, adapters.ScanRequest{Collection: s.collection, Batch: 1}, func(adapters.Rows, string) error { return exists })
	return meansNoRows(err, dropped)
}
