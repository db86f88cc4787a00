// Package fit learns similarities from a log: queries and the items that were
// chosen, over the vectors exactly as they are stored.
//
// A fit of the same data with the same options and seed is the same to the bit,
// whatever the number of cores.
package fit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrOption: an option is out of its range or does not go with another.
var ErrOption = errors.New("fit option is not valid")

// Cold says what a fit does for items without logs.
type Cold string

// What a fit does for items without logs.
const (
	// ColdAuto guards them if the collection has any.
	ColdAuto Cold = "auto"
	// ColdGuard raises the pull to the identity until items that the fit has not
	// seen are found at least as well as by the plain inner product.
	ColdGuard Cold = "guard"
	// ColdIgnore fits for logged items only.
	ColdIgnore Cold = "ignore"
)

// Options of a fit of a bilinear form. Defaults are those of DefaultOptions.
type Options struct {
	Form bilinear.Form
	Rank int // of the low-rank forms
	// Normalise fits on unit vectors.
	Normalise bool
	// Scale multiplies φ before the softmax: the inverse of the temperature. 0 is
	// 20, and 40 where items without logs are guarded: W then has less to move.
	Scale float64
	Seed  uint64
	// HeldOut is the share of queries that judge the fit.
	HeldOut float64
	Cold    Cold
	// ColdShare is the share of logged items whose pairs are taken away to see
	// what the fit does to items without logs; 0 does not look.
	ColdShare float64
	// Energy is the share of Σσ² of W − I that the suggested rank keeps.
	Energy float64
	// Reduce makes a full form I plus a low rank in the end: that rank, or the
	// suggested one if it is ReduceAuto; 0 leaves it full.
	Reduce int
	// Pulls are tried in their order, weak to strong.
	Pulls []float64
	// Rate of Adam; 0 is the form's own.
	Rate   float64
	Batch  int
	Rounds int // passes over the pairs, at most
	// Softmax is the number of items up to which the softmax runs over all of
	// them; beyond it over the batch's own and Draws sampled ones.
	Softmax, Draws int
	Progress       Progress `json:"-"`
}

// ReduceAuto is the value of Options.Reduce for the suggested rank.
const ReduceAuto = -1

// Progress is told of long work: it is called at the start of a stage with the
// number of its steps, and returns what is called with the number of steps done.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// DefaultOptions are good for frozen sentence vectors.
func DefaultOptions() Options {
	return Options{
		Form: bilinear.Full, Rank: 32, Normalise: true, Seed: 1,
		HeldOut: 0.1, Cold: ColdAuto, ColdShare: 0.2, Energy: 0.9,
		Pulls: []float64{1e-5, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 4e-2},
		Batch: 512, Rounds: 10, Softmax: 4096, Draws: 512,
	}
}

func (o Options) check(dim int) error {
	share := func(v float64) bool { return v > 0 && v < 1 }
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
	case !share(o.HeldOut):
		return fmt.Errorf("%w: the share of queries held out is %g, want more than 0 and less than 1", ErrOption, o.HeldOut)
	case o.ColdShare < 0 || o.ColdShare > 0.5:
		return fmt.Errorf("%w: the share of items held out is %g, want 0 to 0.5", ErrOption, o.ColdShare)
	case o.Cold == ColdGuard && o.ColdShare == 0:
		return fmt.Errorf("%w: items without logs cannot be guarded with none held out; raise the share or do not ask", ErrOption)
	case !slices.Contains([]Cold{ColdAuto, ColdGuard, ColdIgnore}, o.Cold):
		return fmt.Errorf("%w: cold %q is none of auto, guard and ignore", ErrOption, o.Cold)
	case !share(o.Energy):
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
func (o Options) recipe(form bilinear.Form, pull float64, guard bool) recipe {
	r := recipe{
		rate: o.Rate, scale: o.Scale, pull: pull, batch: o.Batch, limit: o.Softmax, draws: o.Draws,
		rounds: o.Rounds, patience: 3, seed: o.Seed,
	}
	switch {
	case r.rate > 0:
	case form == bilinear.Diagonal:
		r.rate = 0.1
	case form == bilinear.Full:
		r.rate = 5e-3
	default:
		r.rate = 1e-2
	}
	switch {
	case r.scale > 0:
	case guard:
		r.scale = 40
	default:
		r.scale = 20
	}
	return r
}

// Fitted is the outcome of a fit.
type Fitted struct {
	Config  bilinear.Config
	Tensors tensor.Set
	Report  Report
}

// Bilinear fits φ = qᵀWx. It chooses the pull to the identity and the number of
// rounds on held-out queries and held-out items, judges the choice on the
// held-out queries, and then fits all pairs. It uses every core. It returns
// ErrData, ErrOption or the context's error.
func Bilinear(ctx context.Context, d Data, o Options) (*Fitted, error) {
	if err := o.check(d.Items.Cols); err != nil {
		return nil, err
	}
	p, err := prepare(d, o.Normalise)
	if err != nil {
		return nil, err
	}
	s, err := p.byQuery(o.HeldOut, o.Seed)
	if err != nil {
		return nil, err
	}
	p.counts.HeldOutQueries = len(s.held)
	w := &work{problem: p, options: o, split: s, judge: newJudge(p, s.held, nil)}
	w.report.Counts, w.report.Form, w.report.Seed, w.report.Normalise = p.counts, o.Form, o.Seed, o.Normalise
	return w.run(ctx)
}
