package eval

import "slices"

// Pairs are logged pairs: which items are relevant to which query.
type Pairs struct {
	relevant   [][]int32 // by query row: item rows, ascending
	duplicates int
}

// NewPairs makes pairs of the item rows that are relevant to each query row. It
// keeps and sorts the slices.
func NewPairs(relevant [][]int32) *Pairs {
	p := &Pairs{relevant: relevant}
	p.sort()
	return p
}

func (p *Pairs) sort() {
	for q, items := range p.relevant {
		slices.Sort(items)
		distinct := slices.Compact(items)
		p.duplicates += len(items) - len(distinct)
		p.relevant[q] = distinct
	}
}

// Relevant returns the item rows that are relevant to a query row, ascending.
func (p *Pairs) Relevant(query int) []int32 { return p.relevant[query] }

// Choose returns every nth query row that has pairs, from row 0 on, and counts
// the rest. A file ordered by answer needs this: its first rows are of one kind.
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
