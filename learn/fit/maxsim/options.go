package maxsim

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
)

// Options are the options of a fit of behavioural vectors. DefaultOptions has the
// defaults.
type Options struct {
	fit.Common
	// Measure chooses the budget and the exponent, and judges the fit.
	Measure fit.Measure
	// Betas are the exponents to try: an item with n queries gets a share of n^beta of the
	// budget (MVG, eq. 6). The first serves to choose the budget; another takes its place if the
	// first is not as good.
	Betas []float64
	// MAvg lists the budgets to try, ascending, in vectors per item of the collection. A single
	// budget is taken in any case.
	MAvg []float64
	// RepeatShare is the share of later traffic that asks what the log has already. Budgets are
	// compared by this share of queries seen before and the rest of new ones. With RepeatFromLog
	// the fit estimates it: from the latest period, if that is held out, or else from how many
	// queries the log has once.
	RepeatShare float64
	// Restarts is the number of clusterings that are tried for each item. The best is
	// used.
	Restarts int
	// Passes is the number of passes of Lloyd's algorithm over the queries of an item,
	// at most.
	Passes int
}

// RepeatFromLog is the value of Options.RepeatShare that estimates it.
const RepeatFromLog = -1

// DefaultOptions returns options that are good for frozen sentence vectors.
func DefaultOptions() Options {
	return Options{Common: fit.DefaultCommon(), Measure: fit.MRR, Betas: []float64{0.5, 0.3, 0.8}, MAvg: []float64{0.3, 1, 3, 10}, RepeatShare: RepeatFromLog, Restarts: 4, Passes: 30}
}

// maxAverage bounds MAvg: with more vectors per item, the companion would be a copy of the log.
const maxAverage = 1000

// check returns fit.ErrOption.
func (o Options) check(d fit.Data) error {
	if err := o.Common.Check(d); err != nil {
		return err
	}
	if err := o.Measure.Check(); err != nil {
		return err
	}
	switch {
	case !o.Normalise:
		return fmt.Errorf("%w: behavioural vectors have norm 1, so that they can only stand beside unit vectors; fit with normalise", fit.ErrOption)
	case len(o.Betas) == 0:
		return fmt.Errorf("%w: there is no beta; want one or more", fit.ErrOption)
	case o.RepeatShare != RepeatFromLog && !(o.RepeatShare >= 0 && o.RepeatShare <= 1):
		return fmt.Errorf("%w: the share of repeated traffic is %g, want 0 to 1, or %d to estimate it", fit.ErrOption, o.RepeatShare, RepeatFromLog)
	case len(o.MAvg) == 0 || !slices.IsSorted(o.MAvg):
		return fmt.Errorf("%w: the budgets are %g; want one or more, ascending", fit.ErrOption, o.MAvg)
	case o.Restarts < 1 || o.Passes < 1:
		return fmt.Errorf("%w: %d restarts of %d passes; want 1 at least", fit.ErrOption, o.Restarts, o.Passes)
	}
	for _, b := range o.Betas {
		if !(b >= 0 && b <= 1) {
			return fmt.Errorf("%w: beta is %g, want 0 (every logged item alike) to 1 (by popularity)", fit.ErrOption, b)
		}
	}
	for _, m := range o.MAvg {
		if !(m > 0 && m <= maxAverage) || m*float64(d.Items.Rows) > math.MaxInt32 {
			return fmt.Errorf("%w: a budget of %g vectors an item for %d items; want more than 0, %d at most, and at most 2^31 in all",
				fit.ErrOption, m, d.Items.Rows, maxAverage)
		}
	}
	return nil
}
