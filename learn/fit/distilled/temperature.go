package distilled

import (
	"math"

	"github.com/likenessdb/likeness/learn/fit/teacher"
)

// findTemperature returns the temperature at which the softmax of the lists has the given
// perplexity, as a geometric mean: as if that many items shared the weight. It makes the training
// independent of the similarity's scale.
func findTemperature(lists []teacher.Ranked, perplexity float64) float64 {
	entropy := func(t float64) float64 {
		var sum float64
		for _, l := range lists {
			sum += entropy(l, t)
		}
		return sum / float64(len(lists))
	}
	low, high := 1e-9, 1.0
	for range 60 {
		if entropy(high) >= math.Log(perplexity) {
			break
		}
		low, high = high, high*2
	}
	for range 60 {
		if mid := math.Sqrt(low * high); entropy(mid) < math.Log(perplexity) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// writeWeights writes the softmax of the scores of a list at a temperature.
func writeWeights(dst []float32, r teacher.Ranked, temperature float64) {
	var sum float64
	for i, s := range r.Scores {
		w := math.Exp(float64(s-r.Scores[0]) / temperature)
		dst[i] = float32(w)
		sum += w
	}
	for i := range dst[:len(r.Scores)] {
		dst[i] = float32(float64(dst[i]) / sum)
	}
}

// entropy returns the entropy of the softmax of the scores of a list at a temperature, in nats.
func entropy(r teacher.Ranked, temperature float64) float64 {
	var sum, first float64
	for _, s := range r.Scores {
		d := float64(s-r.Scores[0]) / temperature
		w := math.Exp(d)
		sum, first = sum+w, first+w*d
	}
	return math.Log(sum) - first/sum
}
