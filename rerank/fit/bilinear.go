// Package fit learns similarities from a log: queries and the items that were
// chosen, over the vectors exactly as they are stored.
//
// A fit of the same data with the same options and seed is the same to the bit,
// whatever the number of cores.
package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Options of a fit of a bilinear form. Defaults are those of DefaultOptions.
type Options struct {
	Common
	Form bilinear.Form
	Rank int // of the low-rank forms
	// Scale multiplies φ before the softmax: the inverse of the temperature. 0
	// chooses it.
	Scale float64
	// Quality is the share of a full form's MRR@10 on held-out queries that the
	// suggested rank keeps.
	Quality float64
	// Energy is the share of Σσ² of W − I whose rank is reported beside it.
	Energy float64
	// Reduce makes a full form I plus a low rank in the end, which is fitted some
	// rounds more: that rank, or the suggested one if it is ReduceAuto; 0 leaves it full.
	Reduce int
	// Pulls are tried in their order, weak to strong.
	Pulls []float64
	// Rate of Adam; 0 is the form's own, or a fifth of it if that is better.
	Rate   float64
	Batch  int
	Rounds int // passes over the pairs, at most
	// Softmax is the number of items up to which the softmax runs over all of
	// them; beyond it over the batch's own and Draws sampled ones.
	Softmax, Draws int
}

// ReduceAuto is the value of Options.Reduce for the suggested rank.
const ReduceAuto = -1

// DefaultOptions are good for frozen sentence vectors.
func DefaultOptions() Options {
	return Options{
		Common: DefaultCommon(), Form: bilinear.Full, Rank: 32, Quality: 0.99, Energy: 0.9,
		Pulls: []float64{1e-5, 3e-4, 2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 1e-1},
		Batch: 512, Rounds: 10, Softmax: 4096, Draws: 512,
	}
}

func (o Options) check(d Data) error {
	if err := o.Common.check(d); err != nil {
		return err
	}
	dim := d.Items.Cols
	forms := []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal}
	switch {
	case !slices.Contains(forms, o.Form):
		return fmt.Errorf("%w: form %q is none of %q", ErrOption, o.Form, forms)
	case o.lowRank() && (o.Rank < 1 || o.Rank > dim):
		return fmt.Errorf("%w: rank is %d, want 1 to the dimension %d", ErrOption, o.Rank, dim)
	case o.Reduce != 0 && o.Form != bilinear.Full:
		return fmt.Errorf("%w: a rank cut of the spectrum needs form %s, not %s", ErrOption, bilinear.Full, o.Form)
	case o.Reduce < ReduceAuto || o.Reduce > dim:
		return fmt.Errorf("%w: the rank to cut to is %d, want 1 to the dimension %d", ErrOption, o.Reduce, dim)
	case !isShare(o.Quality):
		return fmt.Errorf("%w: the share of quality is %g, want more than 0 and less than 1", ErrOption, o.Quality)
	case !isShare(o.Energy):
		return fmt.Errorf("%w: the share of energy is %g, want more than 0 and less than 1", ErrOption, o.Energy)
	case !(o.Scale >= 0) || o.Rate < 0 || o.Batch < 2 || o.Rounds < 1 || o.Draws < 1 || len(o.Pulls) == 0:
		return fmt.Errorf("%w: scale %g, rate %g, batch %d, rounds %d, draws %d, %d pulls; want positive numbers and a batch of 2 at least",
			ErrOption, o.Scale, o.Rate, o.Batch, o.Rounds, o.Draws, len(o.Pulls))
	}
	return nil
}

func (o Options) lowRank() bool {
	return o.Form == bilinear.LowRank || o.Form == bilinear.IdentityLowRank
}

// recipe is how a form is trained.
func (o Options) recipe(s setting) recipe {
	return recipe{
		rate: s.rate, scale: s.scale, pull: s.pull, batch: o.Batch, limit: o.Softmax, draws: o.Draws,
		rounds: o.Rounds, patience: max(3, o.Rounds/2), seed: o.Seed,
	}
}

// rate is the form's own, if none is given.
func (o Options) rate(form bilinear.Form) float64 {
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

// Fitted is the outcome of a fit.
type Fitted struct {
	Config  bilinear.Config
	Tensors tensor.Set
	Report  Report
}

// Bilinear fits φ = qᵀWx. It chooses the scale, the pull to the identity and the
// number of rounds on held-out queries and held-out items, judges the choice on
// the held-out queries, and then fits all pairs. It uses every core. It returns
// ErrData, ErrOption, ErrCheckpoint or the context's error; with the latter it
// also returns the best so far, if that is better than the plain inner product.
func Bilinear(ctx context.Context, d Data, o Options) (*Fitted, error) {
	if err := o.check(d); err != nil {
		return nil, err
	}
	p, s, keep, err := begin("bilinear", d, o.Common, o)
	if err != nil {
		return nil, err
	}
	w := &work{problem: p, options: o, split: s, judge: newJudge(p, s.held, nil), keeper: keep}
	w.report.Counts, w.report.Form, w.report.Seed, w.report.Normalise = p.counts, o.Form, o.Seed, o.Normalise
	return w.run(ctx)
}
