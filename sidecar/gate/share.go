package gate

import (
	"context"
	"math"
	"net"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
)

// WithCaller returns a context whose searches and messages count for a caller: the name of a token, or
// the digest of a credential. Without a caller they count for the host that the client calls from.
func WithCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

type callerKey struct{}

type senderKey struct{}

// WithSender returns a context of a client that calls from an address. Where the context has a caller, the address
// does not count.
func WithSender(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, senderKey{}, address)
}

// CallerOf returns for whom the searches and messages of a context count: the caller, or the host
// that WithSender named, or the host of the gRPC call.
func CallerOf(ctx context.Context) string {
	if caller, _ := ctx.Value(callerKey{}).(string); caller != "" {
		return "caller " + caller
	}
	address, ok := ctx.Value(senderKey{}).(string)
	if p, isCall := peer.FromContext(ctx); isCall && !ok {
		address = p.Addr.String()
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// activeTime is how long a caller keeps its share after its last search, and how long a limit stays
// divided after it was reached, in nanoseconds.
const activeTime = int64(1e9)

// shares divides a limit evenly among the callers that search, once the limit is reached. After
// that no caller gets more than its share, even if others leave part of theirs unused: a caller
// that floods would otherwise take every place that becomes free. While the limit is not divided,
// a caller that has its share leaves the last place to the others, so that a flood cannot shut them
// out between two divisions. A caller alone has the whole limit. The zero value is ready to use.
// A shares is safe for concurrent use.
type shares struct {
	mu           sync.Mutex
	callers      map[string]*callerShare
	flying       int   // the searches in flight of all callers
	dividedUntil int64 // in the units of Gate.now
	swept        int64 // when idle callers were last removed, in the units of Gate.now
}

// callerShare counts the searches of one caller.
type callerShare struct {
	flying int
	last   int64         // when it last searched, in the units of Gate.now
	tokens *rate.Limiter // nil until the caller searches beside others
}

// enter counts a search of a caller, unless the caller has used its share of the places or of the
// rate, and the limit is divided or only one search below it. places is how many searches may be in
// flight, 0 if that is not limited. callers is how many callers search. The caller calls leave for a
// search that was counted.
func (s *shares) enter(caller string, now int64, places int, fixed fixedLimit) (callers int, ok bool) {
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
	if callers = len(s.callers); callers > 1 {
		// Shares are rounded up, so that no place stays empty. The last place is kept for callers
		// that are below their share rounded down.
		last := places > 0 && s.flying >= places-1 && c.flying >= max(1, places/callers)
		refused := last || places > 0 && now < s.dividedUntil && c.flying >= (places+callers-1)/callers
		if !refused && !c.takeToken(fixed.limit, callers) {
			last = fixed.tokens.Tokens() < float64(min(callers+1, fixed.tokens.Burst()))
			refused = last || now < s.dividedUntil
		}
		if last {
			s.dividedUntil = now + activeTime
		}
		if refused {
			return callers, false
		}
	}
	c.flying++
	s.flying++
	return callers, true
}

// reached notes that a search exceeded a limit, and takes back that it was counted.
func (s *shares) reached(caller string, now int64) {
	s.leave(caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dividedUntil = now + activeTime
}

// takeToken takes one of the searches a second that the caller may begin, if the rate is limited.
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

// sweep removes the callers that have not searched lately. The caller holds the lock.
func (s *shares) sweep(now int64) {
	s.swept = now
	for name, c := range s.callers {
		if c.flying == 0 && now-c.last > activeTime {
			delete(s.callers, name)
		}
	}
}
