package fit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// MaxSimOptions are those of a fit of behavioural vectors. Defaults are those of
// DefaultMaxSimOptions.
type MaxSimOptions struct {
	Common
	// Beta divides the budget: an item of n queries gets a share of n^Beta (MVG, eq. 6).
	Beta float64
	// MAvg are the budgets, in vectors an item of the collection in the mean, of
	// which the fit chooses on held-out queries; one alone is taken as it is.
	MAvg []float64
	// Restarts of each item's clustering, the best of which is taken.
	Restarts int
	// Passes of Lloyd's algorithm over the queries of an item, at most.
	Passes int
}

// DefaultMaxSimOptions are good for frozen sentence vectors.
func DefaultMaxSimOptions() MaxSimOptions {
	return MaxSimOptions{Common: DefaultCommon(), Beta: 0.5, MAvg: []float64{0.3, 1, 3, 10}, Restarts: 4, Passes: 30}
}

// maxAverage bounds MAvg: more vectors an item are a collection of queries.
const maxAverage = 1000

func (o MaxSimOptions) check(d Data) error {
	if err := o.Common.check(d); err != nil {
		return err
	}
	switch {
	case !o.Normalise:
		return fmt.Errorf("%w: behavioural vectors have norm 1, so that they can only stand beside unit vectors; fit with normalise", ErrOption)
	case !(o.Beta >= 0 && o.Beta <= 1):
		return fmt.Errorf("%w: beta is %g, want 0 (every logged item alike) to 1 (by popularity)", ErrOption, o.Beta)
	case len(o.MAvg) == 0 || !slices.IsSorted(o.MAvg):
		return fmt.Errorf("%w: the budgets are %g; want one or more, ascending", ErrOption, o.MAvg)
	case o.Restarts < 1 || o.Passes < 1:
		return fmt.Errorf("%w: %d restarts of %d passes; want 1 at least", ErrOption, o.Restarts, o.Passes)
	}
	for _, m := range o.MAvg {
		if !(m > 0 && m <= maxAverage) || m*float64(d.Items.Rows) > math.MaxInt32 {
			return fmt.Errorf("%w: a budget of %g vectors an item for %d items; want more than 0, %d at most, and at most 2^31 in all", ErrOption, m, d.Items.Rows, maxAverage)
		}
	}
	return nil
}

// VectorSink takes the behavioural vectors of the item of a row, which it must not
// keep. Items come in the order of their rows, each once at most.
type VectorSink func(item int, vectors rerank.Matrix) error

// FittedMaxSim is the outcome of a fit of behavioural vectors, without them.
type FittedMaxSim struct {
	Config maxsim.Config
	Report MaxSimReport
}

// MaxSimReport says what a fit of behavioural vectors did, and what it is worth.
type MaxSimReport struct {
	Counts Counts  `json:"counts"`
	Seed   uint64  `json:"seed"`
	Beta   float64 `json:"beta"`
	// MAvg is the budget that was taken, in vectors an item; 0: none was better
	// than none at all.
	MAvg float64 `json:"mavg"`
	// Budget is MAvg times the items, at most one a pair. Vectors were found of it:
	// queries that lie together need fewer.
	Budget  int `json:"budget"`
	Vectors int `json:"vectors"`
	// ItemsWithVectors own one or more.
	ItemsWithVectors int `json:"items_with_vectors"`
	// Guarded: budgets under which items without logs lose were not taken.
	Guarded bool          `json:"guarded"`
	Trials  []MaxSimTrial `json:"trials"`
	// Logged is the quality on held-out queries of the budget taken, Cold that on
	// held-out items, both against the plain inner product.
	Logged         Comparison  `json:"logged"`
	Cold           *Comparison `json:"cold,omitempty"`
	Recommendation string      `json:"recommendation"`
	Warnings       []string    `json:"warnings,omitempty"`
}

// MaxSimTrial is what a budget did.
type MaxSimTrial struct {
	MAvg    float64     `json:"mavg"`
	Vectors int         `json:"vectors"`
	Logged  Comparison  `json:"logged"`
	NDCG    float64     `json:"ndcg"`
	Cold    *Comparison `json:"cold,omitempty"`
	// AsGood: not below the best by more than a standard error of the difference.
	AsGood     bool `json:"as_good"`
	Admissible bool `json:"admissible"`
	Chosen     bool `json:"chosen"`

	marks maxsimMarks
}

// MaxSim fits behavioural vectors (MVG): it divides the budget among the items by
// the number of their queries, clusters the queries of each on the unit sphere
// beside the item's own vector, which stays, and gives the centres to sink. Of
// several budgets it takes the smallest that is as good as the best on held-out
// queries, and then clusters all pairs.
//
// It keeps eight to twelve bytes a pair, and copies no vectors but those of the
// items that are clustered at the moment: d.Items and d.Queries may be mapped
// files. It uses every core. It returns ErrData, ErrOption, ErrCheckpoint, or the
// error of the context, the Checkpoint or the sink.
func MaxSim(ctx context.Context, d Data, o MaxSimOptions, sink VectorSink) (*FittedMaxSim, error) {
	if err := o.check(d); err != nil {
		return nil, err
	}
	p, err := unscaled(d)
	if err != nil {
		return nil, err
	}
	s, err := p.split(o.Common)
	if err != nil {
		return nil, err
	}
	keep, err := newKeeper(o.Checkpoint, "maxsim", d, o)
	if err != nil {
		return nil, err
	}
	w := &maxsimWork{problem: p, options: o, split: s, keeper: keep}
	w.report.Counts, w.report.Seed, w.report.Beta = p.counts, o.Seed, o.Beta
	if err := keep.load(&w.state); err != nil {
		return nil, err
	}
	if err := w.choose(ctx); err != nil {
		return nil, err
	}
	if err := w.finish(ctx, sink); err != nil {
		return nil, err
	}
	return &FittedMaxSim{Config: maxsim.Config{Dim: d.Items.Cols, Normalise: true}, Report: w.report}, nil
}

// unscaled prepares data without a copy of the vectors. It returns ErrData.
func unscaled(d Data) (*problem, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	p := &problem{items: d.Items, queries: d.Queries, counts: Counts{Items: d.Items.Rows}, times: d.Times, raw: true}
	zeroItems, err := zeroRows("items", d.Items)
	if err != nil {
		return nil, err
	}
	zeroQueries, err := zeroRows("queries", d.Queries)
	if err != nil {
		return nil, err
	}
	p.relate(d, zeroQueries, zeroItems)
	if p.counts.LoggedItems < 2 {
		return nil, fmt.Errorf("%w: the pairs name %d items; there is nothing to tell apart below two", ErrData, p.counts.LoggedItems)
	}
	return p, nil
}

// zeroRows says which rows have no direction. It returns ErrData for one that is
// not finite.
func zeroRows(what string, m rerank.Matrix) ([]bool, error) {
	zero := make([]bool, m.Rows)
	for r := range m.Rows {
		norm := rerank.Norm(m.Row(r))
		if math.IsNaN(norm) || math.IsInf(norm, 0) {
			return nil, fmt.Errorf("%w: %w", ErrData, rerank.CheckFinite(fmt.Sprintf("%s[%d]", what, r), m.Row(r)))
		}
		zero[r] = norm == 0
	}
	return zero, nil
}
