package fit

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Report says what a fit did, what it is worth, and to whom.
type Report struct {
	Form      bilinear.Form `json:"form"`
	CutTo     int           `json:"cut_to_rank,omitempty"`
	Normalise bool          `json:"normalise"`
	Seed      uint64        `json:"seed"`
	Counts    Counts        `json:"counts"`
	// Pull is λ of λ‖W − I‖², Rounds the passes over the pairs; 0 rounds leave
	// the plain inner product, as nothing was better.
	Pull   float64 `json:"pull"`
	Rounds int     `json:"rounds"`
	// Scale is the factor of φ before the softmax, Rate that of Adam.
	Scale float64 `json:"scale"`
	Rate  float64 `json:"rate"`
	// Interrupted: the fit was ended before its time; this is the best it had.
	Interrupted bool `json:"interrupted,omitempty"`
	// Guarded: the pull was raised as far as items without logs needed it.
	Guarded bool        `json:"guarded"`
	Pulls   []PullTrial `json:"pulls"`
	// Logged is the quality on held-out queries, against the plain inner product.
	Logged Comparison `json:"logged"`
	// Cold is the quality on held-out items, of the fit that had not seen them.
	Cold     *Comparison `json:"cold,omitempty"`
	Spectrum *Spectrum   `json:"spectrum,omitempty"`
	// Choices are the similarities compared on the held-out queries, the simplest first.
	Choices        []Choice `json:"choices"`
	Recommendation string   `json:"recommendation"`
	Warnings       []string `json:"warnings,omitempty"`
}

// Comparison is a mean of MRR@10 over queries, beside that of the plain inner
// product, among all items of the collection.
type Comparison struct {
	Queries  int     `json:"queries"`
	MRR      float64 `json:"mrr"`
	Baseline float64 `json:"baseline"`
	Gain     float64 `json:"gain"`
	// StandardError is that of Gain, over the paired queries, clustered by item.
	StandardError float64 `json:"standard_error"`
}

// PullTrial is what a pull did, under a scale and a rate.
type PullTrial struct {
	Pull       float64     `json:"pull"`
	Scale      float64     `json:"scale"`
	Rate       float64     `json:"rate"`
	Logged     float64     `json:"logged"` // MRR@10 of held-out queries on logged items
	NDCG       float64     `json:"ndcg"`   // their nDCG@10
	Cold       *Comparison `json:"cold,omitempty"`
	Admissible bool        `json:"admissible"`
	Chosen     bool        `json:"chosen"`
}

// Choice is one similarity on the held-out queries.
type Choice struct {
	Name string  `json:"name"`
	MRR  float64 `json:"mrr"`
	// AsGood: not below the best by more than two standard errors of the difference.
	AsGood bool `json:"as_good"`
	scores []float64
}

// compare also takes the item of each query: one item's queries win and lose
// together, so that the standard error is that of clusters.
func compare(scores, baseline []float64, items []int32) Comparison {
	return compareWeighted(scores, baseline, nil, items)
}

// compareWeighted is compare of weighted means; nil weights are 1 each.
func compareWeighted(scores, baseline, weights []float64, items []int32) Comparison {
	c := Comparison{Queries: len(scores), MRR: weightedMean(scores, weights), Baseline: weightedMean(baseline, weights)}
	c.Gain = c.MRR - c.Baseline
	clusters, total := map[int32]float64{}, 0.0
	for i, x := range items {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		clusters[x] += w * (scores[i] - baseline[i] - c.Gain)
		total += w
	}
	var square float64
	for _, x := range slices.Sorted(maps.Keys(clusters)) { // in order: sums of floats depend on it
		square += clusters[x] * clusters[x]
	}
	c.StandardError = math.Sqrt(square) / max(total, math.SmallestNonzeroFloat64)
	return c
}

func (w *work) add(name string, scores []float64) {
	w.report.Choices = append(w.report.Choices, Choice{Name: name, MRR: w.judge.mean(scores), scores: scores})
}

// recommend names the simplest similarity that is as good as the best.
func (r *Report) recommend(j *judge) {
	best := 0
	for i, c := range r.Choices {
		if c.MRR > r.Choices[best].MRR {
			best = i
		}
	}
	simplest := -1
	for i := range r.Choices {
		c := &r.Choices[i]
		loss := j.compare(r.Choices[best].scores, c.scores)
		c.AsGood = loss.Gain <= 2*loss.StandardError
		if c.AsGood && simplest < 0 {
			simplest = i
		}
	}
	name := r.Choices[simplest].Name
	switch {
	case simplest == 0:
		r.Recommendation = "Stay with the plain inner product: on held-out queries nothing was surely better."
	case simplest == best:
		r.Recommendation = fmt.Sprintf("Use %s: nothing simpler was as good on held-out queries.", name)
	default:
		r.Recommendation = fmt.Sprintf("Use %s: it is the simplest that is as good as %s on held-out queries.", name, r.Choices[best].Name)
	}
}

func coldWarning(c Comparison, guarded bool) string {
	text := fmt.Sprintf("items without logs lose: MRR@%d %.4f ± %.4f, %.4f by the plain inner product, on %d queries of items held out",
		cutoff, c.MRR, c.StandardError, c.Baseline, c.Queries)
	if guarded {
		return text + "; no pull that was tried keeps them"
	}
	return text + "; when the collection gets such items, fit again with --cold guard"
}

// kept: better than the plain inner product by a standard error, which is five
// to one that it is no worse.
func (c Comparison) kept() bool { return c.Gain > 0 && c.Gain >= c.StandardError }
