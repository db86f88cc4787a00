package gate

import (
	"math"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Limit bounds the searches of one route. 0 means that the route has no limit of its own.
type Limit struct {
	// MaxSearches bounds the route's searches in flight.
	MaxSearches int
	// Rate bounds the route's searches a second. Burst bounds how many may come at once after a
	// pause; 0 means one second's worth, at least one. Each search of a batch counts.
	Rate  float64
	Burst int
}

// burst returns how many searches may come at once after a pause.
func (l Limit) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(1, int(math.Ceil(l.Rate)))
}

// fixedLimit enforces a route's Limit. Its methods are safe for concurrent use.
type fixedLimit struct {
	limit  Limit
	flying *atomic.Int64
	tokens *rate.Limiter // nil if the rate is not limited
}

func newFixedLimit(l Limit) fixedLimit {
	f := fixedLimit{limit: l, flying: &atomic.Int64{}}
	if l.Rate > 0 {
		f.tokens = rate.NewLimiter(rate.Limit(l.Rate), l.burst())
	}
	return f
}

// enter counts a search of the route, or refuses it. The caller calls leave when a search
// that was counted has ended.
func (f fixedLimit) enter(route string) *RefusedError {
	if n := f.flying.Add(1); f.limit.MaxSearches > 0 && n > int64(f.limit.MaxSearches) {
		f.flying.Add(-1)
		return tooManySearches("routes."+route+".max_searches", f.limit.MaxSearches)
	}
	if f.tokens == nil {
		return nil
	}
	token := f.tokens.Reserve()
	if after := token.Delay(); after > 0 {
		token.Cancel()
		f.flying.Add(-1)
		return tooOften("routes."+route+".rate", f.limit.Rate, f.tokens.Burst(), after)
	}
	return nil
}

func (f fixedLimit) leave() { f.flying.Add(-1) }
