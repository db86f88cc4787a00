package eval

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Metrics holds means over queries by name: "recall@10", "hit_rate@10", "mrr@10",
// "map@10", "ndcg@10", "p@10".
type Metrics map[string]float64

// Ranking holds the rows of one query's answer, best first.
type Ranking []rerank.Scored

// metricNames lists the metrics of a report in reading order.
func metricNames(k int) []string {
	var names []string
	for _, metric := range []string{"mrr", "map", "ndcg", "recall", "hit_rate", "p"} {
		for _, c := range Cutoffs(k) {
			names = append(names, fmt.Sprintf("%s@%d", metric, c))
		}
	}
	return names
}

// Cutoffs returns the values of k at which metrics are taken: k itself, and 1, 5 and
// 10 if they are less.
func Cutoffs(k int) []int {
	cutoffs := slices.DeleteFunc([]int{1, 5, 10}, func(c int) bool { return c >= k })
	return append(cutoffs, k)
}

// Measure computes the metrics of rankings against logged pairs. rankings[i] answers
// query row queries[i], and Scored.Index is an item's row. In the formulas, rel is the
// set of relevant items, top the set of the first k rows, and w the weight of a pair
// (1 without weights):
//
//	recall@k    Σ w of top ∩ rel / Σ w of rel
//	hit_rate@k  1 if top ∩ rel is not empty, else 0
//	mrr@k       1 / the rank of the first relevant row of top, or 0 without such a row
//	map@k       the sum of p@rank over the ranks of top ∩ rel, divided by min(|rel|, k)
//	ndcg@k      Σ w / log2(1 + rank) over top ∩ rel, divided by its greatest possible value
//	p@k         |top ∩ rel| / k
func Measure(rankings []Ranking, queries []int, pairs *Pairs, k int) Metrics {
	m := Metrics{}
	if len(queries) == 0 {
		return m
	}
	for name, values := range measureQueries(rankings, queries, pairs, k) {
		m[name] = meanOf(values)
	}
	return m
}

func meanOf(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}

// measureQueries returns each metric of each query.
func measureQueries(rankings []Ranking, queries []int, pairs *Pairs, k int) map[string][]float64 {
	values := map[string][]float64{}
	for _, name := range metricNames(k) {
		values[name] = make([]float64, len(queries))
	}
	for i, q := range queries {
		ideal := pairs.idealGains(q, k)
		for _, c := range Cutoffs(k) {
			found := countRelevant(rankings[i], pairs, q, c)
			for name, v := range map[string]float64{
				"recall": found.weight / pairs.totalWeight(q), "p": float64(found.rows) / float64(c),
				"map":  found.precisions / float64(min(c, len(pairs.relevant[q]))),
				"ndcg": found.gain / ideal[min(c, len(ideal))-1],
			} {
				values[fmt.Sprintf("%s@%d", name, c)][i] = v
			}
			if found.rows > 0 {
				values[fmt.Sprintf("hit_rate@%d", c)][i] = 1
				values[fmt.Sprintf("mrr@%d", c)][i] = 1 / float64(found.first)
			}
		}
	}
	return values
}

// relevantFound summarises the relevant items among the first rows of a ranking.
type relevantFound struct {
	rows, first  int // first is the rank, from 1, of the first relevant item
	weight, gain float64
	precisions   float64 // the sum of the precisions at their ranks
}

func countRelevant(top Ranking, pairs *Pairs, query, k int) relevantFound {
	var f relevantFound
	for rank, row := range top[:min(k, len(top))] {
		at, ok := slices.BinarySearch(pairs.relevant[query], int32(row.Index))
		if !ok {
			continue
		}
		if f.rows == 0 {
			f.first = rank + 1
		}
		w := pairs.weightOf(query, at)
		f.rows++
		f.precisions += float64(f.rows) / float64(rank+1)
		f.weight += w
		f.gain += w / math.Log2(float64(rank)+2)
	}
	return f
}

// overlapShare returns the share of want's first k rows that got's first k rows contain.
func overlapShare(got, want Ranking, k int) float64 {
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

// MeanOverlap returns the recall of approximate rankings: the share of the first k
// rows of want[i] that the first k rows of got[i] contain, as a mean over queries.
func MeanOverlap(got, want []Ranking, k int) float64 {
	var sum float64
	for i := range want {
		sum += overlapShare(got[i], want[i], k)
	}
	return sum / float64(max(1, len(want)))
}

// Percentile returns the p-quantile of the durations in milliseconds, by the nearest
// rank. It returns 0 for no durations.
func Percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Millisecond)
}
