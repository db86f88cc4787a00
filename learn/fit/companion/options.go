package companion

import (
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// Options are the options of a fit of a learned companion. DefaultOptions has the defaults. Of the
// common options, Normalise is decided by the similarity, and Cold, ColdShare and ColdTraffic have
// no effect: the vector of an item comes from its own scores, with a log or without.
type Options struct {
	fit.Common
	// Dim is the length of an item's vector, at most.
	Dim int
	// Anchors is the number of queries by whose scores items are placed, at most. A new item costs
	// that many scores. If queries have several vectors, an eighth as many whole queries place the
	// items, and three times as many single vectors.
	Anchors int
	// Hidden is the number of units that are added to a query's own features.
	Hidden int
	// Items is the number of items that the fit looks at. A larger collection is sampled.
	Items int
	// K is the length of the answers that a search should find.
	K int
	// Focus is the number of items per query whose order counts in full. Differences between the
	// others count Leak times as much. Late interaction counts all in full.
	Focus int
	Leak  float64
	// Ridge holds the solution back, relative to the mean square of the features.
	Ridge float64
	// Depths are the numbers of candidates whose recall is reported.
	Depths []int
}

// DefaultOptions returns options that are good for collections of ten thousand items and more.
func DefaultOptions() Options {
	return Options{
		Common: fit.DefaultCommon(), Dim: 512, Anchors: 3000, Hidden: 512, Items: 1 << 14, K: 10, Focus: 200, Leak: 0.3, Ridge: 1e-4,
		Depths: []int{50, 100, 200, 500},
	}
}

// check returns fit.ErrOption.
func (o Options) check() error {
	switch {
	case o.Dim < 1 || o.Anchors < 2 || o.Hidden < 0 || o.Items < 3 || o.K < 1 || o.Focus < 1:
		return fmt.Errorf("%w: dim %d, anchors %d, hidden %d, items %d, k %d, focus %d; want positive numbers, 2 anchors and 3 items at least",
			fit.ErrOption, o.Dim, o.Anchors, o.Hidden, o.Items, o.K, o.Focus)
	case !(o.Leak >= 0 && o.Leak <= 1) || !(o.Ridge > 0 && o.Ridge < 1):
		return fmt.Errorf("%w: leak %g and ridge %g; want a leak from 0 to 1, and a ridge above 0 and below 1", fit.ErrOption, o.Leak, o.Ridge)
	case len(o.Depths) == 0 || slices.Min(o.Depths) < 1:
		return fmt.Errorf("%w: depths %v; want one at least, all above 0", fit.ErrOption, o.Depths)
	}
	return nil
}

// checkData returns fit.ErrData if the similarity cannot score the data, or needs no companion.
func checkData(s rerank.Spec, d fit.Data) error {
	switch {
	case s.SingleInnerProduct:
		return fmt.Errorf("%w: a model of kind %s whose score is one inner product is found by that; it needs no learned companion", fit.ErrData, s.Kind)
	case s.UserIDs:
		return fmt.Errorf("%w: the model embeds users; a learned companion is for models of query and item alone", fit.ErrData)
	case d.Items.Cols != s.ItemDim || d.Queries.Cols != s.QueryDim:
		return fmt.Errorf("%w: items have %d columns and queries %d; the model takes %d and %d", fit.ErrData, d.Items.Cols, d.Queries.Cols, s.ItemDim, s.QueryDim)
	case d.ItemStarts != nil && !s.GroupedRows || d.QueryStarts != nil && !s.ManyVectors:
		return fmt.Errorf("%w: items or queries of several vectors; a model of kind %s takes one", fit.ErrData, s.Kind)
	case d.ItemCount() < 3:
		return fmt.Errorf("%w: %d items; a first stage leaves some out, which needs three at least", fit.ErrData, d.ItemCount())
	case d.Times != nil && len(d.Times) != d.QueryCount():
		return fmt.Errorf("%w: times of %d queries for %d", fit.ErrData, len(d.Times), d.QueryCount())
	}
	return d.CheckStarts()
}
