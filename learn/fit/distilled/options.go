package distilled

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// Options are the options of a fit of learned probes. DefaultOptions has the defaults. Of the
// common options, Normalise is decided by the similarity, and Cold and ColdShare have no effect,
// because training includes every item.
type Options struct {
	fit.Common
	// Heads lists HeadLinear, HeadResidual or both.
	Heads []string
	// Hidden is the width of the residual head's MLP.
	Hidden int
	// K is the length of the answers that a probe should find.
	K int
	// Focus is the number of items that share the target weight of a query, as the perplexity of
	// the similarity's softmax. 0 means 5K, but at most an eighth of the collection.
	Focus float64
	// List is the number of items ranked for a query.
	List int
	// Depths are the numbers of candidates at which first stages are compared.
	Depths []int
	Batch  int
	Rounds int     // passes over the queries, at most
	Rate   float64 // of Adam, relative to the size of the parameters
	// Softmax is the number of items up to which the softmax covers all items. Above it, the
	// softmax covers the lists of the batch and Draws sampled items.
	Softmax, Draws int
	// Scores is about how many scores of the similarity the training data may cost. If there are
	// too many queries, some are left out. In a collection larger than Softmax, only items that the
	// probe finds are scored.
	Scores int
}

// DefaultOptions returns options that are good for collections of up to some hundred
// thousand items.
func DefaultOptions() Options {
	return Options{
		Common: fit.DefaultCommon(), Heads: []string{HeadLinear, HeadResidual}, Hidden: 512,
		K: 10, List: 256, Depths: []int{50, 100, 200, 500}, Batch: 256, Rounds: 10, Rate: 0.05,
		Softmax: 1 << 15, Draws: 4096, Scores: 1 << 27,
	}
}

// check returns fit.ErrOption.
func (o Options) check() error {
	for _, h := range o.Heads {
		if h != HeadLinear && h != HeadResidual {
			return fmt.Errorf("%w: head %q is neither %s nor %s", fit.ErrOption, h, HeadLinear, HeadResidual)
		}
	}
	switch {
	case len(o.Heads) == 0:
		return fmt.Errorf("%w: no head is asked for; name %s or %s", fit.ErrOption, HeadLinear, HeadResidual)
	case o.K < 1 || o.List < 2 || o.Batch < 1 || o.Rounds < 1 || o.Hidden < 1 || o.Draws < 1 || o.Scores < 1 || o.Softmax < 0:
		return fmt.Errorf("%w: k %d, list %d, batch %d, rounds %d, hidden %d, draws %d, scores %d, softmax %d; want positive numbers",
			fit.ErrOption, o.K, o.List, o.Batch, o.Rounds, o.Hidden, o.Draws, o.Scores, o.Softmax)
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0) || !(o.Focus == 0 || o.Focus > 1) || math.IsInf(o.Focus, 0):
		return fmt.Errorf("%w: rate %g and focus %g; want a rate above 0 and a focus above 1", fit.ErrOption, o.Rate, o.Focus)
	case len(o.Depths) == 0 || slices.Min(o.Depths) < 1:
		return fmt.Errorf("%w: depths %v; want one at least, all above 0", fit.ErrOption, o.Depths)
	}
	return nil
}

// checkData returns fit.ErrData if the similarity cannot score the data.
func checkData(spec rerank.Spec, d fit.Data) error {
	switch {
	case d.ItemStarts != nil || d.QueryStarts != nil:
		return fmt.Errorf("%w: items or queries have several vectors each; fit distilled takes one, fit companion several", fit.ErrData)
	case d.Items.Cols != spec.ItemDim || d.Queries.Cols != spec.QueryDim:
		return fmt.Errorf("%w: items have %d columns and queries %d; the model takes %d and %d",
			fit.ErrData, d.Items.Cols, d.Queries.Cols, spec.ItemDim, spec.QueryDim)
	case len(d.Items.Data) != d.Items.Rows*d.Items.Cols || len(d.Queries.Data) != d.Queries.Rows*d.Queries.Cols:
		return fmt.Errorf("%w: %d items and %d queries have %d and %d numbers; every row needs the same length",
			fit.ErrData, d.Items.Rows, d.Queries.Rows, len(d.Items.Data), len(d.Queries.Data))
	case d.Items.Rows < 3:
		return fmt.Errorf("%w: %d items; a first stage leaves some out, which needs three at least", fit.ErrData, d.Items.Rows)
	case d.Times != nil && len(d.Times) != d.Queries.Rows:
		return fmt.Errorf("%w: times of %d queries for a matrix of %d", fit.ErrData, len(d.Times), d.Queries.Rows)
	case d.UserIDs != nil && len(d.UserIDs) != d.Queries.Rows:
		return fmt.Errorf("%w: user ids of %d queries for a matrix of %d", fit.ErrData, len(d.UserIDs), d.Queries.Rows)
	case spec.UserIDs && d.UserIDs == nil:
		return fmt.Errorf("%w: the model embeds users, so every query must name one", fit.ErrData)
	}
	return nil
}
