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
		shares := make([]float64, truth.Rows)
		spread(truth.Rows, 8, func(from, to int) {
			for q := from; q < to; q++ {
				shares[q] = hit(approximate.Row(q), truth.Row(q), pair)
			}
		})
		rates[i] = rateOf(pair, shares)
	}
	return rates
}

// hit is the share of one query.
func hit(approximate, truth []float32, pair HitPair) float64 {
	p, t := min(pair.P, len(truth)), min(pair.T, len(truth))
	best := highestRows(truth, t)
	n := 0
	for _, x := range highestRows(approximate, p) {
		if slices.Contains(best, x) {
			n++
		}
	}
	return float64(n) / float64(max(1, t))
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

func rateOf(pair HitPair, shares []float64) HitRate {
	r := HitRate{P: pair.P, T: pair.T, Mean: mean(shares)}
	var square float64
	for _, s := range shares {
		square += (s - r.Mean) * (s - r.Mean)
	}
	n := float64(max(2, len(shares)))
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
