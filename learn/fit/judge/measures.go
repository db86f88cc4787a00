package judge

import (
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
)

// Cutoff is the length of the rankings that judge a fit.
const Cutoff = 10

// Hits says which of the first ten places of a ranking hold wanted items: bit i
// stands for place i.
type Hits uint16

// Mark returns a measure of the ranking, for a query with the given number of wanted items.
func (h Hits) Mark(m fit.Measure, wanted int32) float64 {
	if m == fit.NDCG {
		return h.NDCG(wanted)
	}
	return h.ReciprocalRank()
}

// ReciprocalRank returns 1/rank of the best wanted item, or 0 if no wanted item was
// found.
func (h Hits) ReciprocalRank() float64 {
	if h == 0 {
		return 0
	}
	return 1 / float64(1+bits.TrailingZeros16(uint16(h)))
}

// NDCG returns the discounted gain of the ranking divided by the gain of a perfect one
// (nDCG@10, Järvelin and Kekäläinen 2002), for a query with the given number of
// wanted items.
func (h Hits) NDCG(wanted int32) float64 {
	var sum, ideal float64
	for i := range Cutoff {
		d := 1 / math.Log2(float64(i+2))
		if h>>i&1 == 1 {
			sum += d
		}
		if int32(i) < wanted {
			ideal += d
		}
	}
	return sum / ideal
}

// Ratings holds every measure of some queries' rankings, one number for each query.
type Ratings struct{ MRR, NDCG []float64 }

// By returns the ratings by one measure.
func (r Ratings) By(m fit.Measure) []float64 { return fit.ByMeasure(m, r.MRR, r.NDCG) }

// Append adds the ratings of more queries.
func (r *Ratings) Append(more Ratings) {
	r.MRR, r.NDCG = append(r.MRR, more.MRR...), append(r.NDCG, more.NDCG...)
}

// Mean returns the weighted mean of v, 0 if v is empty. With nil weights all numbers
// weigh the same.
func Mean(v, weights []float64) float64 {
	var sum, total float64
	for i, x := range v {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		sum, total = sum+w*x, total+w
	}
	if total == 0 {
		return 0
	}
	return sum / total
}

// Outcomes are one measure of some queries' rankings, as Compare needs them. Items names
// an item of each query; the queries of one item win and lose together, so that
// Compare counts them as one cluster. With nil Weights all queries weigh the same.
type Outcomes struct {
	Scores, Baseline []float64
	Weights          []float64
	Items            []int32
}

// Append adds the outcomes of more queries.
func (o *Outcomes) Append(more Outcomes) {
	o.Scores, o.Baseline = append(o.Scores, more.Scores...), append(o.Baseline, more.Baseline...)
	o.Weights, o.Items = append(o.Weights, more.Weights...), append(o.Items, more.Items...)
}

// Compare compares the mean score with the mean baseline, and estimates the standard error
// of the difference.
func Compare(o Outcomes) fit.Comparison {
	c := fit.Comparison{Queries: len(o.Scores), Value: Mean(o.Scores, o.Weights), Baseline: Mean(o.Baseline, o.Weights)}
	c.Gain = c.Value - c.Baseline
	clusters, total := map[int32]float64{}, 0.0
	for i, x := range o.Items {
		w := 1.0
		if o.Weights != nil {
			w = o.Weights[i]
		}
		clusters[x] += w * (o.Scores[i] - o.Baseline[i] - c.Gain)
		total += w
	}
	var square float64
	for _, x := range slices.Sorted(maps.Keys(clusters)) { // in order: sums of floats depend on it
		square += clusters[x] * clusters[x]
	}
	c.StandardError = math.Sqrt(square) / max(total, math.SmallestNonzeroFloat64)
	return c
}

// Outcomes returns marks of the judge's queries beside a baseline.
func (j *Judge) Outcomes(scores, baseline []float64) Outcomes {
	return Outcomes{Scores: scores, Baseline: baseline, Weights: j.Weights, Items: j.FirstItems}
}

// Compare compares marks of the judge's queries with a baseline.
func (j *Judge) Compare(scores, baseline []float64) fit.Comparison {
	return Compare(j.Outcomes(scores, baseline))
}
