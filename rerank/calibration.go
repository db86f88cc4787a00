package rerank

import "time"

// Calibration is a promise about a route's answers, measured by an audit: P(recall@K ≥
// Recall) ≥ Share with confidence 1 − Alpha. The audit answered Queries queries by the
// Rule.
type Calibration struct {
	Recall  float64 `json:"recall"`
	Share   float64 `json:"share"`
	Alpha   float64 `json:"alpha"`
	Queries int     `json:"queries"`
	K       int     `json:"k"`
	Rule    Rule    `json:"rule"`
	// Excluding means that the queries were answered without items, as those that a person has
	// seen. The promise is then for requests that exclude items, and otherwise for those that do
	// not.
	Excluding bool      `json:"excluding,omitempty"`
	Made      time.Time `json:"made"`
}

// Rule says how candidates are found and how deep the lists go before the search stops.
type Rule struct {
	Strategy Strategy `json:"strategy"`
	// Depth is the number of rows requested from each probe. AverageDepth is the same for
	// the averaged probe of the strategy Combined, and 0 for other strategies.
	Depth        int     `json:"depth"`
	AverageDepth int     `json:"average_depth,omitempty"`
	Weights      Weights `json:"weights,omitempty"`
	Head         string  `json:"head,omitempty"`
}

// Same reports whether two rules find candidates in the same way, apart from their depths.
func (r Rule) Same(other Rule) bool {
	return r.Strategy == other.Strategy && r.Weights == other.Weights && r.Head == other.Head
}

// Reasons why an answer does not carry its route's calibration.
const (
	// UncalibratedFilter: the query had a filter, and the audit had none; or only one of them
	// excluded items.
	UncalibratedFilter = "filter"
	// UncalibratedK: the audit measured recall for another K.
	UncalibratedK = "k"
	// UncalibratedStrategy: the candidates were found by another rule than the audited one.
	UncalibratedStrategy = "strategy"
	// UncalibratedBehind: the table or the companion may lack recent writes.
	UncalibratedBehind = "behind"
	// UncalibratedDepth: the lists were shorter than in the audit.
	UncalibratedDepth = "depth"
)

// Lacks returns the reason why an answer of k rows, found by the given rule, does not carry
// the calibration, or "" if it does. A smaller k than audited is covered only if the audit
// promised recall 1: with a lower recall, the missing rows may be the first ones. excluding says
// that the request excluded items.
func (c *Calibration) Lacks(k int, by Rule, filtered, excluding bool) string {
	switch {
	case filtered, excluding != c.Excluding:
		return UncalibratedFilter
	case k > c.K, k < c.K && c.Recall < 1:
		return UncalibratedK
	case !by.Same(c.Rule):
		return UncalibratedStrategy
	case by.Depth < c.Rule.Depth, by.Strategy == Combined && by.AverageDepth < c.Rule.AverageDepth:
		return UncalibratedDepth
	}
	return ""
}
