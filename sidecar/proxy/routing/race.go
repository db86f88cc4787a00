package routing

import (
	"context"
	"sync"
	"time"
)

// linger is how long the loser of a race runs before it is cancelled. Most have ended by then, and
// Qdrant closes a connection on which many calls are cancelled before it has begun them.
const linger = 100 * time.Millisecond

// tethered is a context that ends with its call, or, once let go, shortly afterwards. It then ends
// with DeadlineExceeded instead of Canceled, because the admission learns from it which searches
// are too slow.
type tethered struct {
	context.Context //nolint:containedctx // supplies values and deadline
	done            chan struct{}
	ended           sync.Once
	err             error // set before done is closed
}

// Done implements context.Context.
func (t *tethered) Done() <-chan struct{} { return t.done }

// Err implements context.Context.
func (t *tethered) Err() error {
	select {
	case <-t.done:
		return t.err
	default:
		return nil
	}
}

func (t *tethered) end(err error) {
	t.ended.Do(func() {
		t.err = err
		close(t.done)
	})
}

// deadlined is a context that reports a deadline without ending at it.
type deadlined struct {
	context.Context //nolint:containedctx // it is one
	deadline        time.Time
	has             bool
}

// Deadline implements context.Context.
func (d deadlined) Deadline() (time.Time, bool) { return d.deadline, d.has }

// tether returns a context for background work of a call, and the function that lets it go.
func (b *background) tether(ctx context.Context) (own context.Context, letGo func()) {
	deadline, has := ctx.Deadline()
	t := &tethered{Context: deadlined{context.WithoutCancel(ctx), deadline, has}, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { t.end(ctx.Err()) })
	closing := context.AfterFunc(b.closing, func() { t.end(context.Canceled) })
	return t, func() {
		stop()
		time.AfterFunc(linger, func() {
			closing()
			t.end(context.DeadlineExceeded)
		})
	}
}

// race sends the original request when it has to be sent, at once if the route is eager, or when
// rescoring fails. The first complete answer wins.
func (c *call[A]) race(ctx context.Context) Outcome[A] {
	mine, letMine := c.background.tether(ctx)
	defer letMine()
	rescoring := make(chan rescored[A], 1)
	c.background.Go(func() { rescoring <- c.rescore(mine) })
	fallback := "late"
	if c.own == nil && c.eager() {
		fallback = "eager"
	} else {
		leave := time.NewTimer(time.Until(c.times.leave))
		defer leave.Stop()
		select {
		case s := <-rescoring:
			return c.settle(ctx, s)
		case <-leave.C:
		}
		if c.own != nil {
			return c.decline(Degraded{Reason: "deadline"})
		}
		if !c.extra.take() {
			c.outcomes.record.Raced(fallback, "withheld")
			return c.decline(Degraded{Reason: "deadline"})
		}
	}
	return c.between(ctx, fallback, rescoring)
}

// eager reports whether a route of the call wants the original request sent at once.
func (c *call[A]) eager() bool {
	for _, r := range c.routes {
		if r.IsEager() {
			return true
		}
	}
	return false
}

// between sends the original request, and takes the answer that arrives first.
func (c *call[A]) between(ctx context.Context, fallback string, rescoring <-chan rescored[A]) Outcome[A] {
	theirs, letTheirs := c.background.tether(ctx)
	defer letTheirs()
	answers := make(chan A, 1)
	c.background.Go(func() {
		began := time.Now()
		a := c.x.Original(theirs, false)
		if theirs.Err() == nil {
			c.database.add(time.Since(began))
		}
		answers <- a
	})
	lost := error(Degraded{Reason: "deadline"})
	var own *A // the database's answer, if it is an error and rescoring continues
	for {
		select {
		case s := <-rescoring:
			if s.err == nil {
				c.outcomes.record.Raced(fallback, "lost")
				return c.rescoredTo(ctx, s)
			}
			if lost = s.err; own != nil {
				return c.passWith(fallback, *own, lost)
			}
			rescoring = nil
		case a := <-answers:
			if _, ok := c.x.IDs(a); ok || rescoring == nil {
				return c.passWith(fallback, a, lost)
			}
			own, answers = &a, nil
		}
	}
}

// passWith returns the outcome of a call whose original was answered in time.
func (c *call[A]) passWith(fallback string, a A, why error) Outcome[A] {
	if fallback == "late" {
		c.extra.earn(1) // the request was not in vain
	}
	c.outcomes.record.Raced(fallback, "won")
	return Outcome[A]{Answered: true, Answer: a, Status: c.outcomes.notRescored(c.routeNamesOf(), why)}
}
