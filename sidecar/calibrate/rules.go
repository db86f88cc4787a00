package calibrate

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// Outcome sums up how well a rule answered the queries.
type Outcome struct {
	rerank.Rule
	Queries int `json:"queries"`
	// Kept counts the queries that reached the recall. LeastShare is the lower bound of
	// their share.
	Kept       int     `json:"kept"`
	LeastShare float64 `json:"share_at_least"`
	// MeanRecall and its lower bound are reported, and not promised.
	MeanRecall      float64 `json:"mean_recall"`
	LeastMeanRecall float64 `json:"mean_recall_at_least"`
	// Candidates is the mean number of items that a search scored.
	Candidates float64 `json:"candidates"`
	// P50 and P99 are times of a search in milliseconds.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// Passed: the rule shows the promise.
	Passed bool `json:"passed"`
}

// ladder returns depths from least to most: both of them, and between them the powers of
// ten times 1, 1.5, 2, 3, 5 and 7.
func ladder(least, most int) []int {
	depths := []int{most}
	for tens := 1.0; tens <= float64(most); tens *= 10 {
		for _, step := range []float64{1, 1.5, 2, 3, 5, 7} {
			if d := int(tens * step); d > least && d < most {
				depths = append(depths, d)
			}
		}
	}
	if least < most {
		depths = append(depths, least)
	}
	slices.Sort(depths)
	return slices.Compact(depths)
}

// ruleList returns the rules from the cheapest to the most expensive, in the order of their tests.
func (r *run) ruleList() ([]rerank.Rule, error) {
	depths := slices.Clone(r.Depths)
	if len(depths) == 0 {
		most := min(r.route.MaxDepth, max(10*r.route.Depth, r.Promise.K))
		if r.rows > 0 {
			most = min(most, max(int(r.rows), r.Promise.K))
		}
		depths = ladder(r.Promise.K, most)
	}
	slices.Sort(depths)
	var rules []rerank.Rule
	for i, d := range depths {
		if d < 1 || d > r.route.MaxDepth || i > 0 && d == depths[i-1] {
			return nil, fmt.Errorf("%w: depth %d is given twice, or not between 1 and %d, max_depth of route %q or its store", ErrInput, d, r.route.MaxDepth, r.route.Name)
		}
		rule := rerank.Rule{Strategy: r.route.Strategy, Depth: d, Weights: r.route.Weights, Head: r.route.Head}
		if rule.Strategy == rerank.Combined { // both lists deepen in step
			share := float64(r.route.AverageDepth) / float64(r.route.Depth)
			rule.AverageDepth = max(1, min(r.route.MaxDepth, int(math.Ceil(share*float64(d)))))
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// Mark returns the result of a rule's test in a word or two.
func (r *Report) Mark(o Outcome) string {
	if r.Calibration != nil && o.Rule == r.Calibration.Rule {
		return "chosen"
	}
	return "not shown"
}
