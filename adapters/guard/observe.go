package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

// Outcomes of a call.
const (
	OK          = "ok"
	Unavailable = "unavailable"
	Timeout     = "timeout"
	Cancelled   = "cancelled" // cancelled by the caller
	Refused     = "refused"   // refused for lack of credentials
	Failed      = "failed"    // any other failure: of the request, the collection or the store
	Broken      = "broken"    // not sent, because the breaker of the collection is open
)

// Observer receives events about calls to a store. Its methods are called concurrently
// and must not block.
type Observer interface {
	// StoreCalled reports that a call begins. The returned function is called once,
	// with the outcome.
	StoreCalled(ctx context.Context, store, operation string) (ended func(outcome string))
	// StoreRetried reports that a failed read is sent again.
	StoreRetried(store, operation string)
	// StoreHedged reports that a search is sent a second time.
	StoreHedged(store string)
	// StoreBroken reports the number of collections whose breaker is not closed.
	StoreBroken(store string, collections int)
}

// unobserved is an Observer that ignores every event.
type unobserved struct{}

func (unobserved) StoreCalled(context.Context, string, string) func(string) { return func(string) {} }
func (unobserved) StoreRetried(string, string)                              {}
func (unobserved) StoreHedged(string)                                       {}
func (unobserved) StoreBroken(string, int)                                  {}

// outcomeOf classifies the result of a call under the caller's context.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(ctx.Err(), context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout
	case errors.Is(err, adapters.ErrUnavailable):
		return Unavailable
	case errors.Is(err, adapters.ErrRefused):
		return Refused
	default:
		return Failed
	}
}

// retryPause returns a random pause before a retry, so that retries do not arrive all at
// once.
func retryPause() time.Duration {
	return pauseLeast + rand.N(pauseMost-pauseLeast)
}
