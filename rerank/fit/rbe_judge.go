package fit

import (
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// HitRate is the share of the T items of the highest true scores that are among
// the P of the highest approximate ones, in the mean over the held-out queries
// (RBE, section 4), with a 95 % interval (normal, of the mean).
type HitRate struct {
	P    int     `json:"p"`
	T    int     `json:"t"`
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// HitPair asks for HitRate(P, T).
type HitPair struct{ P, T int }

// hitRates compares approximate with true scores, both queries by items.
func hitRates(approximate, truth rerank.Matrix, pairs []HitPair) []HitRate {
	rates := make([]HitRate, len(pairs))
	for i, pair := range pairs {
		hits := make([]int, truth.Rows)
		spread(truth.Rows, 8, func(from, to int) {
			for q := from; q < to; q++ {
				hits[q] = hit(approximate.Row(q), truth.Row(q), pair)
			}
		})
		rates[i] = rateOf(pair, hits, max(1, min(pair.T, truth.Cols)))
	}
	return rates
}

// hit is how many of the best are found for one query.
func hit(approximate, truth []float32, pair HitPair) int {
	p, t := min(pair.P, len(truth)), min(pair.T, len(truth))
	best := highestRows(truth, t)
	n := 0
	for _, x := range highestRows(approximate, p) {
		if slices.Contains(best, x) {
			n++
		}
	}
	return n
}

// highestRows are the rows of the n highest scores, of equal ones the first.
func highestRows(scores []float32, n int) []int {
	top := rerank.NewTopK(n)
	for x, v := range scores {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(x)), Score: v, Index: x})
	}
	var rows []int
	for _, s := range top.Sorted() {
		rows = append(rows, s.Index)
	}
	return rows
}

// rateOf is the rate of queries that found so many of best items each. The mean is of
// whole numbers: as many hits are the same rate, whichever queries they are of, and
// rounds of a training that are as good compare as equal.
func rateOf(pair HitPair, hits []int, best int) HitRate {
	total := 0
	for _, n := range hits {
		total += n
	}
	r := HitRate{P: pair.P, T: pair.T, Mean: float64(total) / float64(max(1, len(hits)*best))}
	var square float64
	for _, n := range hits {
		d := float64(n)/float64(best) - r.Mean
		square += d * d
	}
	n := float64(max(2, len(hits)))
	half := 1.96 * math.Sqrt(square/(n-1)/n)
	r.Low, r.High = max(0, r.Mean-half), min(1, r.Mean+half)
	return r
}

// errorOf is √(mean (R̃ − R)²).
func errorOf(approximate, truth rerank.Matrix) float64 {
	var square float64
	for i, v := range truth.Data {
		d := float64(approximate.Data[i]) - float64(v)
		square += d * d
	}
	return math.Sqrt(square / float64(max(1, len(truth.Data))))
}
