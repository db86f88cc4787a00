package gate

import (
	"context"
	"math"
	"sync"

	"golang.org/x/time/rate"
)

// WithCaller returns a context whose searches count for a caller: the name of a token, or
// the digest of a credential. Searches without a caller count together, as if one caller
// made them.
func WithCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

type callerKey struct{}

// CallerOf returns the caller of WithCaller, or "".
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// activeTime is how long a caller has its share after its last search, and how long the
// limit is divided after it was reached, in nanoseconds.
const activeTime = int64(1e9)

// shares divides a limit evenly among the callers that search, once the limit is reached.
// From then on no caller has more than its share, even where others leave some of theirs:
// otherwise a caller that floods would take every place that becomes free. A caller alone
// has the whole limit. The zero value is ready. A shares is safe for concurrent use.
type shares struct {
	mu           sync.Mutex
	callers      map[string]*callerShare
	flying       int   // of all callers
	dividedUntil int64 // as Gate.now
	swept        int64 // when idle callers were last removed, as Gate.now
}

// callerShare counts the searches of one caller.
type callerShare struct {
	flying int
	last   int64         // its last search, as Gate.now
	tokens *rate.Limiter // nil before the caller searched beside others
}

// enter counts a search of a caller, unless the caller has its share of the limits already:
// of the places, and of the searches a second. 0 is no limit. callers is how many search.
// The caller calls leave for a search that was counted.
func (s *shares) enter(caller string, now int64, places int, l Limit) (callers int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.swept > activeTime/4 {
		s.sweep(now)
	}
	c := s.callers[caller]
	if c == nil {
		if s.callers == nil {
			s.callers = map[string]*callerShare{}
		}
		c = &callerShare{}
		s.callers[caller] = c
	}
	c.last = now
	if places > 0 && s.flying >= places {
		s.dividedUntil = now + activeTime
	}
	if callers = len(s.callers); callers > 1 && now < s.dividedUntil {
		if places > 0 && c.flying >= (places+callers-1)/callers || !c.takeToken(l, callers) {
			return callers, false
		}
	}
	c.flying++
	s.flying++
	return callers, true
}

// reached notes that a search that was counted is more than a limit allows, and does not
// count it.
func (s *shares) reached(caller string, now int64) {
	s.leave(caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dividedUntil = now + activeTime
}

// takeToken takes one of the caller's searches a second, if a rate is set.
func (c *callerShare) takeToken(l Limit, callers int) bool {
	if l.Rate <= 0 {
		return true
	}
	share, burst := rate.Limit(l.Rate/float64(callers)), max(1, int(math.Ceil(float64(l.burst())/float64(callers))))
	if c.tokens == nil {
		c.tokens = rate.NewLimiter(share, burst)
	}
	if c.tokens.Limit() != share {
		c.tokens.SetLimit(share)
		c.tokens.SetBurst(burst)
	}
	return c.tokens.Allow()
}

// leave ends a search of a caller.
func (s *shares) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.callers[caller]; c != nil {
		c.flying--
		s.flying--
	}
}

// sweep removes the callers that have not searched lately; the caller holds the lock.
func (s *shares) sweep(now int64) {
	s.swept = now
	for name, c := range s.callers {
		if c.flying == 0 && now-c.last > activeTime {
			delete(s.callers, name)
		}
	}
}
