package ranker

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/plugin"
)

// Options configures New. Zero values select the stated defaults.
type Options struct {
	// Name is the operator's name for the ranker, in errors and metrics.
	Name string
	// MaxItems limits the items of a call, and Parallel the concurrent calls, if they are
	// lower than what the scorer declares. 0 adds no limit.
	MaxItems int
	Parallel int
	// Timeout limits a call, within the caller's deadline. 0 means 5 s.
	Timeout time.Duration
	// After BreakAfter failures in a row, and one for an item that the ranker scored before,
	// it is not called for BreakFor, plus or minus a fifth. Then single calls are tried
	// until one succeeds. 0 means 5, and 500 ms.
	BreakAfter int
	BreakFor   time.Duration
	// RetryBudget is the share of calls, over ten seconds, that may be retried after
	// temporary failures. If it is above 0, one retry is always allowed.
	RetryBudget float64
	// Twice sends one item of each call twice. Its two scores reveal a scorer that returns
	// scores in another order, for example sorted. Result.Calls does not count the
	// repetition.
	Twice bool
	// Observer may be nil.
	Observer Observer
}

// Outcomes of a call, and reasons why items were not sent.
const (
	OK          = "ok"
	Unavailable = "unavailable"
	Timeout     = "timeout"   // the call's timeout, or the caller's deadline
	Cancelled   = "cancelled" // by the caller
	TooLarge    = "too_large"
	Query       = "query"
	Answer      = "answer"
	Broken      = "broken" // the breaker is open
	Late        = "late"   // an answer could not arrive in time
	Given       = "given_up"
)

// Observer is notified of calls to a ranker. Its methods are called concurrently.
type Observer interface {
	// RankerCalled reports the start of a call. ended must be called once, with the
	// outcome.
	RankerCalled(ctx context.Context, ranker string, items int) (ended func(outcome string))
	// RankerRetried reports a retry.
	RankerRetried(ranker string)
	// RankerNotAsked reports items that were not sent, and the reason: TooLarge, Broken,
	// Late, Cancelled, or Given if the job ended because of another failure.
	RankerNotAsked(ranker string, items int, reason string)
	// RankerBroken reports whether the breaker is open or half-open.
	RankerBroken(ranker string, broken bool)
}

// Versioner is implemented by a Scorer that reports the version which produced an answer.
// Without it, answers are assumed to have the last described version.
type Versioner interface {
	plugin.Scorer
	ScoreVersion(ctx context.Context, q plugin.Query, items []plugin.Item) (scores []float32, version string, err error)
}

// Waiter is implemented by errors of a scorer that say how long not to call it, such as a
// service with a rate limit. A negative duration means that retrying is useless.
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

// unobserved is an Observer that does nothing.
type unobserved struct{}

func (unobserved) RankerCalled(context.Context, string, int) func(string) { return func(string) {} }
func (unobserved) RankerRetried(string)                                   {}
func (unobserved) RankerNotAsked(string, int, string)                     {}
func (unobserved) RankerBroken(string, bool)                              {}
