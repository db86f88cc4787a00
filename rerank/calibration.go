package rerank

import "time"

// Calibration is an audited promise of a route: P(recall@K ≥ Recall) ≥ Share
// with confidence 1 − Alpha, from Queries audited queries that the Rule answered.
type Calibration struct {
	Recall  float64   `json:"recall"`
	Share   float64   `json:"share"`
	Alpha   float64   `json:"alpha"`
	Queries int       `json:"queries"`
	K       int       `json:"k"`
	Rule    Rule      `json:"rule"`
	Made    time.Time `json:"made"`
}

// Rule is how candidates are found, and when to stop: how deep the lists are.
type Rule struct {
	Strategy Strategy `json:"strategy"`
	// Depth is the rows asked of each probe, AverageDepth those of the averaged
	// probe of Combined; 0 for another strategy.
	Depth        int     `json:"depth"`
	AverageDepth int     `json:"average_depth,omitempty"`
	Weights      Weights `json:"weights,omitempty"`
	Head         string  `json:"head,omitempty"`
}

// Same reports whether two rules find candidates alike, whatever their depths.
func (r Rule) Same(other Rule) bool {
	return r.Strategy == other.Strategy && r.Weights == other.Weights && r.Head == other.Head
}

// Why an answer does not carry its route's calibration.
const (
	// UncalibratedFilter: answers under a filter were not audited.
	UncalibratedFilter = "filter"
	// UncalibratedK: recall was audited for another K.
	UncalibratedK = "k"
	// UncalibratedStrategy: the candidates were found in another way.
	UncalibratedStrategy = "strategy"
	// UncalibratedBehind: the table or the companion does not show every write.
	UncalibratedBehind = "behind"
	// UncalibratedDepth: the lists were shorter than the audited ones.
	UncalibratedDepth = "depth"
)

// Lacks says why an answer of k rows that the rule found does not carry the
// calibration, or "" if it does. Where all of the top K was promised, a part of
// it is; of another recall nothing follows for a smaller k, as what is missing may
// be the first.
func (c *Calibration) Lacks(k int, by Rule, filtered bool) string {
	switch {
	case filtered:
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
