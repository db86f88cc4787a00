package gate

import (
	"errors"
	"fmt"
	"time"
)

// Kinds of refusals, for errors.Is. Every one is a *RefusedError.
var (
	// ErrOverload: more searches came than can be answered in time, or than a limit allows. A retry
	// later may help.
	ErrOverload = errors.New("too many searches in flight")
	// ErrTooLarge: a message is larger than a limit.
	ErrTooLarge = errors.New("message too large")
	// ErrFull: too many messages wait to be received already. A retry later may help.
	ErrFull = errors.New("too many messages at once")
	// ErrStalled: the bytes of a message did not come in time.
	ErrStalled = errors.New("message not received in time")
)

// Reason says which bound refused.
type Reason string

// The reasons. Those of searches are labels of a metric, likeness_admission_refused_total.
const (
	ReasonMemory      Reason = "memory"       // limits.memory, or GOMEMLIMIT, is nearly used up
	ReasonMaxSearches Reason = "max_searches" // too many searches in flight, of all routes or of one
	ReasonRate        Reason = "rate"         // too many searches of a route a second
	ReasonSlow        Reason = "slow"         // more searches in flight would slow all of them down
	ReasonShare       Reason = "share"        // the caller has its share of a limit, and others search too

	ReasonTooLarge Reason = "too_large" // a message beyond a limit
	ReasonFull     Reason = "full"      // too many messages wait to be received
	ReasonStalled  Reason = "stalled"   // a message was announced, and its bytes do not come
)

// The configuration keys that limit messages.
const (
	ReceivedSetting = "limits.max_received_bytes"
	MessageSetting  = "limits.max_message_bytes"
)

// RefusedError says why a search, a message or a body was refused. Its text names the limit, the
// value and the remedy.
type RefusedError struct {
	Reason Reason
	// Setting is the configuration key that sets the limit; "" if no key does.
	Setting string
	// After is how long to wait before a retry; 0 if a retry does not help.
	After time.Duration

	kind    error
	problem string
	cause   error
}

// Error implements error.
func (r *RefusedError) Error() string { return r.kind.Error() + ": " + r.problem }

// Unwrap returns the kind, such as ErrOverload, and the cause if there is one.
func (r *RefusedError) Unwrap() []error {
	if r.cause == nil {
		return []error{r.kind}
	}
	return []error{r.kind, r.cause}
}

// retrySoon is how long to wait before a retry, if nothing suggests a better time.
const retrySoon = 100 * time.Millisecond

func tooManySearches(setting string, most int) *RefusedError {
	return &RefusedError{kind: ErrOverload, Reason: ReasonMaxSearches, Setting: setting, After: retrySoon,
		problem: fmt.Sprintf("%s is %d; send fewer at a time, or raise it", setting, most)}
}

func tooOften(setting string, most float64, burst int, after time.Duration) *RefusedError {
	return &RefusedError{kind: ErrOverload, Reason: ReasonRate, Setting: setting, After: after,
		problem: fmt.Sprintf("%s is %g a second, %d at once; send again in %s, or raise it", setting, most, burst, after.Round(time.Millisecond))}
}

func routeSlow(route string, limit int, cause error) *RefusedError {
	return &RefusedError{kind: ErrOverload, Reason: ReasonSlow, After: retrySoon, cause: cause,
		problem: fmt.Sprintf("route %q answers %d at a time without slowing down, and as many wait as it can answer soon; "+
			"send fewer at a time, or add a sidecar: %v", route, limit, cause)}
}

func shareTaken(of string, callers int) *RefusedError {
	return &RefusedError{kind: ErrOverload, Reason: ReasonShare, After: retrySoon,
		problem: fmt.Sprintf("%d callers search %s, and this one has its share; send fewer at a time, or add a sidecar", callers, of)}
}

func processorsBusy(processors int) *RefusedError {
	return &RefusedError{kind: ErrOverload, Reason: ReasonSlow, After: retrySoon,
		problem: fmt.Sprintf("as many wait for the %d processors that searches have here as can be answered soon; "+
			"send fewer at a time, or add a sidecar", processors)}
}

func outOfMemory(used, limit uint64) *RefusedError {
	return &RefusedError{kind: ErrOverload, Reason: ReasonMemory, Setting: "limits.memory", After: retrySoon,
		problem: fmt.Sprintf("limits.memory, or GOMEMLIMIT, is %d MiB, and %d MiB are in use; send fewer or smaller ones at a time, or raise it",
			limit>>20, used>>20)}
}

func messageTooLarge(length, most int64, setting string) *RefusedError {
	return &RefusedError{kind: ErrTooLarge, Reason: ReasonTooLarge, Setting: setting,
		problem: fmt.Sprintf("it has %d bytes, and %s is %d; send less at a time, or raise it", length, setting, most)}
}

func messagesFull(most int64) *RefusedError {
	return &RefusedError{kind: ErrFull, Reason: ReasonFull, Setting: ReceivedSetting, After: retrySoon,
		problem: fmt.Sprintf("messages of %s, %d bytes, are being received, and many wait; send fewer or smaller ones at a time, or raise it",
			ReceivedSetting, most)}
}

func answerTooLarge(bytes, most int64) *RefusedError {
	return &RefusedError{kind: ErrTooLarge, Reason: ReasonTooLarge, Setting: ReceivedSetting,
		problem: fmt.Sprintf("to make the answer takes about %d bytes, and %s is %d; ask for fewer items, or for no explanation, at a time, or raise it", bytes, ReceivedSetting, most)}
}

func answersFull(most int64) *RefusedError {
	return &RefusedError{kind: ErrFull, Reason: ReasonFull, Setting: ReceivedSetting, After: retrySoon,
		problem: fmt.Sprintf("answers of %s, %d bytes, are being made; ask for fewer items, or for no explanation, at a time, or raise it", ReceivedSetting, most)}
}

func bytesStalled(what string, limit time.Duration) *RefusedError {
	return &RefusedError{kind: ErrStalled, Reason: ReasonStalled,
		problem: fmt.Sprintf("fewer than %d bytes of the %s came within %s; send faster", paceBytes, what, limit)}
}

func messageStalled(length int64) *RefusedError {
	return &RefusedError{kind: ErrStalled, Reason: ReasonStalled,
		problem: fmt.Sprintf("%d bytes were announced and did not come within %s; send %d bytes a second at least",
			length, messageTime(length).Round(time.Second), bytesPerSecond)}
}
