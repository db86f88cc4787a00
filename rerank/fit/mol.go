package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Gates says what the gates of a MoL are made from.
type Gates string

const (
	// GatesQuery: the query alone. φ is then one inner product of a query-made
	// vector with the item's components, so one exact list is the exact answer.
	GatesQuery Gates = "query"
	// GatesFull: the query, the item and the logits, as in RAILS (section 2).
	GatesFull Gates = "full"
)

// MoLOptions are the options of a fit of a Mixture-of-Logits. Defaults are
// those of DefaultMoLOptions.
type MoLOptions struct {
	Common
	// PairsQuery is P_Q, user ids included, PairsItem P_X, and Dim D; with Dim 0
	// the item components together are as long as a vector.
	PairsQuery, PairsItem, Dim int
	Gates                      Gates
	// Hidden widths of the parts of the gates; the last two are of full gates
	// only, and a logit part of width 0 is linear.
	GateQueryHidden, GateItemHidden, GatePairHidden int
	// QueryHidden is the hidden width of a gated linear unit on the query's side,
	// and QueryActivation its kind; 0 leaves the side linear. The item's is linear.
	QueryHidden     int
	QueryActivation mol.Activation
	// L2Norm divides every component by its norm. Without, the probes of a query
	// can search the stored vectors themselves, and lose nothing.
	L2Norm bool
	// UserTables are the sizes of hashed user-id embeddings, one component each.
	UserTables []int
	// Temperature is τ; 0 is 0.05, and 0.025 where items without logs are guarded:
	// the components then have less to move.
	Temperature float64
	// Balance is the weight of the load-balancing loss L_MI (RAILS, eq. 3).
	Balance float64
	// Dropout is of the query's vector, GateDropout of the gates (with what is
	// left made to sum to 1 again), UserDropout of user-id embeddings. Only in training.
	Dropout, GateDropout, UserDropout float64
	// Pulls to the start, which is the plain inner product: tried weak to strong
	// where items without logs are guarded, otherwise the first is taken. Nil: 1e-5
	// (1e-4 for full gates) to 0.03.
	Pulls []float64
	Rate  float64 // of Adam, falling to 0
	Batch int
	// Rounds of 16,384 pairs, or of all if those are fewer, are taken at most; 0 is
	// 16, and 8 for full gates. Where items without logs are guarded it is half of
	// them, and no fewer.
	Rounds int
	// Softmax and Draws are those of Options.
	Softmax, Draws int
}

// DefaultMoLOptions are good for frozen sentence vectors and for vectors of
// items that are recommended.
func DefaultMoLOptions() MoLOptions {
	return MoLOptions{
		Common: DefaultCommon(), PairsQuery: 8, PairsItem: 4, Gates: GatesQuery,
		GateQueryHidden: 128, GateItemHidden: 128, GatePairHidden: 64, QueryActivation: mol.SwiGLU,
		Balance: 1e-3, Dropout: 0.2, UserDropout: 0.5,
		Rate: 2e-3, Batch: 512, Softmax: 4096, Draws: 512,
	}
}

// settle replaces what says "the fit's own": full gates learn a log by heart
// sooner than those of the query.
func (o *MoLOptions) settle() {
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

// check returns ErrOption.
func (o *MoLOptions) check(d Data) error {
	if err := o.Common.check(d); err != nil {
		return err
	}
	rate := func(v float64) bool { return v >= 0 && v < 1 }
	switch {
	case o.projected() < 1 || o.PairsItem < 1 || o.PairsQuery > maxPairs || o.PairsItem > maxPairs || o.Dim < 0 || o.Dim > d.Items.Cols:
		return fmt.Errorf("%w: %d by %d components of %d, with %d user tables; want 1 to %d on each side beside the tables, and at most %d numbers each",
			ErrOption, o.PairsQuery, o.PairsItem, o.Dim, len(o.UserTables), maxPairs, d.Items.Cols)
	case o.Gates != GatesQuery && o.Gates != GatesFull:
		return fmt.Errorf("%w: gates %q are neither %s nor %s", ErrOption, o.Gates, GatesQuery, GatesFull)
	case o.GateQueryHidden < 2 || o.GateItemHidden < 1 || o.GatePairHidden < 0 || o.QueryHidden < 0 ||
		max(o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden, o.QueryHidden) > maxHidden:
		return fmt.Errorf("%w: hidden widths are %d (query gate), %d (item gate), %d (logit gate), %d (query side); want 2, 1, 0 and 0 at least and %d at most",
			ErrOption, o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden, o.QueryHidden, maxHidden)
	case o.QueryHidden > 0 && o.QueryActivation != mol.SwiGLU && o.QueryActivation != mol.GeGLU:
		return fmt.Errorf("%w: the query side's activation %q is neither %s nor %s", ErrOption, o.QueryActivation, mol.SwiGLU, mol.GeGLU)
	case o.Temperature != 0 && !(o.Temperature >= 1e-3 && o.Temperature <= 100):
		return fmt.Errorf("%w: temperature is %g, want 0.001 to 100, or 0 for the fit's own", ErrOption, o.Temperature)
	case !rate(o.Dropout) || !rate(o.GateDropout) || !rate(o.UserDropout):
		return fmt.Errorf("%w: dropout is %g (query), %g (gates), %g (users); want 0 up to 1", ErrOption, o.Dropout, o.GateDropout, o.UserDropout)
	case !(o.Balance >= 0) || !(o.Rate > 0) || o.Batch < 2 || o.Rounds < 1 || o.Draws < 1 || o.Softmax < 0 ||
		len(o.Pulls) == 0 || slices.ContainsFunc(o.Pulls, func(p float64) bool { return !(p >= 0) }):
		return fmt.Errorf("%w: balance %g, rate %g, batch %d, rounds %d, softmax %d, draws %d, pulls %g; want no negative number and a batch of 2 at least",
			ErrOption, o.Balance, o.Rate, o.Batch, o.Rounds, o.Softmax, o.Draws, o.Pulls)
	}
	return o.checkUsers(d)
}

// Limits of what is worth fitting, before anything is allocated.
const (
	maxPairs  = 64
	maxHidden = 1 << 14
	maxUsers  = 1 << 24
)

func (o *MoLOptions) checkUsers(d Data) error {
	for i, size := range o.UserTables {
		if size < 1 || size > maxUsers {
			return fmt.Errorf("%w: user table %d has size %d, want 1 to %d", ErrOption, i, size, maxUsers)
		}
	}
	if len(o.UserTables) > 0 && d.UserIDs == nil {
		return fmt.Errorf("%w: user tables need the user id of every query, and the log has none", ErrOption)
	}
	return nil
}

// projected is the number of query components that are no user's.
func (o *MoLOptions) projected() int { return o.PairsQuery - len(o.UserTables) }

// dim is D.
func (o *MoLOptions) dim(itemDim int) int {
	if o.Dim > 0 {
		return o.Dim
	}
	return (itemDim + o.PairsItem - 1) / o.PairsItem
}

// FittedMoL is the outcome of a fit of a MoL.
type FittedMoL struct {
	Config  mol.Config
	Tensors tensor.Set
	Report  MoLReport
}

// MoL fits a Mixture-of-Logits. It starts at the plain inner product, is judged
// on held-out queries after every round, and then fits all pairs for as many
// rounds as were best. Where items without logs are guarded, it chooses the pull
// to the start on held-out items before. It uses every core. It returns ErrData,
// ErrOption, ErrCheckpoint, the error of the Checkpoint, or that of the context,
// the last together with the best model so far if there is one.
func MoL(ctx context.Context, d Data, o MoLOptions) (*FittedMoL, error) {
	o.settle()
	if err := o.check(d); err != nil {
		return nil, err
	}
	p, s, keep, err := begin("mol", d, o.Common, o)
	if err != nil {
		return nil, err
	}
	w := &molWork{problem: p, options: o, split: s, keeper: keep, itemScale: 1, queryScale: 1}
	if !o.Normalise {
		w.itemScale, w.queryScale = rootMeanSquare(d.Items), rootMeanSquare(d.Queries)
	}
	if err := keep.load(&w.state); err != nil {
		return nil, err
	}
	return w.run(ctx)
}
