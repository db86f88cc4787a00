package ranker

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/plugin"
)

// Options of New. Zero values are the defaults that are named.
type Options struct {
	// Name is the operator's, for errors and metrics.
	Name string
	// MaxItems of one call and Parallel calls at the same time narrow what the scorer
	// says of itself; 0 does not.
	MaxItems int
	Parallel int
	// Timeout is the time for one call, within the caller's deadline; 0 is 5 s.
	Timeout time.Duration
	// BreakAfter failures in a row the ranker is not asked for BreakFor, a fifth more or
	// less, and then by one call at a time until one succeeds; 0 is 5, and 500 ms.
	BreakAfter int
	BreakFor   time.Duration
	// RetryBudget is the share of the calls, over ten seconds, that may be made again
	// after a failure that can pass; above 0, one of them always may.
	RetryBudget float64
	// Twice asks of one item of each call twice, which Result.Calls does not count: two
	// scores tell a scorer that answers in another order, as one that sorts does.
	Twice bool
	// Observer may be nil.
	Observer Observer
}

// Outcomes of a call, and reasons why items were not asked for.
const (
	OK          = "ok"
	Unavailable = "unavailable"
	Timeout     = "timeout"   // of the call, or the caller's deadline
	Cancelled   = "cancelled" // by the caller
	TooLarge    = "too_large"
	Query       = "query"
	Answer      = "answer"
	Broken      = "broken" // the breaker is open
	Late        = "late"   // no answer could come in time
	Given       = "given_up"
)

// Observer is told what a ranker is asked. It is called concurrently.
type Observer interface {
	// RankerCalled tells of a call that begins in a context; ended is called once, with its outcome.
	RankerCalled(ctx context.Context, ranker string, items int) (ended func(outcome string))
	// RankerRetried tells of a call that is made again.
	RankerRetried(ranker string)
	// RankerNotAsked tells of items that were left without a call, and why: TooLarge,
	// Broken, Late, Cancelled, or Given up after a failure of others.
	RankerNotAsked(ranker string, items int, reason string)
	// RankerBroken tells whether the breaker lets no call through, or one at a time.
	RankerBroken(ranker string, broken bool)
}

// Versioner is a Scorer that says which version of it gave an answer; Score alone is
// taken to answer with the version that was described last.
type Versioner interface {
	plugin.Scorer
	ScoreVersion(ctx context.Context, q plugin.Query, items []plugin.Item) (scores []float32, version string, err error)
}

// Waiter is an error of a scorer that says how long it wants not to be asked, as a
// service does that is limited to some calls a minute. Below 0: asking again is no use.
type Waiter interface {
	error
	RetryAfter() time.Duration
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.BreakAfter <= 0 {
		o.BreakAfter = 5
	}
	if o.BreakFor <= 0 {
		o.BreakFor = 500 * time.Millisecond
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	return o
}

// unobserved tells nobody.
type unobserved struct{}

func (unobserved) RankerCalled(context.Context, string, int) func(string) { return func(string) {} }
func (unobserved) RankerRetried(string)                                   {}
func (unobserved) RankerNotAsked(string, int, string)                     {}
func (unobserved) RankerBroken(string, bool)                              {}
