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
	Cancelled   = "cancelled" // by the caller
	Refused     = "refused"   // for lack of credentials
	Failed      = "failed"    // in another way: the request, the collection or the store
	Broken      = "broken"    // not sent, since the collection kept failing
)

// Observer is told what a store is asked. It is called concurrently and must not block.
type Observer interface {
	// StoreCalled tells of a call that begins in a context; ended is called once, with its outcome.
	StoreCalled(ctx context.Context, store, operation string) (ended func(outcome string))
	// StoreRetried tells of a read that is sent again after a failure.
	StoreRetried(store, operation string)
	// StoreHedged tells of a search that is sent a second time beside the first.
	StoreHedged(store string)
	// StoreBroken tells how many collections are not read, since they keep failing.
	StoreBroken(store string, collections int)
}

// unobserved tells nobody.
type unobserved struct{}

func (unobserved) StoreCalled(context.Context, string, string) func(string) { return func(string) {} }
func (unobserved) StoreRetried(string, string)                              {}
func (unobserved) StoreHedged(string)                                       {}
func (unobserved) StoreBroken(string, int)                                  {}

// outcomeOf names what came of a call under the caller's context.
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

// pause is how long to wait before a read is sent again: not all at once.
func pause() time.Duration {
	return pauseLeast + rand.N(pauseMost-pauseLeast)
}
