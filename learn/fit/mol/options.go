package mol

import (
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/rerank/mol"
)

// Gates says what the gates of a Mixture-of-Logits are computed from.
type Gates string

const (
	// GatesQuery computes the gates from the query alone. φ is then one inner product
	// of a vector made from the query with the item's components, so that one exact
	// list is the exact answer.
	GatesQuery Gates = "query"
	// GatesFull computes the gates from the query, the item and the logits, as RAILS
	// does (section 2).
	GatesFull Gates = "full"
)

// Options are the options of a fit of a Mixture-of-Logits. DefaultOptions has the
// defaults.
type Options struct {
	fit.Common
	// Measure chooses the setting of the bilinear form, the pull and the number of rounds, and judges the fit.
	Measure fit.Measure
	// PairsQuery is P_Q, the number of query components, user embeddings included.
	// PairsItem is P_X, the number of item components. Dim is D, the length of a
	// component; with 0 the item components together are as long as a vector.
	PairsQuery, PairsItem, Dim int
	Gates                      Gates
	// Hidden widths of the three parts of the gates. Only full gates have the last
	// two. A pair part of width 0 is linear.
	GateQueryHidden, GateItemHidden, GatePairHidden int
	// QueryHidden is the hidden width of a gated linear unit on the query's side,
	// QueryActivation its kind. With 0 the query's side is linear, as the item's is.
	QueryHidden     int
	QueryActivation mol.Activation
	// L2Norm divides every component by its norm. Without it the probes of a query
	// can search the stored vectors themselves and lose nothing.
	L2Norm bool
	// UserTables are the sizes of hashed user-id embeddings, one component each.
	UserTables []int
	// Temperature is τ. 0 stands for the temperature with which the bilinear form was best.
	Temperature float64
	// Balance is the weight of the load-balancing loss L_MI (RAILS, eq. 3).
	Balance float64
	// Dropout is the share of the numbers of a query's vector that a training step
	// drops, GateDropout the share of the gates (the others sum to 1 again),
	// UserDropout the share of the numbers of user embeddings.
	Dropout, GateDropout, UserDropout float64
	// Pulls are strengths of the pull to the start, which is a bilinear form, ascending.
	// Where items without logs are guarded they are tried from the strongest on, otherwise
	// the first is taken. Nil stands for 1e-5 (1e-4 for full gates) to 0.03.
	Pulls []float64
	Rate  float64 // of Adam, falling to 0
	Batch int
	// Rounds is the greatest number of rounds. A round has 16,384 pairs, or all pairs if
	// there are fewer. 0 stands for 16, or 8 for full gates. If items without logs are
	// guarded, the fit takes exactly half as many, or none. The bilinear form takes twice as many at most.
	Rounds int
	// Softmax is the number of items with pairs up to which the softmax runs over all
	// of them. Beyond it, it runs over the items of the batch and Draws sampled ones.
	Softmax, Draws int
}

// DefaultOptions returns options that are good for frozen sentence vectors and for
// vectors of recommended items.
func DefaultOptions() Options {
	return Options{
		Common: fit.DefaultCommon(), Measure: fit.MRR, PairsQuery: 8, PairsItem: 4, Gates: GatesQuery,
		GateQueryHidden: 128, GateItemHidden: 128, GatePairHidden: 64, QueryActivation: mol.SwiGLU,
		Balance: 1e-3, Dropout: 0.2, UserDropout: 0.5,
		Rate: 2e-3, Batch: 512, Softmax: 4096, Draws: 512,
	}
}

// setDefaults replaces the zero values of Pulls and Rounds. Full gates learn a log by
// heart sooner than gates of the query alone.
func (o *Options) setDefaults() {
	weak, rounds := 1e-5, 16
	if o.Gates == GatesFull {
		weak, rounds = 1e-4, 8
	}
	if len(o.Pulls) == 0 {
		o.Pulls = []float64{weak, 3e-3, 1e-2, 3e-2}
	}
	if o.Rounds == 0 {
		o.Rounds = rounds
	}
}

// formOptions returns the options of the bilinear forms at which mixtures start. They take twice the rounds of the
// mixtures at most, because a round of theirs takes a fraction of the time, and one rate: a mixture goes on from where they end.
func (o *Options) formOptions(rounds int) bilinear.Options {
	b := bilinear.DefaultOptions()
	b.Common, b.Measure, b.Batch, b.Softmax, b.Draws = o.Common, o.Measure, o.Batch, o.Softmax, o.Draws
	b.Rate = formRate
	if most := 2 * rounds; most < b.Rounds {
		b.Rounds, b.Steps = most, b.Steps*most/b.Rounds
	}
	return b
}

// formRate is the rate with which a bilinear form learns.
const formRate = 5e-3

// check returns fit.ErrOption.
func (o *Options) check(d fit.Data) error {
	if err := o.Common.Check(d); err != nil {
		return err
	}
	if err := o.Measure.Check(); err != nil {
		return err
	}
	rate := func(v float64) bool { return v >= 0 && v < 1 }
	switch {
	case o.projectedPairs() < 1 || o.PairsItem < 1 || o.PairsQuery > maxPairs || o.PairsItem > maxPairs || o.Dim < 0 || o.Dim > d.Items.Cols:
		return fmt.Errorf("%w: %d by %d components of %d, with %d user tables; want 1 to %d on each side beside the tables, and at most %d numbers each",
			fit.ErrOption, o.PairsQuery, o.PairsItem, o.Dim, len(o.UserTables), maxPairs, d.Items.Cols)
	case o.Gates != GatesQuery && o.Gates != GatesFull:
		return fmt.Errorf("%w: gates %q are neither %s nor %s", fit.ErrOption, o.Gates, GatesQuery, GatesFull)
	case o.GateQueryHidden < 2 || o.GateItemHidden < 1 || o.GatePairHidden < 0 || o.QueryHidden < 0 ||
		max(o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden, o.QueryHidden) > maxHidden:
		return fmt.Errorf("%w: hidden widths are %d (query gate), %d (item gate), %d (logit gate), %d (query side); want 2, 1, 0 and 0 at least and %d at most",
			fit.ErrOption, o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden, o.QueryHidden, maxHidden)
	case o.QueryHidden > 0 && o.QueryActivation != mol.SwiGLU && o.QueryActivation != mol.GeGLU:
		return fmt.Errorf("%w: the query side's activation %q is neither %s nor %s", fit.ErrOption, o.QueryActivation, mol.SwiGLU, mol.GeGLU)
	case o.Temperature != 0 && !(o.Temperature >= 1e-3 && o.Temperature <= 100):
		return fmt.Errorf("%w: temperature is %g, want 0.001 to 100, or 0 for the fit's own", fit.ErrOption, o.Temperature)
	case !rate(o.Dropout) || !rate(o.GateDropout) || !rate(o.UserDropout):
		return fmt.Errorf("%w: dropout is %g (query), %g (gates), %g (users); want 0 up to 1", fit.ErrOption, o.Dropout, o.GateDropout, o.UserDropout)
	case !(o.Balance >= 0) || !(o.Rate > 0) || o.Batch < 2 || o.Rounds < 1 || o.Draws < 1 || o.Softmax < 0 ||
		len(o.Pulls) == 0 || slices.ContainsFunc(o.Pulls, func(p float64) bool { return !(p >= 0) }):
		return fmt.Errorf("%w: balance %g, rate %g, batch %d, rounds %d, softmax %d, draws %d, pulls %g; want no negative number and a batch of 2 at least",
			fit.ErrOption, o.Balance, o.Rate, o.Batch, o.Rounds, o.Softmax, o.Draws, o.Pulls)
	}
	return o.checkUsers(d)
}

// Limits that options are checked against before anything is allocated.
const (
	maxPairs  = 64
	maxHidden = 1 << 14
	maxUsers  = 1 << 24
)

func (o *Options) checkUsers(d fit.Data) error {
	for i, size := range o.UserTables {
		if size < 1 || size > maxUsers {
			return fmt.Errorf("%w: user table %d has size %d, want 1 to %d", fit.ErrOption, i, size, maxUsers)
		}
	}
	if len(o.UserTables) > 0 && d.UserIDs == nil {
		return fmt.Errorf("%w: user tables need the user id of every query, and the log has none", fit.ErrOption)
	}
	return nil
}

// projectedPairs returns the number of query components that are projected from the
// query's vector; the others are user embeddings.
func (o *Options) projectedPairs() int { return o.PairsQuery - len(o.UserTables) }

// componentDim returns D, the length of a component.
func (o *Options) componentDim(itemDim int) int {
	if o.Dim > 0 {
		return o.Dim
	}
	return (itemDim + o.PairsItem - 1) / o.PairsItem
}
