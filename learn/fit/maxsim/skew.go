package maxsim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// Skew says whether a log has what behavioural vectors live on (MVG, figure 1): items that
// many queries choose, and choose for different reasons.
type Skew struct {
	// QueriesPerItem is the mean number of queries of a logged item.
	QueriesPerItem float64 `json:"queries_per_item"`
	// HeadShare is the share of the pairs that the tenth of the logged items with the most
	// queries has. It is 0.1 where all items are equally popular.
	HeadShare float64 `json:"head_share"`
	// HeadDiversity and TailDiversity are the mean diversities of the queries of an item, for
	// items that have the most and the fewest queries, a third of the pairs each: the geometric
	// mean of the sides of the box around the queries' unit vectors.
	HeadDiversity float64 `json:"head_diversity"`
	TailDiversity float64 `json:"tail_diversity"`
	// Reachable is the share of the held-out pairs whose item another query chose before. No
	// other new query can gain.
	Reachable float64 `json:"reachable"`
}

const (
	// leastReachable and leastRepeats are the shares below which vectors cannot pay.
	leastReachable, leastRepeats = 0.5, 0.1
	// flatQueries is the number of queries of an item below which popularity is flat.
	flatQueries = 3
	// leastSide stands for a side of length 0, as of a coordinate that never varies.
	leastSide = 1e-6
	// Figures of diversity rest on a sample.
	sampledItems, sampledQueries = 100, 100
)

// measureSkew looks at the pairs that the trials learn from, and at the held-out queries.
func (f *fitter) measureSkew(pairs itemPairs) Skew {
	var s Skew
	var items []int
	total := len(pairs.queries)
	for x, n := range pairs.counts() {
		if n > 0 {
			items = append(items, x)
		}
	}
	if total == 0 {
		return s
	}
	count := func(x int) int { return pairs.starts[x+1] - pairs.starts[x] }
	slices.SortStableFunc(items, func(a, b int) int { return cmp.Compare(count(b), count(a)) })
	s.QueriesPerItem = float64(total) / float64(len(items))
	sum, head, tail := 0, 0, len(items)
	for i, x := range items {
		sum += count(x)
		if i+1 == (len(items)+9)/10 {
			s.HeadShare = float64(sum) / float64(total)
		}
		if 3*sum <= total || i == 0 {
			head = i + 1
		}
		if 3*sum <= 2*total {
			tail = i + 1
		}
	}
	s.HeadDiversity, s.TailDiversity = f.meanDiversity(pairs, items[:head]), f.meanDiversity(pairs, items[min(tail, len(items)-1):])
	heldOut, reached := 0, 0
	for _, q := range f.split.HeldOut {
		for _, x := range f.log.Relevant[q] {
			heldOut++
			if count(int(x)) > 0 {
				reached++
			}
		}
	}
	s.Reachable = float64(reached) / float64(max(1, heldOut))
	return s
}

// meanDiversity returns the mean diversity of the queries of some of the items.
func (f *fitter) meanDiversity(pairs itemPairs, items []int) float64 {
	var sum float64
	step := max(1, len(items)/sampledItems)
	n := 0
	for i := 0; i < len(items); i += step {
		queries, _ := pairs.of(items[i])
		sum += boxDiversity(f.log.Queries, queries[:min(len(queries), sampledQueries)])
		n++
	}
	return sum / float64(max(1, n))
}

// boxDiversity returns the geometric mean of the sides of the smallest box that holds the
// unit vectors of the queries.
func boxDiversity(vectors rerank.Matrix, queries []int32) float64 {
	low, high := make([]float32, vectors.Cols), make([]float32, vectors.Cols)
	row := make([]float32, vectors.Cols)
	for i, q := range queries {
		copy(row, vectors.Row(int(q)))
		rerank.Normalise(row)
		for k, v := range row {
			if i == 0 {
				low[k], high[k] = v, v
			}
			low[k], high[k] = min(low[k], v), max(high[k], v)
		}
	}
	var logs float64
	for k := range low {
		logs += math.Log(max(leastSide, float64(high[k]-low[k])))
	}
	return math.Exp(logs / float64(len(low)))
}

// doubt says why behavioural vectors will not pay, or nothing.
func (s Skew) doubt(repeats float64) string {
	switch {
	case repeats >= leastRepeats:
		return ""
	case s.Reachable < leastReachable:
		return fmt.Sprintf("behavioural vectors will not pay: only %.0f %% of the held-out pairs name an item that another query chose, and %.0f %% of the traffic repeats",
			100*s.Reachable, 100*repeats)
	case s.QueriesPerItem < flatQueries:
		return fmt.Sprintf("behavioural vectors will hardly pay: an item has %.1f queries in the mean, the most popular tenth %.0f %% of the pairs, and %.0f %% of the traffic repeats",
			s.QueriesPerItem, 100*s.HeadShare, 100*repeats)
	}
	return ""
}
