package distilled

import (
	"fmt"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/rerank"
)

// Report says how good learned probes are as a first stage, compared with the similarity's other
// first stages.
type Report struct {
	Seed uint64 `json:"seed"`
	// Items and Queries count the data. ZeroQueries were left out, because the similarity
	// divides by the norm. LearnedQueries taught the probes, HeldOutQueries judged them.
	Items          int `json:"items"`
	Queries        int `json:"queries"`
	ZeroQueries    int `json:"zero_queries"`
	LearnedQueries int `json:"learned_queries"`
	HeldOutQueries int `json:"held_out_queries"`
	// Temperature is the temperature of the similarity's softmax, at which Focus items
	// share the weight.
	Temperature float64      `json:"temperature"`
	Focus       float64      `json:"focus"`
	Heads       []HeadReport `json:"heads"`
	// RecallTable lists the first stages on the held-out queries, the learned probes first.
	rerank.RecallTable
	Recommendation string   `json:"recommendation"`
	Warnings       []string `json:"warnings,omitempty"`
	// Interrupted means that the fit ended early and returned its best heads so far.
	Interrupted bool `json:"interrupted,omitempty"`
}

// HeadReport says how a head was fitted.
type HeadReport struct {
	Head string `json:"head"`
	// Start names the parameters with which the head began. "exact" needed no training: the probe
	// equals the similarity.
	Start string `json:"start"`
	// Rounds is the number of training rounds, out of Of at most, that was best for the held-out
	// queries; 0 is the start.
	Rounds int `json:"rounds"`
	Of     int `json:"of"`
	// Loss is the mean divergence from the similarity in the last round, in nats.
	Loss float64 `json:"loss"`
	// Recall is the recall on held-out queries, as a mean over the depths.
	Recall float64 `json:"recall"`
	// Parameters is the number of parameters that the head adds to the model.
	Parameters int `json:"parameters"`
}

// warn adds a warning.
func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// conclude writes the recommendation and the warnings.
func (r *Report) conclude(spec rerank.Spec) {
	if spec.UserIDs {
		r.warn("the similarity depends on the user, a learned probe on the query vector alone: its recall is that for the users of these queries")
	}
	if r.LearnedQueries < 10*spec.QueryDim && !r.isExact() {
		r.warn("%d queries are few for probes of %d numbers; bring more if there are, labels are not needed", r.LearnedQueries, spec.QueryDim)
	}
	learned, other := r.bestStage(true), r.bestStage(false)
	if learned == nil {
		return
	}
	last := len(r.Depths) - 1
	if learned.Recall[last] < 0.95 && !r.isExact() {
		r.warn("even %d candidates hold %.3f of the exact top %d only; use a deeper list, or another strategy", r.Depths[last], learned.Recall[last], r.K)
	}
	switch {
	case r.isExact():
		r.Recommendation = "Keep the strategy average: the similarity is one inner product of the query with the stored vectors, and a learned probe is the same."
	case other != nil && judge.Mean(other.Recall, nil) >= judge.Mean(learned.Recall, nil):
		r.Recommendation = fmt.Sprintf("Use the strategy %s: no learned probe finds more.", other.Strategy)
		if other.Companion {
			r.Recommendation += " It needs a companion collection; where there is none, use distilled."
		}
	default:
		r.Recommendation = fmt.Sprintf("Use the strategy distilled with head %s%s.", learned.Head, r.describeEnough(learned))
	}
}

// isExact reports whether a head equals the similarity.
func (r *Report) isExact() bool {
	for _, h := range r.Heads {
		if h.Start == startExact {
			return true
		}
	}
	return false
}

// bestStage returns the best learned probe, or the best other first stage. It prefers a linear head
// if a residual head gains less than 0.005.
func (r *Report) bestStage(learned bool) *rerank.FirstStage {
	var found *rerank.FirstStage
	for i := range r.Stages {
		s := &r.Stages[i]
		if (s.Head != "") != learned {
			continue
		}
		margin := 0.0
		if found != nil && found.Head == HeadLinear {
			margin = 0.005
		}
		if found == nil || judge.Mean(s.Recall, nil) > judge.Mean(found.Recall, nil)+margin {
			found = s
		}
	}
	return found
}

// describeEnough says at which depth nearly all of the answer is found.
func (r *Report) describeEnough(s *rerank.FirstStage) string {
	for i, v := range s.Recall {
		if v >= 0.95 {
			return fmt.Sprintf(": %d candidates hold %.3f of the exact top %d", r.Depths[i], v, r.K)
		}
	}
	return ""
}
