package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Asked holds the searches of one call.
type Asked struct {
	Searches []Search
	Timeout  time.Duration // timeout that the request itself carries; 0 without one
}

// Exchange is one call of a client on a routed collection, in the words of its
// interface; A is an answer in them. Its methods after Read are called
// concurrently, and after the call has ended too.
type Exchange[A any] interface {
	// Locate finds the searches of a call in its bytes, as far as rewriting needs them: the
	// vector and its field, the page, the threshold. For a call with other searches than
	// plain nearest-neighbour ones it returns the Pass with the reason.
	Locate(ctx context.Context) (Asked, error)
	// Rewrite sends the call with the vectors and thresholds of its searches replaced by the
	// vectors and thresholds of the rewritten searches, one for each. It returns the
	// database's answer with the scores mapped, and the rows of every search. It returns
	// ErrDenied with the database's own answer, the Pass for a call that the database does not
	// take, or Degraded.
	Rewrite(ctx context.Context, all []Rewritten) (A, [][]search.Hit, error)
	// Read says what is asked, or returns the Pass why the call goes on as it came.
	Read(ctx context.Context) (Asked, error)
	// Confirm asks the database, as the caller, for the hits, and makes the answer
	// of those that it shows; what it has Shown it is not asked again. It asks by the target's
	// own name, so that hits of one collection are not looked for in another. It returns the
	// errors of Ranked.Page, or Degraded.
	Confirm(ctx context.Context, all []Ranked) (A, error)
	// Original sends the call as it came; plain asks for an answer that IDs can read.
	Original(ctx context.Context, plain bool) A
	// Access says whether an answer of the database to the call as it came shows that the
	// caller may make the call.
	Access(answer A) Access
	// IDs are the items of an answer of the database, a list for every search; not
	// ok is an error or an answer of another form.
	IDs(answer A) (lists [][]rerank.ID, ok bool)
}

// Outcome is the result of a call.
type Outcome[A any] struct {
	// Answered: Answer is the client's, rescored or the database's own. Otherwise
	// the call goes on as it came, or fails if Refused says why.
	Answered bool
	Answer   A
	Refused  string
	// Status is for the client to see. It is empty for a caller whom the database has not
	// accepted, who is told nothing of the route.
	Status string
}

// Answer finds the answer to a call on a routed collection, the target: a rescored one, or
// what its Pass, Degraded or panic means, in time. The outgoing metadata of ctx has the
// caller's credential. The call of a caller whom the database has not accepted lately goes
// to the database as it came, before anything of it is read, and what the database refuses
// is answered so and leaves nothing behind.
func Answer[A any](ctx context.Context, r *Router, target Target, x Exchange[A]) (o Outcome[A]) {
	c := &call[A]{Router: r, target: target, x: x, began: time.Now()}
	defer func() {
		if p := recover(); p != nil {
			o = c.decline(r.searchPanicked(ctx, target.Routed, p))
		}
	}()
	if own, ok := c.checkAccess(ctx); !ok {
		return Outcome[A]{Answered: true, Answer: own}
	}
	if err := c.read(ctx); err != nil {
		return c.decline(err)
	}
	r.extra.earn(extraShare)
	ctx = gate.WithCaller(ctx, r.accepted.caller(ctx))
	if share, rt := c.shadow(); share > 0 {
		return c.beside(ctx, share, rt)
	}
	if c.closed() || (c.rewritten || c.times.leave.IsZero()) && (c.own != nil || !c.eager()) {
		return c.settle(c.rescore(ctx))
	}
	return c.race(ctx)
}

// call is a call on its way.
type call[A any] struct {
	*Router
	target Target
	x      Exchange[A]
	began  time.Time
	asked  Asked
	routes []*route.Route // of the searches
	times  times
	// rewritten: one search of the database answers the call.
	rewritten bool
	caller    acceptance
	own       *A // the database's answer to the call as it came, if it had to accept the caller
}

// checkAccess reports whether the database accepted the caller lately. If it did not, the
// call is sent as it came: ok is false where the answer does not show that the caller may
// search, and own is then the client's.
func (c *call[A]) checkAccess(ctx context.Context) (own A, ok bool) {
	c.caller = c.accepted.of(ctx, toSearch, c.target.Name)
	if c.accepted.has(c.caller) {
		return own, true
	}
	own = c.x.Original(ctx, false)
	if c.x.Access(own) != AccessGranted {
		return own, false
	}
	c.Passed(time.Since(c.began))
	c.accepted.remember(c.caller)
	c.own = &own
	return own, true
}

// read reads the call and finds its routes, or why it passes.
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
	c.times = c.Router.times(ctx, c.target.Routed, c.began, c.asked.Timeout)
	if c.ramped() {
		return Pass("ramp")
	}
	return nil
}

// readWhole reads a call that is rescored, or why it passes.
func (c *call[A]) readWhole(ctx context.Context) (err error) {
	if c.asked, err = c.x.Read(ctx); err != nil {
		return err
	}
	if len(c.asked.Searches) == 0 || len(c.asked.Searches) > MaxBatch {
		return Pass("batch")
	}
	if c.target.Own == "" {
		return Pass("alias") // nobody knows which collection it is
	}
	for _, s := range c.asked.Searches {
		rt, err := c.route(ctx, c.target.Routed, s)
		if err != nil {
			return err
		}
		c.routes = append(c.routes, rt)
	}
	return nil
}

// whileReading returns the context in which a call is read and its routes are found: before
// its original has to leave, and within the time that its collection's routes have for a
// search. Where a route of the collection fails closed nobody knows before the call is read
// whether the original may leave, so that only the client's leaving ends the reading.
func (c *call[A]) whileReading(ctx context.Context) (context.Context, context.CancelFunc) {
	if by := c.readBy(ctx); !by.IsZero() {
		return context.WithDeadline(ctx, by)
	}
	return ctx, func() {}
}

// readBy returns when the reading of the call is given up; zero is never.
func (c *call[A]) readBy(ctx context.Context) time.Time {
	by := c.Router.times(ctx, c.target.Routed, c.began, 0).leave
	for _, name := range c.known[c.target.Routed] {
		rt, err := c.searcher.Route(name)
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

// untilOriginalLeaves returns a context that ends when the call's original has to leave.
func (c *call[A]) untilOriginalLeaves(ctx context.Context) (context.Context, context.CancelFunc) {
	if t := c.Router.times(ctx, c.target.Routed, c.began, 0); !t.leave.IsZero() {
		return context.WithDeadline(ctx, t.leave)
	}
	return ctx, func() {}
}

// closed: a route of the call has no answer but the rescored one.
func (c *call[A]) closed() bool {
	for _, r := range c.routes {
		if r.Failure == route.FailClosed {
			return true
		}
	}
	return false
}

// rescored is a rescored answer and its ranking, or the error that prevented it.
type rescored[A any] struct {
	answer A
	all    []Ranked
	err    error
	denied bool // answer is the database's refusal of a rewritten call, and err says so
}

// confirmReason is the reason of a Degraded whose hits the database did not confirm.
const confirmReason = "confirm"

// ErrShort: the database showed the caller too few of the hits.
var ErrShort = errors.New("hits are not there")

// ErrChanged: the collection changed between the ranking of a search and the database's
// answer for the hits, so that the two are of different states.
var ErrChanged = errors.New("hits have changed")

// rankings is how often a search is ranked because its hits have changed.
const rankings = 3

// rescore ranks and confirms: more hits than are asked for where some may be
// gone, again if the collection changed meanwhile, and more while too few are there.
func (c *call[A]) rescore(ctx context.Context) (out rescored[A]) {
	defer func() {
		if p := recover(); p != nil { // in a goroutine of its own it would end the process
			out.err = c.searchPanicked(ctx, c.target.Routed, p)
		}
	}()
	if end := c.rescoreEnd(); !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	ctx, release := route.Pin(ctx)
	defer release()
	if c.target.Aliased() { // and again when the answer is there
		if out.err = c.checkTarget(ctx, c.target); out.err != nil {
			return out
		}
	}
	if c.rewritten {
		return c.rewrite(ctx)
	}
	ranked := 0
	for deeper := 0; ; {
		if out.all, out.err = c.rankAll(ctx, c.target, c.asked.Searches, deeper); out.err != nil {
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

// ended returns why a call that failed has no answer: its client left, its time is over,
// or what failed.
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

// rescoreEnd is when rescoring is given up at the latest.
func (c *call[A]) rescoreEnd() time.Time {
	if !c.times.end.IsZero() && c.closed() {
		return c.times.end // nothing else can still be in time
	}
	if t := c.routes[0].Timeout; t > 0 {
		return c.began.Add(t)
	}
	return time.Time{}
}

// settle is the outcome of rescoring where nothing runs beside it.
func (c *call[A]) settle(s rescored[A]) Outcome[A] {
	switch {
	case s.denied:
		c.accepted.forget(c.caller)
		return Outcome[A]{Answered: true, Answer: s.answer, Status: c.notRescored(c.routeNamesOf(), s.err)}
	case s.err != nil:
		return c.decline(s.err)
	}
	return c.rescoredTo(s)
}

func (c *call[A]) rescoredTo(s rescored[A]) Outcome[A] {
	c.accepted.remember(c.caller) // the database confirmed the answer, as the caller
	how := "rescored"
	if c.rewritten {
		how = "rewritten"
	}
	c.record.Proxied(how, "")
	for _, name := range c.routeNamesOf() {
		c.unanswered.answered(name)
	}
	return Outcome[A]{Answered: true, Answer: s.answer, Status: statusText(how, s.all)}
}

// decline lets a call pass, or fails it where the route is fail_closed. The database is
// asked for its answer to a call that passes only if it has not given that yet.
func (c *call[A]) decline(err error) Outcome[A] {
	o := Outcome[A]{Status: c.notRescored(c.routeNamesOf(), err)}
	switch d := (Degraded{}); {
	case errors.As(err, &d) && d.Closed:
		o.Refused = fmt.Sprintf("likeness: no rescored answer: %s", d.Reason)
	case c.own != nil:
		o.Answered, o.Answer = true, *c.own
	}
	if d := (Degraded{}); errors.As(err, &d) && d.Reason == confirmReason {
		c.accepted.forget(c.caller) // the database may accept the caller no more
	}
	return o
}
