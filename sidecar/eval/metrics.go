package eval

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Metrics are means over queries by name: "recall@10", "hit_rate@10", "mrr@10", "p@10".
type Metrics map[string]float64

// Ranking is the rows of one query's answer, best first.
type Ranking []rerank.Scored

// Cutoffs returns the k at which metrics are taken: 1, 5, 10 and k itself, as far as k goes.
func Cutoffs(k int) []int {
	cutoffs := slices.DeleteFunc([]int{1, 5, 10}, func(c int) bool { return c >= k })
	return append(cutoffs, k)
}

// Measure compares the rankings of queries with their pairs; rankings[i] answers
// the query row queries[i], and Scored.Index is an item's row. With rel the
// relevant items, top the first k rows:
//
//	recall@k    |top ∩ rel| / |rel|
//	hit_rate@k  1 if top ∩ rel is not empty
//	mrr@k       1 / the rank of the first relevant row of top, 0 if there is none
//	p@k         |top ∩ rel| / k
func Measure(rankings []Ranking, queries []int, pairs *Pairs, k int) Metrics {
	m := Metrics{}
	if len(queries) == 0 {
		return m
	}
	n := float64(len(queries))
	for _, c := range Cutoffs(k) {
		var recall, hit, mrr, precision float64
		for i, q := range queries {
			rel := pairs.Relevant(q)
			found, first := count(rankings[i], rel, c)
			recall += float64(found) / float64(len(rel))
			precision += float64(found) / float64(c)
			if found > 0 {
				hit++
				mrr += 1 / float64(first)
			}
		}
		m[fmt.Sprintf("recall@%d", c)] = recall / n
		m[fmt.Sprintf("hit_rate@%d", c)] = hit / n
		m[fmt.Sprintf("mrr@%d", c)] = mrr / n
		m[fmt.Sprintf("p@%d", c)] = precision / n
	}
	return m
}

// count returns the relevant rows in the first k, and the rank of the first one.
func count(top Ranking, relevant []int32, k int) (found, first int) {
	for rank, row := range top[:min(k, len(top))] {
		if _, ok := slices.BinarySearch(relevant, int32(row.Index)); !ok {
			continue
		}
		if found == 0 {
			first = rank + 1
		}
		found++
	}
	return found, first
}

// overlap is the share of want's first k rows that are among got's.
func overlap(got, want Ranking, k int) float64 {
	want = want[:min(k, len(want))]
	if len(want) == 0 {
		return 1
	}
	have := make(map[rerank.ID]bool, len(got))
	for _, row := range got[:min(k, len(got))] {
		have[row.ID] = true
	}
	found := 0
	for _, row := range want {
		if have[row.ID] {
			found++
		}
	}
	return float64(found) / float64(len(want))
}

// MeanOverlap is the mean, over queries, of the share of the first k rows of
// want[i] that are among those of got[i]: the recall of an approximate ranking.
func MeanOverlap(got, want []Ranking, k int) float64 {
	var sum float64
	for i := range want {
		sum += overlap(got[i], want[i], k)
	}
	return sum / float64(max(1, len(want)))
}

// Percentile returns the p-quantile of the durations in milliseconds, by the
// nearest rank; 0 if there are none.
func Percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Millisecond)
}
