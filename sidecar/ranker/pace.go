package ranker

import (
	"sync"
	"time"
)

const (
	// learnRate is the weight of one call in what is known of the time of all, and
	// surpriseRate that of one that was cut off, or that nobody knew what to expect of.
	learnRate    = 0.1
	surpriseRate = 0.5
	// inTime is the share of the time left that a batch may be expected to take.
	inTime = 0.9
)

// pace is the time of a call as a line over its items, through exponentially weighted
// means.
type pace struct {
	mu     sync.Mutex
	known  bool
	n, t   float64 // means of items and of seconds
	nn, nt float64 // means of their products
	last   time.Time
	old    bool // nobody told for long
}

// observe learns from a call that ended.
func (p *pace) observe(items int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rate := learnRate
	if p.old {
		rate = surpriseRate
	}
	p.learn(float64(items), took.Seconds(), rate)
}

// observeCut learns from one that was cut off: it would have taken longer, which
// teaches something if it was expected to be quicker.
func (p *pace) observeCut(items int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, t := float64(items), took.Seconds()
	if p.known {
		if start, each := p.line(); t <= start+each*n {
			p.last = time.Now()
			return
		}
	}
	p.learn(n, t, surpriseRate)
}

func (p *pace) learn(n, t, rate float64) {
	p.last, p.old = time.Now(), false
	if !p.known {
		rate, p.known = 1, true
	}
	p.n += rate * (n - p.n)
	p.t += rate * (t - p.t)
	p.nn += rate * (n*n - p.nn)
	p.nt += rate * (n*t - p.nt)
}

// line is the seconds that a call takes to begin with, and those of each item; while
// all calls were of one size, all of it is the items'.
func (p *pace) line() (start, each float64) {
	each = p.t / p.n
	if spread := p.nn - p.n*p.n; spread > 1e-3*p.nn {
		each = min(max((p.nt-p.n*p.t)/spread, 0), each)
	}
	return p.t - each*p.n, each
}

// fit is how many of the items can come back within the time left, and whether that
// is known. It is not while no call told for longer than fresh: the ranker may have
// become quicker, so one is let through.
func (p *pace) fit(items int, left, fresh time.Duration) (fitting int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		return items, false
	}
	if time.Since(p.last) > fresh {
		p.last, p.old = time.Now(), true
		return items, false
	}
	start, each := p.line()
	spare := inTime*left.Seconds() - start
	switch {
	case spare <= 0:
		return 0, true
	case each*float64(items) <= spare:
		return items, true
	default:
		return int(spare / each), true
	}
}
