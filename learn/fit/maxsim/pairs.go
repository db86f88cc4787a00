package maxsim

import "github.com/likenessdb/likeness/learn/fit/samples"

// itemPairs lists pairs in the order of their items: the queries of item x are
// queries[starts[x]:starts[x+1]], ascending.
type itemPairs struct {
	starts  []int
	queries []int32
	weights []float32 // of the pairs; if nil, every weight is 1
}

// groupByItem sorts the pairs of the queries by item, in two passes over them and
// without a second copy.
func groupByItem(l *samples.Log, queries []int32) itemPairs {
	items := l.Items.Rows
	p := itemPairs{starts: make([]int, items+1)}
	for _, q := range queries {
		for _, x := range l.Relevant[q] {
			p.starts[x+1]++
		}
	}
	for x := range items {
		p.starts[x+1] += p.starts[x]
	}
	p.queries = make([]int32, p.starts[items])
	if l.Weights != nil {
		p.weights = make([]float32, len(p.queries))
	}
	for _, q := range queries {
		for i, x := range l.Relevant[q] {
			at := p.starts[x]
			p.queries[at] = q
			if p.weights != nil {
				p.weights[at] = l.Weights[q][i]
			}
			p.starts[x]++
		}
	}
	copy(p.starts[1:], p.starts) // the loop moved each start to the item's end, where the next item begins
	p.starts[0] = 0
	return p
}

// counts returns the number of pairs of each item.
func (p itemPairs) counts() []int {
	counts := make([]int, len(p.starts)-1)
	for x := range counts {
		counts[x] = p.starts[x+1] - p.starts[x]
	}
	return counts
}

// traffic returns the sum of the weights of the pairs of each item.
func (p itemPairs) traffic() []float64 {
	traffic := make([]float64, len(p.starts)-1)
	for x := range traffic {
		queries, weights := p.of(x)
		traffic[x] = float64(len(queries))
		if weights != nil {
			traffic[x] = 0
			for _, w := range weights {
				traffic[x] += float64(w)
			}
		}
	}
	return traffic
}

// of returns the queries of an item and the weights of the pairs.
func (p itemPairs) of(item int) (queries []int32, weights []float32) {
	from, to := p.starts[item], p.starts[item+1]
	if p.weights != nil {
		weights = p.weights[from:to]
	}
	return p.queries[from:to], weights
}
