package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrOption means that an option is out of its range or contradicts another.
var ErrOption = errors.New("fit option is not valid")

// ErrCheckpoint means that a checkpoint is damaged, or belongs to other data, other
// options or another version. The fit has to begin again without it.
var ErrCheckpoint = errors.New("checkpoint is not of this fit")

// Common holds the options that every fit has.
type Common struct {
	// Normalise fits on unit vectors.
	Normalise bool
	// Seed decides the split, the order of the queries, the samples and the start.
	Seed uint64
	// HeldOut is the share of the queries with pairs that judge the fit.
	HeldOut float64
	// SplitBy says which queries are held out.
	SplitBy SplitBy
	Cold    Cold
	// ColdShare is the share of logged items whose pairs are withheld, to measure
	// what the fit does to items without logs. 0 does not measure it.
	ColdShare float64
	// ColdTraffic is the share of the traffic to come that looks for items without logs.
	// If below 0, the log says: see samples.Log.ColdTraffic.
	ColdTraffic float64
	// Progress is told of long work. Note is told of single lines, such as the loss
	// and the held-out quality of a round. Either may be nil.
	Progress Progress     `json:"-"`
	Note     func(string) `json:"-"`
	// Checkpoint keeps the state of the fit, so that the fit can be resumed. If nil,
	// nothing is kept.
	Checkpoint Checkpoint `json:"-"`
}

// DefaultCommon returns the defaults of every fit.
func DefaultCommon() Common {
	return Common{Normalise: true, Seed: 1, HeldOut: 0.1, SplitBy: ByQuery, Cold: ColdAuto, ColdShare: 0.2, ColdTraffic: -1}
}

// SplitBy says which queries judge a fit.
type SplitBy string

// Both splits keep queries with equal vectors on one side.
const (
	// ByQuery holds out a random share of the queries.
	ByQuery SplitBy = "query"
	// ByTime holds out the latest share: every held-out query is later than every
	// query that the fit learns from. It needs Data.Times.
	ByTime SplitBy = "time"
)

// Cold says what a fit does for items without logs.
type Cold string

// What a fit can do for items without logs.
const (
	// ColdAuto weighs them by their share of the traffic to come, and does nothing for
	// them if that is less than LeastColdTraffic.
	ColdAuto Cold = "auto"
	// ColdGuard holds the fit back until items that it has not seen are found at
	// least as well as by the plain inner product.
	ColdGuard Cold = "guard"
	// ColdIgnore fits for logged items only.
	ColdIgnore Cold = "ignore"
)

// LeastColdTraffic is the share of traffic from which ColdAuto looks at items without logs.
const LeastColdTraffic = 0.01

// Checkpoint keeps the state of one fit. Only the fit reads the content; its format
// may change from version to version. A resumed fit ends with the same model as an
// undisturbed one.
type Checkpoint interface {
	// Load returns the last saved state, or nil if nothing was saved.
	Load() ([]byte, error)
	// Save replaces the state, all or nothing. A fit calls it at the end of a round,
	// every few seconds at most, and when it is interrupted.
	Save(state []byte) error
}

// Progress is called at the start of a stage with the number of its steps. It
// returns a function that is called with the number of steps done since.
type Progress func(stage string, steps int) (done func(n int))

// Begin starts a stage. A nil Progress ignores it.
func (p Progress) Begin(stage string, steps int) (done func(n int)) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Notef formats a line for Note.
func (c Common) Notef(format string, args ...any) {
	if c.Note != nil {
		c.Note(fmt.Sprintf(format, args...))
	}
}

// Check returns ErrOption if an option is not valid, or does not go with the data.
func (c Common) Check(d Data) error {
	switch {
	case !IsShare(c.HeldOut):
		return fmt.Errorf("%w: the share of queries held out is %g, want more than 0 and less than 1", ErrOption, c.HeldOut)
	case c.SplitBy != ByQuery && c.SplitBy != ByTime:
		return fmt.Errorf("%w: split by %q is neither %s nor %s", ErrOption, c.SplitBy, ByQuery, ByTime)
	case c.SplitBy == ByTime && d.Times == nil:
		return fmt.Errorf("%w: a split by time needs the time of every query, and the log has none; split by %s", ErrOption, ByQuery)
	case !(c.ColdShare >= 0 && c.ColdShare <= 0.5):
		return fmt.Errorf("%w: the share of items held out is %g, want 0 to 0.5", ErrOption, c.ColdShare)
	case !(c.ColdTraffic <= 1):
		return fmt.Errorf("%w: the share of traffic for items without logs is %g, want 0 to 1, or less than 0 to estimate it", ErrOption, c.ColdTraffic)
	case c.Cold == ColdGuard && c.ColdShare == 0:
		return fmt.Errorf("%w: items without logs cannot be guarded with none held out; raise the share or do not ask", ErrOption)
	case !slices.Contains([]Cold{ColdAuto, ColdGuard, ColdIgnore}, c.Cold):
		return fmt.Errorf("%w: cold %q is none of auto, guard and ignore", ErrOption, c.Cold)
	}
	return nil
}

// IsShare reports whether v lies between 0 and 1, both excluded. NaN does not.
func IsShare(v float64) bool { return v > 0 && v < 1 }

// NotOneOf returns an ErrOption that lists the words an option accepts.
func NotOneOf[T ~string](option string, value T, accepted []T) error {
	words := make([]string, len(accepted))
	for i, w := range accepted {
		words[i] = string(w)
	}
	return fmt.Errorf("%w: %s %q is none of %s", ErrOption, option, value, strings.Join(words, ", "))
}
