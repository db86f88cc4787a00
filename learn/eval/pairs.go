package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Pairs says which items are relevant to which query, according to a log.
type Pairs struct {
	relevant   [][]int32   // ascending item rows for each query row
	weights    [][]float32 // weights of the pairs in relevant; nil: all 1
	duplicates int
}

// NewPairs makes pairs from the rows of the items that are relevant to each query row.
// It keeps the slices and sorts them.
func NewPairs(relevant [][]int32) *Pairs {
	p := &Pairs{relevant: relevant}
	p.sortItems()
	return p
}

// NewWeightedPairs makes pairs where weights[q][i] is the weight of (q,
// relevant[q][i]). If weights is nil, every weight is 1. The item rows must ascend. It
// returns ErrInput if the weights do not match the pairs, or are not above 0 and
// finite.
func NewWeightedPairs(relevant [][]int32, weights [][]float32) (*Pairs, error) {
	if weights == nil {
		return NewPairs(relevant), nil
	}
	if len(weights) != len(relevant) {
		return nil, fmt.Errorf("%w: weights of %d queries for pairs of %d", ErrInput, len(weights), len(relevant))
	}
	for q, items := range relevant {
		if len(weights[q]) != len(items) {
			return nil, fmt.Errorf("%w: query %d has %d weights for %d pairs", ErrInput, q, len(weights[q]), len(items))
		}
		for i, w := range weights[q] {
			if !(w > 0) || math.IsInf(float64(w), 0) || i > 0 && items[i] <= items[i-1] {
				return nil, fmt.Errorf("%w: query %d, pair %d: weight %v of item %d; weights are above 0, items ascend", ErrInput, q, i, w, items[i])
			}
		}
	}
	return &Pairs{relevant: relevant, weights: weights}, nil
}

func (p *Pairs) sortItems() {
	for q, items := range p.relevant {
		slices.Sort(items)
		distinct := slices.Compact(items)
		p.duplicates += len(items) - len(distinct)
		p.relevant[q] = distinct
	}
}

// Relevant returns the item rows that are relevant to a query row, ascending.
func (p *Pairs) Relevant(query int) []int32 { return p.relevant[query] }

// weightOf returns the weight of a query's pair at the given index.
func (p *Pairs) weightOf(query, at int) float64 {
	if p.weights == nil {
		return 1
	}
	return float64(p.weights[query][at])
}

func (p *Pairs) totalWeight(query int) float64 {
	var sum float64
	for at := range p.relevant[query] {
		sum += p.weightOf(query, at)
	}
	return sum
}

// idealGains returns the greatest possible gain of the first 1, 2, … k rows of a query's
// ranking.
func (p *Pairs) idealGains(query, k int) []float64 {
	weights := make([]float64, len(p.relevant[query]))
	for at := range weights {
		weights[at] = p.weightOf(query, at)
	}
	slices.SortFunc(weights, func(a, b float64) int { return cmp.Compare(b, a) })
	gains := make([]float64, min(k, len(weights)))
	var sum float64
	for rank := range gains {
		sum += weights[rank] / math.Log2(float64(rank)+2)
		gains[rank] = sum
	}
	return gains
}

// remove removes the pairs of a query with the items for which is returns true, unless they are all that the query
// has. It returns how many it removed, and changes no slice that the caller of NewPairs gave.
func (p *Pairs) remove(query int, is func(item int32) bool) int {
	var items []int32
	var weights []float32
	for at, x := range p.relevant[query] {
		if is(x) {
			continue
		}
		items = append(items, x)
		if p.weights != nil {
			weights = append(weights, p.weights[query][at])
		}
	}
	removed := len(p.relevant[query]) - len(items)
	if len(items) == 0 {
		return 0
	}
	if p.relevant[query] = items; p.weights != nil {
		p.weights[query] = weights
	}
	return removed
}

// Choose takes the query rows 0, every, 2·every, …, returns the rows with pairs, and counts
// the others. Rows at even distances sample a file evenly that is sorted by answer.
func (p *Pairs) Choose(every int) (queries []int, counts Counts) {
	counts = Counts{DuplicatePairs: p.duplicates}
	for q, items := range p.relevant {
		switch {
		case q%max(every, 1) != 0:
			counts.QueriesSkipped++
		case len(items) == 0:
			counts.QueriesWithoutPairs++
		default:
			queries = append(queries, q)
			counts.Pairs += len(items)
		}
	}
	counts.Queries = len(queries)
	return queries, counts
}
