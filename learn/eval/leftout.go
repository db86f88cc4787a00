package eval

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// leaveOut removes what a model gains nothing by from the evaluation of the query rows, and counts it: queries
// that the fit learned from, if only new ones count, and copies of queries among the items. It returns the rows that are left.
func (in *Input) leaveOut(rows []int, counts *Counts) ([]int, error) {
	if in.NewOnly && in.SeenBefore != nil {
		rows = slices.DeleteFunc(rows, func(q int) bool {
			if in.SeenBefore[q] {
				counts.SeenBefore++
				counts.Pairs -= len(in.Pairs.relevant[q])
			}
			return in.SeenBefore[q]
		})
		in.SeenBefore = nil
		if counts.Queries = len(rows); len(rows) == 0 {
			return nil, fmt.Errorf("%w: the fit learned from all %d queries; judge by other ones, or count repeated queries too (--by-traffic)", ErrInput, counts.SeenBefore)
		}
	}
	if in.Queries.Cols == in.Items.Cols {
		in.leaveOutCopies(rows, counts)
	}
	return rows, nil
}

// leaveOutCopies leaves the copies of a query out of its ranking: the items with the query's own vector, as where
// the items are questions. Cosine ranks a copy first, so that a model would gain by any noise. A query that chose its
// copies alone keeps them; where it chose others too, the copies count no more as right answers.
func (in *Input) leaveOutCopies(rows []int, counts *Counts) {
	index := newCopyIndex(in.Items)
	pairs := &Pairs{relevant: slices.Clone(in.Pairs.relevant), weights: slices.Clone(in.Pairs.weights), duplicates: in.Pairs.duplicates}
	seen := make([][]int32, in.Queries.Rows)
	copy(seen, in.Seen)
	for _, q := range rows {
		copies := index.find(in.Queries.Row(q))
		isCopy := func(x int32) bool { return slices.Contains(copies, x) }
		chosen := pairs.relevant[q]
		if !slices.ContainsFunc(chosen, func(x int32) bool { return !isCopy(x) }) {
			copies = slices.DeleteFunc(copies, func(x int32) bool { return slices.Contains(chosen, x) })
		}
		if len(copies) == 0 {
			continue
		}
		counts.Copies++
		counts.Pairs -= pairs.remove(q, isCopy)
		seen[q] = slices.Concat(seen[q], copies)
		slices.Sort(seen[q])
		seen[q] = slices.Compact(seen[q])
	}
	if counts.Copies > 0 {
		in.Pairs, in.Seen = pairs, seen
	}
}

// describeLeftOut says which queries count less, or not at all, in sentences.
func (c Counts) describeLeftOut() (text []string) {
	if c.Copies > 0 {
		text = append(text, fmt.Sprintf("Of %d queries the own vector is an item too, which their rankings leave out.", c.Copies))
	}
	if c.SeenBefore > 0 {
		text = append(text, fmt.Sprintf("%d queries are left out, because the fit learned from them.", c.SeenBefore))
	}
	return text
}

// copyIndex finds items by their direction. It orders them by their place on one random line, where items of nearly the
// same direction are neighbours.
type copyIndex struct {
	items  rerank.Matrix
	line   []float32 // of norm 1
	rows   []int32
	places []float64 // of rows, ascending
}

// Two vectors are copies if their cosine is above leastCopyCosine: rounding to float16 keeps them so. Unit vectors of this
// cosine are copyDistance apart, and so are their places on a line at most.
const (
	leastCopyCosine = 1 - 1e-6
	copyDistance    = 1.5e-3
)

// newCopyIndex makes an index of the items of finite directions.
func newCopyIndex(items rerank.Matrix) *copyIndex {
	x := &copyIndex{items: items, line: make([]float32, items.Cols)}
	rng := rand.New(rand.NewPCG(1, 0xc0b7))
	for i := range x.line {
		x.line[i] = float32(rng.NormFloat64())
	}
	rerank.Normalise(x.line)
	places := make([]float64, items.Rows)
	for row := range items.Rows {
		places[row] = x.place(items.Row(row))
		if places[row] == places[row] { // no NaN
			x.rows = append(x.rows, int32(row))
		}
	}
	slices.SortFunc(x.rows, func(a, b int32) int { return cmp.Compare(places[a], places[b]) })
	x.places = make([]float64, len(x.rows))
	for i, row := range x.rows {
		x.places[i] = places[row]
	}
	return x
}

// place returns where the direction of a vector is on the line, NaN for a vector without direction.
func (x *copyIndex) place(v []float32) float64 { return kernel.DotWide(x.line, v) / rerank.Norm(v) }

// find returns the rows of the items that have the direction of a query, up to rounding.
func (x *copyIndex) find(query []float32) []int32 {
	at := x.place(query)
	from, _ := slices.BinarySearch(x.places, at-copyDistance)
	var found []int32
	for i := from; i < len(x.places) && x.places[i] <= at+copyDistance; i++ {
		if item := x.items.Row(int(x.rows[i])); kernel.DotWide(query, item) > leastCopyCosine*rerank.Norm(query)*rerank.Norm(item) {
			found = append(found, x.rows[i])
		}
	}
	return found
}
