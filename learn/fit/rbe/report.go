package rbe

import (
	"fmt"
	"strings"
)

// Report says what a fit of relevance-based embeddings did and how good they are.
type Report struct {
	Items          int       `json:"items"`
	Queries        int       `json:"queries"`
	HeldOutQueries int       `json:"held_out_queries"`
	SupportItems   int       `json:"support_items"`
	SupportQueries int       `json:"support_queries"`
	Select         Selection `json:"select"`
	Lambda         float64   `json:"lambda"`
	Seed           uint64    `json:"seed"`
	// ZeroItems counts items whose scores are all 0. They are approximated by 0.
	ZeroItems int `json:"zero_items"`
	// CUR is the quality without perceptrons, Chosen the quality of the model that was
	// written.
	CUR    Quality `json:"cur"`
	Chosen Quality `json:"chosen"`
	// Rounds is how many rounds of training the chosen perceptrons had. 0 means that CUR was
	// better, or that no perceptrons were fitted.
	Rounds  int     `json:"rounds"`
	History []Round `json:"history,omitempty"`
	// Compared lists the quality of every selection without perceptrons, if Options.Compare is set.
	Compared []Compared `json:"compared,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`
}

// Quality is the quality of approximate scores of the held-out queries.
type Quality struct {
	HitRates []HitRate `json:"hit_rates"`
	// Error is the root mean square error of the scores.
	Error float64 `json:"error"`
}

// Round is a pass of the perceptrons over the queries.
type Round struct {
	Round int     `json:"round"`
	Loss  float64 `json:"loss"`
	// HitRate is HitRate(10) of queries that are neither learned from nor held out.
	HitRate float64 `json:"hit_rate"`
}

// Compared says how well support items of one Selection do, without perceptrons.
type Compared struct {
	Select Selection `json:"select"`
	Quality
}

// formatRates writes hit rates in a line.
func formatRates(rates []HitRate) string {
	texts := make([]string, len(rates))
	for i, r := range rates {
		texts[i] = fmt.Sprintf("(%d,%d) %.4f", r.P, r.T, r.Mean)
	}
	return strings.Join(texts, " ")
}
