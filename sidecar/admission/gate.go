package admission

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limit is what a route may have; 0 is no limit of its own.
type Limit struct {
	// MaxSearches bounds its searches in flight.
	MaxSearches int
	// Rate bounds its searches a second, and Burst those at once after a pause; a Burst
	// of 0 is a second's worth, and one at least. Each search of a batch counts.
	Rate  float64
	Burst int
}

// gate holds a route to its Limit. Its methods are safe for concurrent use.
type gate struct {
	limit  Limit
	flying *atomic.Int64
	tokens *rate.Limiter // nil: no limit
}

func newGate(l Limit) gate {
	g := gate{limit: l, flying: &atomic.Int64{}}
	if l.Rate > 0 {
		burst := l.Burst
		if burst == 0 {
			burst = max(1, int(math.Ceil(l.Rate)))
		}
		g.tokens = rate.NewLimiter(rate.Limit(l.Rate), burst)
	}
	return g
}

// enter counts a search in, or refuses it; leave is called when it has ended.
func (g gate) enter(route string) *RefusedError {
	if n := g.flying.Add(1); g.limit.MaxSearches > 0 && n > int64(g.limit.MaxSearches) {
		g.flying.Add(-1)
		return tooMany("routes."+route+".max_searches", g.limit.MaxSearches)
	}
	if g.tokens == nil {
		return nil
	}
	token := g.tokens.Reserve()
	if after := token.Delay(); after > 0 {
		token.Cancel()
		g.flying.Add(-1)
		return tooOften("routes."+route+".rate", g.limit.Rate, g.tokens.Burst(), after)
	}
	return nil
}

func (g gate) leave() { g.flying.Add(-1) }

// retrySoon is when to ask again where nothing says it better.
const retrySoon = 100 * time.Millisecond
