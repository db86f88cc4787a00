package bilinear

import (
	"fmt"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Report says what a fit of a bilinear form did and how good the form is.
type Report struct {
	Form      bilinear.Form `json:"form"`
	CutTo     int           `json:"cut_to_rank,omitempty"`
	Normalise bool          `json:"normalise"`
	Seed      uint64        `json:"seed"`
	// Measure chose the setting, and judges the fit.
	Measure fit.Measure `json:"measure"`
	Counts  fit.Counts  `json:"counts"`
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
	// ColdTraffic is the share of the traffic to come that looks for items without logs.
	// Guarded means that trials were judged on held-out items too, Guarding what that
	// costs and buys.
	ColdTraffic float64         `json:"cold_traffic"`
	Guarded     bool            `json:"guarded"`
	Guarding    *fit.Guarding   `json:"guarding,omitempty"`
	Pulls       []fit.PullTrial `json:"pulls"`
	// Logged compares on held-out queries.
	Logged fit.Comparison `json:"logged"`
	// Cold compares on held-out items, for a fit that had not seen them.
	Cold     *fit.Comparison `json:"cold,omitempty"`
	Spectrum *Spectrum       `json:"spectrum,omitempty"`
	// Choices lists the similarities that were compared on the held-out queries, the
	// simplest first.
	Choices []Choice `json:"choices"`
	// Verdict says which of them to take; Recommendation is its text.
	Verdict        fit.Verdict `json:"verdict"`
	Recommendation string      `json:"recommendation"`
	Warnings       []string    `json:"warnings,omitempty"`
}

// Choice is a similarity and its quality on the held-out queries, by the fit's measure.
type Choice struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Numbers is how many numbers the similarity stores.
	Numbers int `json:"numbers"`
	// Standing says how it stands to the best one; it is empty for the similarity that
	// all are compared with. AsGood means that it is the best or as good.
	Standing verdict.Standing `json:"standing,omitempty"`
	AsGood   bool             `json:"as_good"`
}

// plainName names the similarity that a fit is compared with. It is the plain inner product
// if queries and items have one dimension.
func (r *Report) plainName(square bool) string {
	if square {
		return "the plain inner product"
	}
	return "the least-squares map"
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
