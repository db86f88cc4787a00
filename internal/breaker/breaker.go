// Package breaker stops the calls of a service that keeps failing.
//
// The service may fail because of what one caller sends, and no caller may stop the service for the others. So failures alone
// do not open a breaker: it opens when a probe, a call with nothing in it that a caller chose, fails too.
package breaker

import (
	"math/rand/v2"
	"sync"
	"time"
)

// State is the state of a breaker.
type State string

// States of a breaker.
const (
	Closed   State = "closed"    // every call is sent
	Open     State = "open"      // no call is sent until a pause has passed
	HalfOpen State = "half-open" // one call is tried, and no other is sent until it ends
)

// Verdict is what the end of a call says about the service.
type Verdict int

// Verdicts of a call.
const (
	Unknown Verdict = iota // nothing: the caller left, or gave too little time
	Works                  // the service answered, or said that it refuses the request
	Fails                  // the service failed, by its own fault or that of the request
)

// Options configures New.
type Options struct {
	// After is how many calls in a row must fail before the service is probed.
	After int
	// For is how long an open breaker sends no call, plus or minus a fifth.
	For time.Duration
	// Changed is told each change of the state, in order. It must not call the breaker.
	Changed func(from, to State)
}

// Breaker is safe for concurrent use.
type Breaker struct {
	options Options
	mu      sync.Mutex
	machine machine
}

// New returns a closed breaker.
func New(o Options) *Breaker {
	return &Breaker{options: o, machine: machine{after: o.After, state: Closed}}
}

// State returns the state.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.machine.state
}

// Pause returns how long the breaker still sends no call, not even a trial. It returns 0 if the breaker is not open.
func (b *Breaker) Pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.machine.state != Open {
		return 0
	}
	return max(time.Until(b.machine.until), 0)
}

// Call is a call that a breaker permitted.
type Call struct {
	breaker *Breaker
	trial   bool
}

// Begin reports whether a call may be sent. If so, End must be called once, however the call ends.
func (b *Breaker) Begin() (c Call, ok bool) {
	b.change(func(m *machine) { c.trial, ok = m.permit(time.Now()) })
	c.breaker = b
	return c, ok
}

// End takes the verdict of the call. Where the breaker might open, or stay open, End waits for probe, which reports whether the
// service works. One probe runs at a time.
func (c Call) End(v Verdict, probe func() bool) {
	ask := false
	c.breaker.change(func(m *machine) { ask = m.ended(c.trial, v) })
	if !ask {
		return
	}
	works := false
	defer func() { // even if probe panics
		until := time.Now().Add(c.breaker.jittered())
		c.breaker.change(func(m *machine) { m.probed(works, until) })
	}()
	works = probe()
}

// jittered returns the length of a pause. It is random, so that several clients do not try a service at the same time.
func (b *Breaker) jittered() time.Duration {
	return time.Duration((.8 + .4*rand.Float64()) * float64(b.options.For))
}

// change calls f and tells of the state if f has changed it.
func (b *Breaker) change(f func(*machine)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.machine.state
	f(&b.machine)
	if after := b.machine.state; after != before && b.options.Changed != nil {
		b.options.Changed(before, after)
	}
}
