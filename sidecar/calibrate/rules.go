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
	// Tested: every more expensive rule passed. Passed: the rule shows the promise.
	Tested bool `json:"tested"`
	Passed bool `json:"passed"`
}

// Ladder returns depths from most to least: both of them, and between them the powers of
// ten times 1, 1.5, 2, 3, 5 and 7.
func Ladder(least, most int) []int {
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
	depths = slices.Compact(depths)
	slices.Reverse(depths)
	return depths
}

// ruleList returns the rules in the order of their tests, which does not depend on the
// answers.
func (r *run) ruleList() ([]rerank.Rule, error) {
	depths := slices.Clone(r.Depths)
	if len(depths) == 0 {
		most := min(r.route.MaxDepth, max(10*r.route.Depth, r.Promise.K))
		if r.rows > 0 {
			most = min(most, max(int(r.rows), r.Promise.K))
		}
		depths = Ladder(r.Promise.K, most)
	}
	slices.Sort(depths)
	slices.Reverse(depths)
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

// test tests the rules from the most expensive to the cheapest, until one fails: fixed-sequence testing, which needs no
// correction for their number (Maurer, Hothorn and Lehmacher, 1995). It returns
// the index of the cheapest rule that passed, −1 if none did.
func (r *Report) test() (chosen int) {
	chosen = -1
	for i := range r.Rules {
		o := &r.Rules[i]
		o.Tested, o.Passed = true, r.Promise.isShownBy(o.Kept, o.Queries)
		if !o.Passed {
			return chosen
		}
		chosen = i
	}
	return chosen
}

// Mark returns the result of a rule's test in a word or two.
func (r *Report) Mark(o Outcome) string {
	switch {
	case r.Calibration != nil && o.Rule == r.Calibration.Rule:
		return "chosen"
	case o.Passed:
		return "shown"
	case o.Tested:
		return "not shown"
	default:
		return "not tested"
	}
}
