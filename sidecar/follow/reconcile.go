package follow

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errPassGivenUp ends a pass early: because a route was replaced, so that the pass compares the
// wrong data, or because the process ends, and the next process resumes the pass.
var errPassGivenUp = errors.New("the pass was given up")

// awaitPass requests a pass and waits for its end, as Follower.Reconcile says.
func (s *syncer) awaitPass(ctx context.Context) (map[string]Drift, error) {
	answer := make(chan map[string]Drift, 1)
	s.mu.Lock()
	s.passes.requests = append(s.passes.requests, answer)
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
	return s.passes.schedule(&s.ledger).due()
}

// reconcile begins the pass that is due, or resumes the one under way. It compares page after page,
// waits until the rows that differ are repaired, and settles the writes that the pass took from the
// backlog. Between pages it follows rows that were written meanwhile. After an error the next call
// resumes at the same page.
func (s *syncer) reconcile(ctx context.Context) error {
	p, dropped := s.beginPass()
	c := comparison{scanner: s.reader.scan, collection: s.collection, routes: p.routes, dropped: dropped}
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
	p = s.passes.begin(&s.ledger, time.Now())
	return p, s.ledger.backlog.dropped
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
	if s.passes.running != p {
		s.mu.Unlock()
		return errPassGivenUp
	}
	now := time.Now()
	s.ledger.foreign.suspect(found.ids, now)
	s.ledger.backlog.noteDiffering(found.ids, now)
	p.addPage(found, now, s.passes.rate)
	s.passes.rowsRead += int64(found.rows)
	save := now.Sub(p.saved) >= saveEvery
	if save {
		p.saved = now
		s.passes.keepPlace()
	}
	kept, draining, nextPage := s.passes.record, s.passes.draining, p.nextPage
	s.mu.Unlock()
	if draining {
		return errPassGivenUp
	}
	if save {
		s.records.save(kept)
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
	return s.ledger.backlog.differing
}

// endPass settles the writes that the pass took from the backlog, and answers the callers of
// Reconcile.
func (s *syncer) endPass(ctx context.Context, p *pass) error {
	s.mu.Lock()
	dropped := s.ledger.backlog.dropped
	s.mu.Unlock()
	gone, missesPeers := dropped && s.reader.isGone(ctx), s.peers.awaitRead(sharedBudget) != nil
	s.mu.Lock()
	if s.passes.running != p {
		s.mu.Unlock()
		return nil // a route was replaced meanwhile
	}
	now := time.Now()
	s.ledger.endPass(p, gone)
	s.passes.end(p, now)
	s.findForeign(now, missesPeers)
	s.passes.complete(p, &s.ledger)
	told := s.passes.report(p)
	s.passes.keepPlace()
	kept := s.passes.record
	s.mu.Unlock()
	for _, answer := range p.requests {
		answer <- told
	}
	s.records.save(kept)
	return nil
}
