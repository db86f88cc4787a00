package ranker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/internal/breaker"
	"github.com/likenessdb/likeness/internal/budget"
	"github.com/likenessdb/likeness/plugin"
)

// describeTimeout limits Describe, which scorers must answer without delay.
const describeTimeout = time.Second

// Client sends all requests to one scorer. It is safe for concurrent use and need not be
// closed.
type Client struct {
	scorer     plugin.Scorer
	options    Options
	breaker    *breaker.Breaker
	slots      slots
	limits     limits
	pace       pace
	retries    budget.Budget
	quietUntil atomic.Int64 // the scorer wants no calls before this time, in Unix nanoseconds

	describing  chan struct{} // holds a value while a call of Describe runs; that call owns the next two fields
	describeErr error         // error of the last call
	describeAt  time.Time

	mu        sync.Mutex
	described *plugin.Description // with the limits of the options; nil before the first success
	stale     bool
	sample    *sample // nil before the first scores
}

var _ Ranker = (*Client)(nil)

// New returns a client of a scorer, without calling the scorer yet.
func New(s plugin.Scorer, o Options) *Client {
	o = o.withDefaults()
	c := &Client{scorer: s, options: o, retries: budget.Budget{Share: o.RetryBudget}, describing: make(chan struct{}, 1)}
	c.slots.limit = 1
	c.breaker = breaker.New(breaker.Options{After: o.BreakAfter, For: o.BreakFor, Changed: func(_, to breaker.State) {
		o.Observer.RankerBroken(o.Name, to != breaker.Closed)
		if to == breaker.Open {
			c.slots.disturb()
		}
	}})
	return c
}

// Describe implements Ranker. The description is cached until the scorer becomes
// unavailable or answers with another version. If the scorer cannot be called then, the
// last description remains in use.
func (c *Client) Describe(ctx context.Context) (plugin.Description, error) {
	if d, ok := c.lastDescription(true); ok {
		return d, nil
	}
	select {
	case c.describing <- struct{}{}:
		defer func() { <-c.describing }()
	default:
		if d, ok := c.lastDescription(false); ok {
			return d, nil
		}
		select {
		case c.describing <- struct{}{}:
			defer func() { <-c.describing }()
		case <-ctx.Done():
			return plugin.Description{}, ctx.Err()
		}
	}
	err := c.describe(ctx)
	if d, ok := c.lastDescription(false); ok {
		return d, nil
	}
	return plugin.Description{}, err
}

// lastDescription returns the cached description. With fresh set, it ignores one that may
// be outdated.
func (c *Client) lastDescription(fresh bool) (d plugin.Description, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.described == nil || fresh && c.stale {
		return d, false
	}
	return *c.described, true
}

// describe calls the scorer's Describe, unless that failed a moment ago or another
// goroutine has just succeeded. It does not affect the breaker, because a scorer that
// cannot score may still describe itself.
func (c *Client) describe(ctx context.Context) error {
	if _, ok := c.lastDescription(true); ok {
		return nil
	}
	if c.isBroken() {
		return c.broken()
	}
	if c.describeErr != nil && time.Since(c.describeAt) < c.options.BreakFor {
		return c.describeErr
	}
	asked, cancel := context.WithTimeout(ctx, min(c.options.Timeout, describeTimeout))
	defer cancel()
	d, err := c.scorer.Describe(asked)
	if err == nil {
		err = c.check(d)
	}
	c.describeErr = nil
	if err == nil {
		c.keep(d)
		return nil
	}
	err = c.withName(err)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.describeErr, c.describeAt = err, time.Now()
	return err
}

// keep applies the options' limits to a description and caches it.
func (c *Client) keep(d plugin.Description) {
	d.Parallel = max(d.Parallel, 1)
	if c.options.Parallel > 0 {
		d.Parallel = min(d.Parallel, c.options.Parallel)
	}
	if most := c.options.MaxItems; most > 0 && (d.MaxItems == 0 || most < d.MaxItems) {
		d.MaxItems = most
	}
	c.slots.resize(d.Parallel)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.described, c.stale = &d, false
}

func (c *Client) check(d plugin.Description) error {
	switch {
	case d.MaxItems < 0 || d.MaxBytes < 0 || d.Parallel < 0:
		return fmt.Errorf("%w: it reports max_items %d, max_bytes %d and parallel %d; none may be negative", ErrAnswer, d.MaxItems, d.MaxBytes, d.Parallel)
	case math.IsNaN(d.Cost) || math.IsInf(d.Cost, 0) || d.Cost < 0:
		return fmt.Errorf("%w: it reports a cost of %g; a cost must be a number of 0 or more", ErrAnswer, d.Cost)
	default:
		return nil
	}
}

// markStale makes the next request describe the scorer again.
func (c *Client) markStale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// withName adds the ranker's name to an error and wraps unknown errors in ErrAnswer.
func (c *Client) withName(err error) error {
	for _, known := range []error{ErrUnavailable, ErrTooLarge, ErrQuery, ErrAnswer, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return fmt.Errorf("ranker %q: %w", c.options.Name, err)
		}
	}
	return fmt.Errorf("ranker %q: %w: %w", c.options.Name, ErrAnswer, err)
}

// Breaker returns the state of the breaker: closed, open or half-open.
func (c *Client) Breaker() string { return string(c.breaker.State()) }

// isBroken reports whether the breaker lets no call through, not even a probe.
func (c *Client) isBroken() bool { return c.breaker.Pause() > 0 }

func (c *Client) broken() error {
	return fmt.Errorf("ranker %q: %w: it failed %d times in a row and is asked again in %s",
		c.options.Name, ErrUnavailable, c.options.BreakAfter, c.breaker.Pause().Round(time.Millisecond))
}

// batch is the content of one call.
type batch struct {
	items    []plugin.Item
	bytes    int
	known    bool // whether the call's duration can be predicted
	half     bool // half of a batch that was too large
	repeated int  // index of the item that is sent a second time, after the others; 0: none
}

// call sends one batch, which the breaker permitted, and learns from the outcome.
func (c *Client) call(ctx context.Context, q plugin.Query, b batch, permit breaker.Call, version string) (scores []float32, scored, outcome string, err error) {
	items := b.sentItems()
	ended := c.options.Observer.RankerCalled(ctx, c.options.Name, len(items))
	start := time.Now()
	asked, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	scores, scored, err = c.ask(asked, q, items, version)
	took := time.Since(start)
	if err == nil {
		scores, err = b.check(scores)
	}
	if err != nil {
		err = c.withName(err)
	}
	outcome = c.outcome(ctx, err)
	ended(outcome)
	switch outcome {
	case OK:
		c.keepSample(q, b.items[0], took)
		c.pace.observe(len(b.items), took)
		c.limits.take(len(b.items), b.bytes)
	case Timeout:
		if ctx.Err() == nil { // the call used up its whole timeout: estimate twice that
			took *= 2
		}
		c.pace.observeCut(len(b.items), took)
	case TooLarge:
		if len(b.items) == 1 {
			c.limits.refuseOne(b.bytes, b.half)
		} else {
			c.limits.refuse(len(b.items), b.bytes)
		}
	}
	verdict := verdictOf(outcome, ctx.Err() != nil && !b.known)
	if verdict == breaker.Fails {
		c.markStale()
	}
	permit.End(verdict, func() bool { return c.scoresSample(ctx) })
	return scores, scored, outcome, err
}

func (c *Client) ask(ctx context.Context, q plugin.Query, items []plugin.Item, version string) ([]float32, string, error) {
	if v, ok := c.scorer.(Versioner); ok {
		scores, scored, err := v.ScoreVersion(ctx, q, items)
		return scores, cmp.Or(scored, version), err
	}
	scores, err := c.scorer.Score(ctx, q, items)
	return scores, version, err
}

// outcome classifies the result of a call made with the caller's context.
func (c *Client) outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(ctx.Err(), context.Canceled):
		return Cancelled
	case errors.Is(err, ErrTooLarge):
		return TooLarge
	case errors.Is(err, ErrQuery):
		return Query
	case errors.Is(err, ErrUnavailable):
		return Unavailable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout
	default:
		return Answer
	}
}

// verdictOf says what a call's outcome tells about the ranker. short: the caller gave it less time than it might need.
func verdictOf(outcome string, short bool) breaker.Verdict {
	switch {
	case outcome == OK, outcome == TooLarge, outcome == Query:
		return breaker.Works
	case outcome == Cancelled, outcome == Timeout && short:
		return breaker.Unknown
	default:
		return breaker.Fails
	}
}

// deferCalls delays all calls if err says how long to wait.
func (c *Client) deferCalls(err error) (wait time.Duration, told bool) {
	var w Waiter
	if !errors.As(err, &w) {
		return 0, false
	}
	wait = w.RetryAfter()
	if wait > 0 {
		c.quietUntil.Store(time.Now().Add(wait).UnixNano())
	}
	return wait, true
}

// remainingQuiet returns how long the scorer still wants no calls.
func (c *Client) remainingQuiet() time.Duration {
	return time.Until(time.Unix(0, c.quietUntil.Load()))
}
