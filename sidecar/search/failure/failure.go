// Package failure holds the errors of a search's steps for which the route has a failure policy: to
// answer with the store's own order, or with ErrDegraded.
package failure

import (
	"context"
	"errors"
	"fmt"
)

// ErrDegraded: a fail_closed route could not give a rescored answer.
var ErrDegraded = errors.New("no rescored answer")

// Reasons of a degraded answer.
const (
	Scoring  = "scoring_failed"
	Deadline = "deadline"
	Features = "features_unavailable"
	Store    = "store_failed"
	// Ranker: the ranker scored nothing; scores and order are the similarity's.
	Ranker = "ranker_failed"
)

// Error is an error that the route's failure policy handles.
type Error struct {
	Reason string // one of the constants
	Err    error
}

func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// TimedOut converts the error of a step whose context is done: to an *Error if time ran out, to the
// context's own error if the caller went away.
func TimedOut(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return &Error{Deadline, err}
}
