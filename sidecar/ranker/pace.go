package ranker

import (
	"sync"
	"time"
)

const (
	// learnRate is the weight of a new call in the running means. surpriseRate is used
	// instead for a call that was cut off, or that could not be predicted.
	learnRate    = 0.1
	surpriseRate = 0.5
	// inTime is the share of the remaining time that a batch may be predicted to take.
	inTime = 0.9
)

// pace models the duration of a call as a linear function of its items, by exponentially
// weighted means.
type pace struct {
	mu     sync.Mutex
	known  bool
	n, t   float64 // means of items and of seconds
	nn, nt float64 // means of items² and of items·seconds
	last   time.Time
	old    bool // the last observation is old
}

// observe learns from a completed call.
func (p *pace) observe(items int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rate := learnRate
	if p.old {
		rate = surpriseRate
	}
	p.learn(float64(items), took.Seconds(), rate)
}

// observeCut learns from a call that was cut off. It would have taken longer, which is only
// informative if it was predicted to be faster.
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

// line returns the fixed seconds of a call and the seconds per item. As long as all calls
// had the same size, it attributes everything to the items.
func (p *pace) line() (start, each float64) {
	each = p.t / p.n
	if spread := p.nn - p.n*p.n; spread > 1e-3*p.nn {
		each = min(max((p.nt-p.n*p.t)/spread, 0), each)
	}
	return p.t - each*p.n, each
}

// fit returns how many items can be scored within the time left, and whether that is known.
// It is unknown if there was no observation for longer than `fresh`: the ranker may have
// become faster, so one call is allowed.
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
