package bilinear

import (
	"fmt"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Report says what a fit of a bilinear form did and how good the form is.
type Report struct {
	Form      bilinear.Form `json:"form"`
	CutTo     int           `json:"cut_to_rank,omitempty"`
	Normalise bool          `json:"normalise"`
	Seed      uint64        `json:"seed"`
	Counts    fit.Counts    `json:"counts"`
	// Start says at which W₀ the fit started.
	Start Start `json:"start"`
	// Pull is λ of λ‖W − W₀‖². Rounds is the number of rounds that the final fit took;
	// 0 means that nothing was better than the start, which was kept.
	Pull   float64 `json:"pull"`
	Rounds int     `json:"rounds"`
	// Scale is the factor of φ before the softmax, Rate the learning rate of Adam.
	Scale float64 `json:"scale"`
	Rate  float64 `json:"rate"`
	// Interrupted means that the fit was ended early and returned its best form so far.
	Interrupted bool `json:"interrupted,omitempty"`
	// Guarded means that the pull was raised as far as items without logs needed it.
	Guarded bool            `json:"guarded"`
	Pulls   []fit.PullTrial `json:"pulls"`
	// Logged compares on held-out queries.
	Logged fit.Comparison `json:"logged"`
	// Cold compares on held-out items, for a fit that had not seen them.
	Cold     *fit.Comparison `json:"cold,omitempty"`
	Spectrum *Spectrum       `json:"spectrum,omitempty"`
	// Choices lists the similarities that were compared on the held-out queries, the
	// simplest first.
	Choices        []Choice `json:"choices"`
	Recommendation string   `json:"recommendation"`
	Warnings       []string `json:"warnings,omitempty"`
}

// Choice is a similarity and its MRR@10 on the held-out queries.
type Choice struct {
	Name string  `json:"name"`
	MRR  float64 `json:"mrr"`
	// AsGood means that the MRR is at most two standard errors below the best.
	AsGood bool `json:"as_good"`

	reciprocalRanks []float64 // of the held-out queries
}

// addChoice adds a similarity with its reciprocal ranks of the judge's queries.
func (r *Report) addChoice(name string, j *judge.Judge, reciprocalRanks []float64) {
	r.Choices = append(r.Choices, Choice{Name: name, MRR: j.Mean(reciprocalRanks), reciprocalRanks: reciprocalRanks})
}

// plainName names the similarity that a fit is compared with. It is the plain inner product
// if queries and items have one dimension.
func (r *Report) plainName(square bool) string {
	if square {
		return "plain inner product"
	}
	return "least squares"
}

// rankName names the form that a rank of the spectrum makes.
func (r *Report) rankName(rank int) string {
	if r.Start == FromLeastSquares {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("I + rank %d", rank)
}

// setSetting reports the setting that was chosen.
func (r *Report) setSetting(s setting) {
	r.Pull, r.Scale, r.Rate = s.pull, s.scale, s.rate
}

// setting returns the setting that was chosen.
func (r *Report) setting() setting { return setting{r.Pull, r.Scale, r.Rate} }

// recommend recommends the simplest similarity that is as good as the best.
func (r *Report) recommend(j *judge.Judge) {
	best := 0
	for i, c := range r.Choices {
		if c.MRR > r.Choices[best].MRR {
			best = i
		}
	}
	simplest := -1
	for i := range r.Choices {
		c := &r.Choices[i]
		loss := j.Compare(r.Choices[best].reciprocalRanks, c.reciprocalRanks)
		c.AsGood = loss.Gain <= 2*loss.StandardError
		if c.AsGood && simplest < 0 {
			simplest = i
		}
	}
	name := r.Choices[simplest].Name
	switch simplest {
	case 0:
		r.Recommendation = fmt.Sprintf("Stay with the %s: on held-out queries nothing was surely better.", name)
		if name != "plain inner product" {
			r.Recommendation = "Use it: the least-squares map is as good as anything fitted further, and queries and items have no inner product."
		}
	case best:
		r.Recommendation = fmt.Sprintf("Use %s: nothing simpler was as good on held-out queries.", name)
	default:
		r.Recommendation = fmt.Sprintf("Use %s: it is the simplest that is as good as %s on held-out queries.", name, r.Choices[best].Name)
	}
}
