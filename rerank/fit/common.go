package fit

import (
	"errors"
	"fmt"
	"slices"
)

// ErrOption: an option is out of its range or does not go with another.
var ErrOption = errors.New("fit option is not valid")

// Common are the options that every fit has.
type Common struct {
	// Normalise fits on unit vectors.
	Normalise bool
	// Seed of the split, the order, the samples and the start. The same data,
	// options and seed give the same model on the same kind of machine.
	Seed uint64
	// HeldOut is the share of the queries with pairs that judge the fit.
	HeldOut float64
	// SplitBy says which queries those are.
	SplitBy SplitBy
	Cold    Cold
	// ColdShare is the share of logged items whose pairs are taken away to see
	// what the fit does to items without logs; 0 does not look.
	ColdShare float64
	// Progress is told of long work, Note of a line worth showing beside it, such
	// as a round's loss and held-out quality; nil: nobody asks.
	Progress Progress     `json:"-"`
	Note     func(string) `json:"-"`
	// Checkpoint keeps the state of the fit, so that it can be resumed; nil: nowhere.
	Checkpoint Checkpoint `json:"-"`
}

// DefaultCommon are the defaults of every fit.
func DefaultCommon() Common {
	return Common{Normalise: true, Seed: 1, HeldOut: 0.1, SplitBy: ByQuery, Cold: ColdAuto, ColdShare: 0.2}
}

// SplitBy says which queries judge a fit.
type SplitBy string

// Splits. In both, queries with equal vectors are on one side.
const (
	// ByQuery holds out a random share.
	ByQuery SplitBy = "query"
	// ByTime holds out the latest share: all that is held out is later than all
	// that is learned from. It needs Data.Times.
	ByTime SplitBy = "time"
)

// Cold says what a fit does for items without logs.
type Cold string

// What a fit does for items without logs.
const (
	// ColdAuto guards them if the collection has any.
	ColdAuto Cold = "auto"
	// ColdGuard holds the fit back until items that it has not seen are found at
	// least as well as by the plain inner product.
	ColdGuard Cold = "guard"
	// ColdIgnore fits for logged items only.
	ColdIgnore Cold = "ignore"
)

// Progress is told of long work: it is called at the start of a stage with the
// number of its steps, and returns what is called with the number of steps done.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

func (c Common) note(format string, args ...any) {
	if c.Note != nil {
		c.Note(fmt.Sprintf(format, args...))
	}
}

// check returns ErrOption.
func (c Common) check(d Data) error {
	switch {
	case !isShare(c.HeldOut):
		return fmt.Errorf("%w: the share of queries held out is %g, want more than 0 and less than 1", ErrOption, c.HeldOut)
	case c.SplitBy != ByQuery && c.SplitBy != ByTime:
		return fmt.Errorf("%w: split by %q is neither %s nor %s", ErrOption, c.SplitBy, ByQuery, ByTime)
	case c.SplitBy == ByTime && d.Times == nil:
		return fmt.Errorf("%w: a split by time needs the time of every query, and the log has none; split by %s", ErrOption, ByQuery)
	case !(c.ColdShare >= 0 && c.ColdShare <= 0.5):
		return fmt.Errorf("%w: the share of items held out is %g, want 0 to 0.5", ErrOption, c.ColdShare)
	case c.Cold == ColdGuard && c.ColdShare == 0:
		return fmt.Errorf("%w: items without logs cannot be guarded with none held out; raise the share or do not ask", ErrOption)
	case !slices.Contains([]Cold{ColdAuto, ColdGuard, ColdIgnore}, c.Cold):
		return fmt.Errorf("%w: cold %q is none of auto, guard and ignore", ErrOption, c.Cold)
	}
	return nil
}

// isShare: more than nothing and less than all; not NaN.
func isShare(v float64) bool { return v > 0 && v < 1 }

// begin prepares and splits the data of a fit, and opens its Checkpoint.
func begin(name string, d Data, c Common, options any) (*problem, split, *keeper, error) {
	p, err := prepare(d, c.Normalise)
	if err != nil {
		return nil, split{}, nil, err
	}
	s, err := p.split(c)
	if err != nil {
		return nil, split{}, nil, err
	}
	keep, err := newKeeper(c.Checkpoint, name, d, options)
	return p, s, keep, err
}
