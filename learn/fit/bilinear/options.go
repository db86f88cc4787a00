package bilinear

import (
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Options are the options of a fit of a bilinear form. DefaultOptions has the defaults.
type Options struct {
	fit.Common
	Form bilinear.Form
	Rank int // of the low-rank forms
	// Measure chooses the setting, and judges the fit.
	Measure fit.Measure
	// Scale multiplies φ before the softmax: the inverse of the temperature. With 0
	// the fit chooses it.
	Scale float64
	// Quality is the share of a full form's measure on held-out queries that the
	// suggested rank keeps.
	Quality float64
	// Energy is a share of Σσ² of W − I; the report names the rank that has it.
	Energy float64
	// Reduce turns a fitted full form into I plus a matrix of this rank, which is
	// fitted some rounds more. ReduceAuto takes the suggested rank, 0 leaves the form
	// full.
	Reduce int
	// Margin is the share of the best form's gain that a simpler one may lose and still be
	// as good.
	Margin float64
	// Pulls are the strengths of the pull to the identity that are tried, weak to strong.
	Pulls []float64
	// Rate is the learning rate of Adam. With 0 the fit takes the form's own, or a
	// fifth of it if that is better.
	Rate   float64
	Batch  int
	Rounds int // at most
	// Steps is the least number of steps of a fit to a short log, whose batches have less
	// than half of Batch: its rounds are few steps, in which W cannot leave its start.
	Steps int
	// Softmax is the number of items with pairs up to which the softmax runs over all
	// of them. Beyond it, it runs over the items of the batch and Draws sampled ones.
	Softmax, Draws int
	// PairsPerQuery is the number of pairs of one query, drawn with Seed, that the fit
	// learns from. The query's other items are still right answers. 0 takes all pairs.
	PairsPerQuery int
}

// ReduceAuto is the value of Options.Reduce for the suggested rank.
const ReduceAuto = -1

// DefaultOptions returns options that are good for frozen sentence vectors.
func DefaultOptions() Options {
	return Options{
		Common: fit.DefaultCommon(), Measure: fit.MRR, Form: bilinear.Full, Rank: 32, Quality: 0.99, Energy: 0.9, Margin: verdict.DefaultMargin,
		Pulls: []float64{1e-5, 3e-4, 2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 1e-1},
		Batch: 512, Rounds: 10, Steps: 400, Softmax: 4096, Draws: 512,
	}
}

// check returns fit.ErrOption.
func (o Options) check(d fit.Data) error {
	if err := o.Common.Check(d); err != nil {
		return err
	}
	if err := o.Measure.Check(); err != nil {
		return err
	}
	dim := min(d.Items.Cols, d.Queries.Cols)
	forms := []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal}
	switch {
	case !slices.Contains(forms, o.Form):
		return fmt.Errorf("%w: form %q is none of %q", fit.ErrOption, o.Form, forms)
	case o.hasLowRank() && (o.Rank < 1 || o.Rank > dim):
		return fmt.Errorf("%w: rank is %d, want 1 to the dimension %d", fit.ErrOption, o.Rank, dim)
	case (o.Form == bilinear.Diagonal || o.Form == bilinear.IdentityLowRank) && d.Items.Cols != d.Queries.Cols:
		return fmt.Errorf("%w: form %s needs both sides of one dimension, queries have %d columns and items %d; fit %s or %s",
			fit.ErrOption, o.Form, d.Queries.Cols, d.Items.Cols, bilinear.Full, bilinear.LowRank)
	case o.Reduce != 0 && o.Form != bilinear.Full:
		return fmt.Errorf("%w: a rank cut of the spectrum needs form %s, not %s", fit.ErrOption, bilinear.Full, o.Form)
	case o.Reduce < ReduceAuto || o.Reduce > dim:
		return fmt.Errorf("%w: the rank to cut to is %d, want 1 to the dimension %d", fit.ErrOption, o.Reduce, dim)
	case !fit.IsShare(o.Quality):
		return fmt.Errorf("%w: the share of quality is %g, want more than 0 and less than 1", fit.ErrOption, o.Quality)
	case !fit.IsShare(o.Energy):
		return fmt.Errorf("%w: the share of energy is %g, want more than 0 and less than 1", fit.ErrOption, o.Energy)
	case !(o.Margin >= 0 && o.Margin < 1):
		return fmt.Errorf("%w: the margin is %g, want 0 at least and less than 1", fit.ErrOption, o.Margin)
	case !(o.Scale >= 0) || o.Rate < 0 || o.Batch < 2 || o.Rounds < 1 || o.Steps < 0 || o.Draws < 1 || o.PairsPerQuery < 0 || len(o.Pulls) == 0:
		return fmt.Errorf("%w: scale %g, rate %g, batch %d, rounds %d, steps %d, draws %d, %d pairs of a query, %d pulls; want positive numbers and a batch of 2 at least",
			fit.ErrOption, o.Scale, o.Rate, o.Batch, o.Rounds, o.Steps, o.Draws, o.PairsPerQuery, len(o.Pulls))
	}
	return nil
}

func (o Options) hasLowRank() bool {
	return o.Form == bilinear.LowRank || o.Form == bilinear.IdentityLowRank
}

// rateFor returns the learning rate of a form: the one of the options, or the form's own.
func (o Options) rateFor(form bilinear.Form) float64 {
	switch {
	case o.Rate > 0:
		return o.Rate
	case form == bilinear.Diagonal:
		return 0.1
	case form == bilinear.Full:
		return 5e-3
	default:
		return 1e-2
	}
}

// roundsFor returns the number of rounds of a fit whose rounds have the given number of
// steps over batches of the given size.
func (o Options) roundsFor(batch, steps int) int {
	if 2*batch >= o.Batch {
		return o.Rounds
	}
	return max(o.Rounds, (o.Steps+steps-1)/steps)
}

// patience is the number of rounds without a better rating before a trial of the given
// number of rounds ends.
func patience(rounds int) int { return max(3, rounds/2) }
