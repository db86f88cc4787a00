package rbe

import (
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// HitRate is the share of the T items with the highest true scores that are among the
// P items with the highest approximate scores (RBE, section 4): the mean over the
// held-out queries, and a 95 % interval of the mean (normal).
type HitRate struct {
	P    int     `json:"p"`
	T    int     `json:"t"`
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// HitPair selects HitRate(P, T).
type HitPair struct{ P, T int }

// hitRates compares approximate with true scores, both queries by items.
func hitRates(approximate, truth rerank.Matrix, pairs []HitPair) []HitRate {
	rates := make([]HitRate, len(pairs))
	for i, pair := range pairs {
		hits := make([]int, truth.Rows)
		linalg.Parallel(truth.Rows, 8, func(from, to int) {
			for q := from; q < to; q++ {
				hits[q] = countHits(approximate.Row(q), truth.Row(q), pair)
			}
		})
		rates[i] = newHitRate(pair, hits, max(1, min(pair.T, truth.Cols)))
	}
	return rates
}

// countHits returns how many of the T best items of a query are found among the P.
func countHits(approximate, truth []float32, pair HitPair) int {
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

// highestRows returns the rows of the n highest scores, the first among equal ones.
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

// newHitRate makes the hit rate of queries with the given numbers of hits, each out of best items.
// It sums integers, so that equal numbers of hits give equal rates in any order, and equally good
// training rounds compare as equal.
func newHitRate(pair HitPair, hits []int, best int) HitRate {
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

// rootMeanSquareError returns √(mean (R̃ − R)²).
func rootMeanSquareError(approximate, truth rerank.Matrix) float64 {
	var square float64
	for i, v := range truth.Data {
		d := float64(approximate.Data[i]) - float64(v)
		square += d * d
	}
	return math.Sqrt(square / float64(max(1, len(truth.Data))))
}
