package rerank

import (
	"errors"
	"fmt"
	"slices"
)

// ErrItems: Score cannot read the items. The caller made a mistake, never the client.
var ErrItems = errors.New("items do not fit the similarity")

// Slice returns the items [from, to), with the same feature rows.
func (it Items) Slice(from, to int) Items {
	switch {
	case it.Starts != nil:
		it.Starts = it.Starts[from : to+1]
	case it.Rows != nil:
		it.Rows = it.Rows[from:to]
	case it.Packed == nil:
		it.Features = it.Features.Slice(from, to)
	default:
		it.Rows = make([]int32, to-from)
		for i := range it.Rows {
			it.Rows[i] = int32(from + i)
		}
	}
	return it
}

// Check verifies that items fit the spec and a slice of n scores: n equals Len, feature
// rows have Spec.Features numbers, and all row numbers and Starts exist. It returns
// ErrItems.
func (it Items) Check(n int, s Spec) error {
	switch {
	case it.Starts != nil && !s.GroupedRows:
		return fmt.Errorf("%w: the kind %s scores single rows, want no Starts", ErrItems, s.Kind)
	case n != it.Len():
		return fmt.Errorf("%w: %d places for the scores of %d items", ErrItems, n, it.Len())
	case it.cols() != s.Features && it.Len() > 0:
		return fmt.Errorf("%w: feature rows have %d numbers, want %d", ErrItems, it.cols(), s.Features)
	case it.Packed == nil && len(it.Features.Data) < it.Features.Rows*it.Features.Cols:
		return fmt.Errorf("%w: %d numbers are less than %d rows of %d", ErrItems, len(it.Features.Data), it.Features.Rows, it.Features.Cols)
	}
	if it.Packed != nil {
		if err := it.Packed.check(); err != nil {
			return err
		}
	}
	rows := it.FeatureRows()
	for i, r := range it.Rows {
		if r < 0 || int(r) >= rows {
			return fmt.Errorf("%w: row %d is number %d of %d", ErrItems, i, r, rows)
		}
	}
	return it.checkStarts()
}

// cols is the length of a feature row.
func (it Items) cols() int {
	if it.Packed != nil {
		return it.Packed.Cols
	}
	return it.Features.Cols
}

func (it Items) checkStarts() error {
	if it.Starts == nil {
		return nil
	}
	rows := it.FeatureRows()
	if it.Rows != nil {
		rows = len(it.Rows)
	}
	if len(it.Starts) == 0 || it.Starts[0] < 0 || int(it.Starts[len(it.Starts)-1]) > rows {
		return fmt.Errorf("%w: Starts do not lie in %d rows", ErrItems, rows)
	}
	for i := 1; i < len(it.Starts); i++ {
		if it.Starts[i] < it.Starts[i-1] {
			return fmt.Errorf("%w: Starts[%d] is %d, less than the one before", ErrItems, i, it.Starts[i])
		}
	}
	return nil
}

// CheckStarts verifies that starts divide a number of rows among items, or queries, of which each has a
// row at least. It returns ErrItems.
func CheckStarts(starts []int32, rows int) error {
	n := len(starts) - 1
	if n < 0 || starts[0] != 0 || int(starts[n]) != rows {
		return fmt.Errorf("%w: the vectors of %d do not begin at row 0 and end with the last of %d rows", ErrItems, max(n, 0), rows)
	}
	for i := range n {
		if starts[i] >= starts[i+1] {
			return fmt.Errorf("%w: number %d has no vector", ErrItems, i)
		}
	}
	return nil
}

// CheckEncode verifies that the matrices for EncodeItems fit the spec. It returns ErrItems.
func (s Spec) CheckEncode(dst, base Matrix) error {
	switch {
	case dst.Rows != base.Rows:
		return fmt.Errorf("%w: %d feature rows for %d base vectors", ErrItems, dst.Rows, base.Rows)
	case dst.Cols != s.Features && dst.Rows > 0:
		return fmt.Errorf("%w: feature rows have %d numbers, want %d", ErrItems, dst.Cols, s.Features)
	case base.Cols != s.ItemDim && base.Rows > 0:
		return fmt.Errorf("%w: base vectors have dimension %d, want %d", ErrItems, base.Cols, s.ItemDim)
	}
	return nil
}

// CheckQuery verifies a query: the vector must have Spec.QueryDim finite elements, must not
// be zero if it will be normalised, and the user id must be present if the model needs one.
// The same holds for Query.Vectors, where the kind takes several. It returns ErrQuery.
func (s Spec) CheckQuery(q Query) error {
	if q.Vectors.Rows > 0 {
		return s.checkVectors(q)
	}
	if len(q.Vector) != s.QueryDim {
		return fmt.Errorf("%w: query.vector has %d elements and the model takes %d", ErrQuery, len(q.Vector), s.QueryDim)
	}
	if s.UserIDs && !q.HasUserID {
		return fmt.Errorf("%w: user_id is missing; this model embeds users, so every query must name one", ErrQuery)
	}
	if err := CheckFinite("query.vector", q.Vector); err != nil || !s.Normalise {
		return err
	}
	if !slices.ContainsFunc(q.Vector, func(x float32) bool { return x != 0 }) {
		return fmt.Errorf("%w: query.vector is zero in all of its %d elements, and the model divides it by its norm; "+
			"give a vector that has a direction", ErrQuery, len(q.Vector))
	}
	return nil
}

// checkVectors verifies the vectors of a query that has several. Zero vectors among others are
// accepted: they add nothing to a score.
func (s Spec) checkVectors(q Query) error {
	switch m := q.Vectors; {
	case !s.ManyVectors:
		return fmt.Errorf("%w: query.vectors has %d vectors and a model of kind %s takes one; give it as query.vector", ErrQuery, m.Rows, s.Kind)
	case len(q.Vector) > 0:
		return fmt.Errorf("%w: query.vector and query.vectors are given; give one of them", ErrQuery)
	case m.Rows > MaxQueryVectors:
		return fmt.Errorf("%w: query.vectors has %d vectors, at most %d; leave out the least important", ErrQuery, m.Rows, MaxQueryVectors)
	case m.Cols != s.QueryDim || len(m.Data) != m.Rows*m.Cols:
		return fmt.Errorf("%w: query.vectors has vectors of %d elements and the model takes %d", ErrQuery, m.Cols, s.QueryDim)
	}
	for i := range q.Vectors.Rows {
		if err := CheckFinite(fmt.Sprintf("query.vectors[%d]", i), q.Vectors.Row(i)); err != nil {
			return err
		}
	}
	if s.Normalise && !slices.ContainsFunc(q.Vectors.Data, func(x float32) bool { return x != 0 }) {
		return fmt.Errorf("%w: all %d of query.vectors are zero, and the model divides them by their norms; "+
			"give one that has a direction", ErrQuery, q.Vectors.Rows)
	}
	return nil
}
