// Package fit describes a fit of a similarity to a log of queries and the items that
// were chosen for them: the data and options that every kind of fit takes, the
// figures that every report has, and where progress and checkpoints go. Its
// subpackages fit one kind each.
//
// The same data, options and seed give the same model to the bit, on any number of
// cores of one kind of machine.
package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/rerank"
)

// ErrData means that the vectors and the log do not match, or that they are too few
// to fit and to judge a similarity.
var ErrData = errors.New("training data is not valid")

// Data is a collection and a log of the items that were chosen from it. A fit only
// reads it.
type Data struct {
	Items, Queries rerank.Matrix
	// ItemStarts and QueryStarts divide the rows of Items and Queries among items and queries of several
	// vectors, as rerank.Items.Starts does. If nil, each has one row.
	ItemStarts, QueryStarts []int32
	// Relevant[q] holds the rows of the items chosen for query q, ascending and distinct.
	Relevant [][]int32
	// Weights[q][i] is the weight of the pair of q and Relevant[q][i] in losses and in
	// means over queries: above 0 and finite. If nil, every weight is 1.
	Weights [][]float32
	// Seen[q] holds the rows of items that were seen before query q, ascending and distinct, and
	// none of Relevant[q]. No answer has them: they are no wrong answers, and rankings that judge
	// the fit are without them. If nil, none are known.
	Seen [][]int32
	// Looks[q] says how often people looked at the items that answers to query q showed, by item
	// ascending. Whoever did not look at an item did not reject it: a loss that reads Looks compares a
	// chosen item with others as far as people looked at them. If nil, nothing is known.
	Looks [][]clicks.Look
	// Inverse[q] multiplies the weight of query q where it judges the fit: how many choices at the
	// first position one of its choices stands for. If nil, it is 1.
	Inverse []float64
	// Times[q] is when query q was asked, in Unix seconds. If nil, times are unknown.
	Times []int64
	// Asked[q] is how often query q was asked: the weight, in all lines of the log, of the
	// item that it chose most often. If nil, it is the greatest of Weights[q].
	Asked []float64
	// UserIDs[q] is the user who asked query q. If nil, users are unknown.
	UserIDs []int64
	// Forget gives the memory of vectors that are mapped from files back to the system; a fit calls it
	// while it copies them. It may be nil.
	Forget func()
}

// VisitRows calls visit for each row of m, until it returns an error. It calls forget, unless that is nil,
// after every 16 MB of rows and at the end.
func VisitRows(m rerank.Matrix, forget func(), visit func(r int, row []float32) error) error {
	if forget == nil {
		forget = func() {}
	}
	defer forget()
	block := max(1, 1<<22/max(1, m.Cols))
	for r := range m.Rows {
		if r%block == block-1 {
			forget()
		}
		if err := visit(r, m.Row(r)); err != nil {
			return err
		}
	}
	return nil
}

// Counts says how much data a fit used and how much it left out.
type Counts struct {
	Items int `json:"items"`
	// LoggedItems counts items with at least one pair.
	LoggedItems int `json:"logged_items"`
	// Queries counts queries with at least one pair, Pairs all their pairs.
	Queries int `json:"queries"`
	Pairs   int `json:"pairs"`
	// QueriesWithoutPairs counts queries that were left out because no pair names them.
	QueriesWithoutPairs int `json:"queries_without_pairs"`
	// ZeroQueries and ZeroItems count vectors of norm 0, which have no direction.
	// ZeroPairs counts their pairs, which were left out.
	ZeroQueries int `json:"zero_queries"`
	ZeroItems   int `json:"zero_items"`
	ZeroPairs   int `json:"zero_pairs"`
	// HeldOutQueries counts the queries, among Queries, that only judge the fit.
	// Queries with equal vectors are held out together.
	HeldOutQueries int `json:"held_out_queries"`
	// StraddlingQueries were asked in the held-out period and, with an equal vector,
	// before it. They and their pairs neither teach nor judge.
	StraddlingQueries int `json:"straddling_queries"`
	StraddlingPairs   int `json:"straddling_pairs"`
}

// Check returns ErrData if the parts of the data do not match.
func (d Data) Check() error {
	rows := d.Queries.Rows
	switch {
	case d.ItemStarts != nil || d.QueryStarts != nil:
		return fmt.Errorf("%w: items or queries have several vectors each; this fit takes one", ErrData)
	case len(d.Items.Data) != d.Items.Rows*d.Items.Cols || len(d.Queries.Data) != rows*d.Queries.Cols:
		return fmt.Errorf("%w: %d items of %d columns have %d numbers, %d queries of %d columns %d; every row needs the same length",
			ErrData, d.Items.Rows, d.Items.Cols, len(d.Items.Data), rows, d.Queries.Cols, len(d.Queries.Data))
	case d.Items.Cols < 1 || d.Items.Rows < 2:
		return fmt.Errorf("%w: %d items of dimension %d; want two items at least", ErrData, d.Items.Rows, d.Items.Cols)
	case d.Queries.Cols < 1:
		return fmt.Errorf("%w: %d queries of dimension %d", ErrData, rows, d.Queries.Cols)
	case len(d.Relevant) != rows:
		return fmt.Errorf("%w: pairs of %d queries for a matrix of %d", ErrData, len(d.Relevant), rows)
	case d.Weights != nil && len(d.Weights) != rows:
		return fmt.Errorf("%w: weights of %d queries for a matrix of %d", ErrData, len(d.Weights), rows)
	case d.Seen != nil && len(d.Seen) != rows:
		return fmt.Errorf("%w: seen items of %d queries for a matrix of %d", ErrData, len(d.Seen), rows)
	case d.Looks != nil && len(d.Looks) != rows:
		return fmt.Errorf("%w: looks for %d queries for a matrix of %d", ErrData, len(d.Looks), rows)
	case d.Inverse != nil && len(d.Inverse) != rows:
		return fmt.Errorf("%w: inverse propensities of %d queries for a matrix of %d", ErrData, len(d.Inverse), rows)
	case d.Times != nil && len(d.Times) != rows:
		return fmt.Errorf("%w: times of %d queries for a matrix of %d", ErrData, len(d.Times), rows)
	case d.Asked != nil && len(d.Asked) != rows:
		return fmt.Errorf("%w: traffic of %d queries for a matrix of %d", ErrData, len(d.Asked), rows)
	case d.UserIDs != nil && len(d.UserIDs) != rows:
		return fmt.Errorf("%w: user ids of %d queries for a matrix of %d", ErrData, len(d.UserIDs), rows)
	}
	for q := range d.Relevant {
		if err := d.checkPairs(q); err != nil {
			return err
		}
	}
	return nil
}

// ItemCount returns the number of items.
func (d Data) ItemCount() int { return countRows(d.Items, d.ItemStarts) }

// QueryCount returns the number of queries.
func (d Data) QueryCount() int { return countRows(d.Queries, d.QueryStarts) }

func countRows(m rerank.Matrix, starts []int32) int {
	if starts != nil {
		return len(starts) - 1
	}
	return m.Rows
}

// CheckStarts returns ErrData if ItemStarts or QueryStarts do not divide their rows: each item and
// query needs a row.
func (d Data) CheckStarts() error {
	for name, side := range map[string]struct {
		m      rerank.Matrix
		starts []int32
	}{"items": {d.Items, d.ItemStarts}, "queries": {d.Queries, d.QueryStarts}} {
		if side.starts == nil {
			continue
		}
		if err := rerank.CheckStarts(side.starts, side.m.Rows); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrData, name, err)
		}
	}
	return nil
}

// CheckInnerProduct returns ErrData if queries and items have no inner product, because
// their dimensions differ.
func (d Data) CheckInnerProduct() error {
	if d.Items.Cols != d.Queries.Cols {
		return fmt.Errorf("%w: queries have %d columns and items %d; this fit starts at their inner product, fit bilinear does not need one",
			ErrData, d.Queries.Cols, d.Items.Cols)
	}
	return nil
}

// checkPairs returns ErrData if the items or weights of query q are not valid.
func (d Data) checkPairs(q int) error {
	items := d.Relevant[q]
	if d.Seen != nil {
		if err := d.checkSeen(q); err != nil {
			return err
		}
	}
	for i, x := range items {
		switch {
		case x < 0 || int(x) >= d.Items.Rows:
			return fmt.Errorf("%w: query %d is paired with item row %d; the collection has rows 0 to %d", ErrData, q, x, d.Items.Rows-1)
		case i > 0 && x <= items[i-1]:
			return fmt.Errorf("%w: the items of query %d are not ascending and distinct: %d comes after %d", ErrData, q, x, items[i-1])
		}
	}
	if d.Looks != nil {
		if err := d.checkLooks(q); err != nil {
			return err
		}
	}
	if d.Inverse != nil && !(d.Inverse[q] > 0 && d.Inverse[q] <= math.MaxFloat32) {
		return fmt.Errorf("%w: query %d has inverse propensity %g; want above 0, and finite", ErrData, q, d.Inverse[q])
	}
	if d.Weights == nil {
		return nil
	}
	if len(d.Weights[q]) != len(items) {
		return fmt.Errorf("%w: query %d has %d weights for %d pairs", ErrData, q, len(d.Weights[q]), len(items))
	}
	for i, w := range d.Weights[q] {
		if !(w > 0) || math.IsInf(float64(w), 0) {
			return fmt.Errorf("%w: the pair of query %d and item %d has weight %g; a weight is above 0 and finite", ErrData, q, items[i], w)
		}
	}
	return nil
}

// checkLooks returns ErrData if the looks for query q are not valid.
func (d Data) checkLooks(q int) error {
	for i, l := range d.Looks[q] {
		switch {
		case l.Item < 0 || int(l.Item) >= d.Items.Rows:
			return fmt.Errorf("%w: people looked for query %d at item row %d; the collection has rows 0 to %d", ErrData, q, l.Item, d.Items.Rows-1)
		case i > 0 && l.Item <= d.Looks[q][i-1].Item:
			return fmt.Errorf("%w: the looks for query %d are not ascending and distinct: item %d comes after %d", ErrData, q, l.Item, d.Looks[q][i-1].Item)
		case !(l.Times > 0) || math.IsInf(float64(l.Times), 0):
			return fmt.Errorf("%w: people looked for query %d at item %d %g times; want above 0, and finite", ErrData, q, l.Item, l.Times)
		}
	}
	return nil
}

// checkSeen returns ErrData if the seen items of query q are not valid.
func (d Data) checkSeen(q int) error {
	for i, x := range d.Seen[q] {
		_, chosen := slices.BinarySearch(d.Relevant[q], x)
		switch {
		case x < 0 || int(x) >= d.Items.Rows:
			return fmt.Errorf("%w: query %d has seen item row %d; the collection has rows 0 to %d", ErrData, q, x, d.Items.Rows-1)
		case i > 0 && x <= d.Seen[q][i-1]:
			return fmt.Errorf("%w: the seen items of query %d are not ascending and distinct: %d comes after %d", ErrData, q, x, d.Seen[q][i-1])
		case chosen:
			return fmt.Errorf("%w: item %d was chosen for query %d and seen before it; leave one of them out", ErrData, x, q)
		}
	}
	return nil
}
