package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Answer finds the answer to a call on a routed collection in time: a rescored answer, or the
// consequence of a Pass, a Degraded or a panic. The outgoing metadata of ctx holds the caller's
// credential. The call of a caller whom the database has not accepted lately is sent to the
// database unchanged before anything in it is read. If the database refuses it, the refusal is the
// answer and nothing is recorded.
func Answer[A any](ctx context.Context, r *Router, target Target, x Exchange[A]) (o Outcome[A]) {
	c := newCall(r, target, x, time.Now())
	defer func() {
		if p := recover(); p != nil {
			o = c.decline(searchPanicked(ctx, c.rescorer.log, target.Routed, p))
		}
	}()
	if own, ok := c.checkAccess(ctx); !ok {
		return Outcome[A]{Answered: true, Answer: own}
	}
	if err := c.read(ctx); err != nil {
		return c.decline(err)
	}
	c.extra.earn(extraShare)
	if !c.accepted.open {
		ctx = gate.WithCaller(ctx, c.accepted.caller(ctx))
	}
	if share, rt := c.shadow(); share > 0 {
		return c.beside(ctx, share, rt)
	}
	if c.closed() || (c.rewritten || c.times.leave.IsZero()) && (c.own != nil || !c.eager()) {
		return c.settle(ctx, c.rescore(ctx))
	}
	return c.race(ctx)
}

// call is a client's call that is being answered.
type call[A any] struct {
	target Target
	x      Exchange[A]
	began  time.Time
	asked  Asked
	routes []*route.Route // the route of each search
	times  times
	// rewritten reports that one search of the database answers the call.
	rewritten bool
	caller    acceptance
	own       *A // the database's answer to the unchanged call, if access had to be checked

	// What the call shares with the router's other calls.
	coverage   *coverage    // finds the routes
	rescorer   *rescorer    // ranks and rewrites the searches
	outcomes   *outcomes    // is told what became of them
	accepted   *acceptances // the credentials that the database accepted lately
	database   *latency     // how fast the database answers
	extra      *extra       // whether the original may be sent in addition
	shadows    *semaphore.Weighted
	background *background
	events     events.Book
	trials     Trials // nil: no experiments
}

func newCall[A any](r *Router, target Target, x Exchange[A], began time.Time) *call[A] {
	return &call[A]{
		target: target, x: x, began: began,
		coverage: &r.coverage, rescorer: &r.rescorer, outcomes: &r.outcomes, accepted: &r.accepted, database: &r.database, extra: &r.extra,
		shadows: r.shadows, background: &r.background, events: r.events, trials: r.trials,
	}
}

// checkAccess reports whether the database lets the caller search. If that is not known, the call
// is sent unchanged: if the answer does not show it, ok is false and own is the client's answer.
func (c *call[A]) checkAccess(ctx context.Context) (own A, ok bool) {
	c.caller = c.accepted.of(ctx, toSearch, c.target.Name)
	if c.accepted.has(c.caller) {
		return own, true
	}
	own = c.x.Original(ctx, false)
	if c.x.Access(own) != AccessGranted {
		return own, false
	}
	c.database.add(time.Since(c.began))
	c.accepted.remember(c.caller)
	c.own = &own
	return own, true
}

// read reads the call and finds its routes. It returns the Pass of a call that is not answered.
func (c *call[A]) read(ctx context.Context) error {
	reading, cancel := c.whileReading(ctx)
	defer cancel()
	done, err := c.readRewrite(reading)
	if err == nil && !done {
		err = c.readWhole(reading)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Degraded{Reason: "deadline"}
	case errors.Is(err, context.Canceled):
		return Degraded{Reason: "canceled"}
	case err != nil:
		return err
	}
	c.times = c.deadlines(ctx, c.asked.Timeout)
	for i := range c.asked.Searches {
		c.asked.Searches[i].answerBy = c.times.ranked
	}
	if c.ramped() {
		return Pass("ramp")
	}
	return nil
}

// readWhole reads a call that is rescored. It returns the Pass of a call that is not answered.
func (c *call[A]) readWhole(ctx context.Context) (err error) {
	if c.asked, err = c.x.Read(ctx); err != nil {
		return err
	}
	if len(c.asked.Searches) == 0 || len(c.asked.Searches) > MaxBatch {
		return Pass("batch")
	}
	if c.target.Own == "" {
		return Pass("alias") // the collection is not known
	}
	c.markTried(ctx)
	c.routes = nil
	for _, s := range c.asked.Searches {
		rt, err := c.coverage.routeToRescore(ctx, c.target.Routed, s)
		if err != nil {
			return err
		}
		c.routes = append(c.routes, rt)
	}
	return nil
}

// whileReading returns the context for reading a call and finding its routes. It ends when the
// original has to be sent, and with the time that the collection's routes have for a search. If a
// route of the collection fails closed, it is unknown until then whether the original may be sent,
// so only the client's leaving ends it.
func (c *call[A]) whileReading(ctx context.Context) (context.Context, context.CancelFunc) {
	if by := c.readBy(ctx); !by.IsZero() {
		return context.WithDeadline(ctx, by)
	}
	return ctx, func() {}
}

// readBy returns when reading the call is given up; zero means never.
func (c *call[A]) readBy(ctx context.Context) time.Time {
	by := c.deadlines(ctx, 0).leave
	for _, name := range c.coverage.names.routesOf(c.target.Routed) {
		rt, err := c.coverage.find(name)
		switch {
		case err != nil:
		case rt.Failure == route.FailClosed:
			return time.Time{}
		case rt.Timeout > 0 && (by.IsZero() || c.began.Add(rt.Timeout).Before(by)):
			by = c.began.Add(rt.Timeout)
		}
	}
	return by
}

// deadlines returns the deadlines of the call, if its request has the given timeout.
func (c *call[A]) deadlines(ctx context.Context, timeout time.Duration) times {
	return c.database.deadlines(ctx, c.began, timeout, c.coverage.latencyBudget(c.target.Routed))
}

// untilOriginalLeaves returns a context that ends when the call's original must be sent.
func (c *call[A]) untilOriginalLeaves(ctx context.Context) (context.Context, context.CancelFunc) {
	if t := c.deadlines(ctx, 0); !t.leave.IsZero() {
		return context.WithDeadline(ctx, t.leave)
	}
	return ctx, func() {}
}

// closed reports whether a route of the call permits no answer other than a rescored one.
func (c *call[A]) closed() bool {
	for _, r := range c.routes {
		if r.Failure == route.FailClosed {
			return true
		}
	}
	return false
}

// rescored is a rescored answer and its ranking, or the error that prevented one.
type rescored[A any] struct {
	answer A
	all    []Ranked
	err    error
	denied bool // answer is the database's refusal of a rewritten call, which err reports
}

// confirmReason is the Degraded reason of hits that the database did not confirm.
const confirmReason = "confirm"

// rankings limits how often a search is ranked because its hits have changed.
const rankings = 3

// rescore ranks the searches and has the database confirm the hits. It ranks more hits than are
// asked for if some may be gone, ranks again if the collection changed meanwhile, and ranks deeper
// while there are too few hits.
func (c *call[A]) rescore(ctx context.Context) (out rescored[A]) {
	defer func() {
		if p := recover(); p != nil { // a panic in a goroutine would end the process
			out.err = searchPanicked(ctx, c.rescorer.log, c.target.Routed, p)
		}
	}()
	if end := c.rescoreEnd(); !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	ctx, release := route.Pin(ctx)
	defer release()
	if c.target.Aliased() { // checked again once the answer is there
		if out.err = c.coverage.names.checkTarget(ctx, c.target); out.err != nil {
			return out
		}
	}
	if c.rewritten {
		return c.rewrite(ctx)
	}
	ranked := 0
	for deeper := 0; ; {
		if out.all, out.err = c.rescorer.rankAll(ctx, c.target, c.asked.Searches, deeper); out.err != nil {
			return out
		}
		ranked++
		for i := range out.all {
			out.all[i].isLast = ranked >= rankings
		}
		out.answer, out.err = c.confirm(ctx, out.all)
		switch {
		case ctx.Err() != nil && out.err != nil:
			out.err = c.ended(ctx, out.err)
			return out
		case errors.Is(out.err, ErrChanged):
		case !errors.Is(out.err, ErrShort):
			return out
		case !anyMore(out.all):
			out.err = Degraded{Reason: confirmReason, Closed: c.closed()}
			return out
		default:
			deeper++
		}
	}
}

// ended returns why a call failed without an answer: its client left, its time ran out, or failed.
func (c *call[A]) ended(ctx context.Context, failed error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Degraded{Reason: "canceled"}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Degraded{Reason: "deadline", Closed: c.closed()}
	}
	return failed
}

func anyMore(all []Ranked) bool {
	for _, r := range all {
		if r.More {
			return true
		}
	}
	return false
}

// rescoreEnd returns when rescoring is given up.
func (c *call[A]) rescoreEnd() time.Time {
	if !c.times.end.IsZero() && c.closed() {
		return c.times.end // no other answer can be in time
	}
	if t := c.routes[0].Timeout; t > 0 {
		return c.began.Add(t)
	}
	return time.Time{}
}

// settle returns the outcome of rescoring if no original was sent.
func (c *call[A]) settle(ctx context.Context, s rescored[A]) Outcome[A] {
	switch {
	case s.denied:
		c.accepted.forget(c.caller)
		return Outcome[A]{Answered: true, Answer: s.answer, Status: c.outcomes.notRescored(c.routeNamesOf(), s.err)}
	case s.err != nil:
		return c.decline(s.err)
	}
	return c.rescoredTo(ctx, s)
}

func (c *call[A]) rescoredTo(ctx context.Context, s rescored[A]) Outcome[A] {
	c.accepted.remember(c.caller) // the database confirmed the answer with the caller's rights
	how := "rescored"
	if c.rewritten {
		how = "rewritten"
	}
	routes := c.routeNamesOf()
	c.outcomes.record.Proxied(routes, how, "")
	for _, name := range routes {
		c.outcomes.unanswered.answered(name)
	}
	return Outcome[A]{Answered: true, Answer: s.answer, Status: statusText(how, s.all) + c.keepImpressions(ctx, s.all)}
}

// decline lets a call pass, or fails it if its route is fail_closed. If the database has answered
// the unchanged call already, that is the answer.
func (c *call[A]) decline(err error) Outcome[A] {
	o := Outcome[A]{Status: c.outcomes.notRescored(c.routeNamesOf(), err)}
	switch d := (Degraded{}); {
	case errors.As(err, &d) && d.Closed:
		o.Refused = fmt.Sprintf("likeness: no rescored answer: %s", d.Reason)
	case c.own != nil:
		o.Answered, o.Answer = true, *c.own
	}
	if d := (Degraded{}); errors.As(err, &d) && d.Reason == confirmReason {
		c.accepted.forget(c.caller) // the database may have revoked the credential
	}
	return o
}

// confirm has the database confirm a ranking. For a client's alias it checks, beside the
// confirming read, that the alias still stands for the collection that was ranked.
func (c *call[A]) confirm(ctx context.Context, all []Ranked) (answer A, err error) {
	if !c.target.Aliased() {
		return c.x.Confirm(ctx, all)
	}
	checked := make(chan error, 1)
	c.background.Go(func() { checked <- c.coverage.names.checkTarget(ctx, c.target) })
	answer, err = c.x.Confirm(ctx, all)
	if moved := <-checked; moved != nil {
		return answer, moved
	}
	return answer, err
}
