package admission

import (
	"fmt"
	"time"
)

// Reasons of a RefusedError.
const (
	Memory      = "memory"       // limits.memory, or GOMEMLIMIT, is nearly used up
	MaxSearches = "max_searches" // of all routes, or of the route
	Rate        = "rate"         // of the route
	Slow        = "slow"         // more in flight would make all of them slower
)

// RefusedError is why a search was not let in. errors.Is(err, ErrOverload) holds.
type RefusedError struct {
	Reason string
	// Setting is the key of the configuration that bounds it; "" where none does.
	Setting string
	// After is when to ask again.
	After time.Duration

	problem string
	cause   error
}

func (r *RefusedError) Error() string { return ErrOverload.Error() + ": " + r.problem }

// Unwrap makes errors.Is(err, ErrOverload) true.
func (r *RefusedError) Unwrap() []error {
	if r.cause == nil {
		return []error{ErrOverload}
	}
	return []error{ErrOverload, r.cause}
}

func tooMany(setting string, most int) *RefusedError {
	return &RefusedError{Reason: MaxSearches, Setting: setting, After: retrySoon,
		problem: fmt.Sprintf("%s is %d; send fewer at a time, or raise it", setting, most)}
}

func tooOften(setting string, most float64, burst int, after time.Duration) *RefusedError {
	return &RefusedError{Reason: Rate, Setting: setting, After: after,
		problem: fmt.Sprintf("%s is %g a second, %d at once; send again in %s, or raise it", setting, most, burst, after.Round(time.Millisecond))}
}

func slow(route string, limit int, cause error) *RefusedError {
	return &RefusedError{Reason: Slow, After: retrySoon, cause: cause,
		problem: fmt.Sprintf("route %q answers %d at a time without slowing down, and as many wait as it can answer soon; "+
			"send fewer at a time, or add a sidecar: %v", route, limit, cause)}
}

func busy(processors int) *RefusedError {
	return &RefusedError{Reason: Slow, After: retrySoon,
		problem: fmt.Sprintf("as many wait for the %d processors that searches have here as can be answered soon; "+
			"send fewer at a time, or add a sidecar", processors)}
}

func outOfMemory(used, limit uint64) *RefusedError {
	return &RefusedError{Reason: Memory, Setting: "limits.memory", After: retrySoon,
		problem: fmt.Sprintf("limits.memory, or GOMEMLIMIT, is %d MiB, and %d MiB are in use; send fewer or smaller ones at a time, or raise it",
			limit>>20, used>>20)}
}
