package eval

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Metrics are means over queries by name: "recall@10", "hit_rate@10", "mrr@10",
// "ndcg@10", "p@10".
type Metrics map[string]float64

// Ranking is the rows of one query's answer, best first.
type Ranking []rerank.Scored

// MetricNames are the metrics of a report in the order in which people read them.
func MetricNames(k int) []string {
	var names []string
	for _, metric := range []string{"mrr", "ndcg", "recall", "hit_rate", "p"} {
		for _, c := range Cutoffs(k) {
			names = append(names, fmt.Sprintf("%s@%d", metric, c))
		}
	}
	return names
}

// Cutoffs returns the k at which metrics are taken: 1, 5, 10 and k itself, as far as k goes.
func Cutoffs(k int) []int {
	cutoffs := slices.DeleteFunc([]int{1, 5, 10}, func(c int) bool { return c >= k })
	return append(cutoffs, k)
}

// Measure compares the rankings of queries with their pairs; rankings[i] answers
// the query row queries[i], and Scored.Index is an item's row. With rel the
// relevant items, top the first k rows, w a pair's weight (1 if there are none):
//
//	recall@k    Σ w of top ∩ rel / Σ w of rel
//	hit_rate@k  1 if top ∩ rel is not empty
//	mrr@k       1 / the rank of the first relevant row of top, 0 if there is none
//	ndcg@k      Σ w / log2(1 + rank) over top ∩ rel, over the most that it could be
//	p@k         |top ∩ rel| / k
func Measure(rankings []Ranking, queries []int, pairs *Pairs, k int) Metrics {
	m := Metrics{}
	if len(queries) == 0 {
		return m
	}
	for name, values := range measure(rankings, queries, pairs, k) {
		m[name] = mean(values)
	}
	return m
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}

// measure returns each metric of each query.
func measure(rankings []Ranking, queries []int, pairs *Pairs, k int) map[string][]float64 {
	values := map[string][]float64{}
	for _, name := range MetricNames(k) {
		values[name] = make([]float64, len(queries))
	}
	for i, q := range queries {
		ideal := pairs.ideal(q, k)
		for _, c := range Cutoffs(k) {
			found := count(rankings[i], pairs, q, c)
			for name, v := range map[string]float64{
				"recall": found.weight / pairs.total(q), "p": float64(found.rows) / float64(c),
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

// found is what the first rows of a ranking hold of the relevant items.
type found struct {
	rows, first  int // first is the rank of the first one, from 1
	weight, gain float64
}

func count(top Ranking, pairs *Pairs, query, k int) found {
	var f found
	for rank, row := range top[:min(k, len(top))] {
		at, ok := slices.BinarySearch(pairs.relevant[query], int32(row.Index))
		if !ok {
			continue
		}
		if f.rows == 0 {
			f.first = rank + 1
		}
		w := pairs.weight(query, at)
		f.rows++
		f.weight += w
		f.gain += w / math.Log2(float64(rank)+2)
	}
	return f
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
