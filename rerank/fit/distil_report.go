package fit

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
)

// DistilReport says what learned probes are worth as a first stage, beside the
// other ones that the similarity has.
type DistilReport struct {
	Seed uint64 `json:"seed"`
	// Items, Queries: of the collection and the log; ZeroQueries were left out, as
	// the similarity divides by the norm. LearnedQueries and HeldOutQueries are
	// those used of them.
	Items          int `json:"items"`
	Queries        int `json:"queries"`
	ZeroQueries    int `json:"zero_queries"`
	LearnedQueries int `json:"learned_queries"`
	HeldOutQueries int `json:"held_out_queries"`
	// K is the length of the exact answer; recall is the share of it found.
	K int `json:"k"`
	// Temperature of the similarity's softmax, at which Focus items share the weight.
	Temperature float64      `json:"temperature"`
	Focus       float64      `json:"focus"`
	Heads       []HeadReport `json:"heads"`
	// Depths are the numbers of candidates of Stages.
	Depths []int `json:"depths"`
	// Stages are the first stages on the held-out queries: the learned probes first.
	Stages         []FirstStage `json:"first_stages"`
	Recommendation string       `json:"recommendation"`
	Warnings       []string     `json:"warnings,omitempty"`
	// Interrupted: the context ended; the heads are the best until then.
	Interrupted bool `json:"interrupted,omitempty"`
}

// HeadReport says how a head was fitted.
type HeadReport struct {
	Head string `json:"head"`
	// Start is what it began with; "exact" was not trained, as it is the
	// similarity itself.
	Start string `json:"start"`
	// Rounds is the round that the held-out queries judged best, of Of; 0: the start.
	Rounds int `json:"rounds"`
	Of     int `json:"of"`
	// Loss is the mean divergence from the similarity in the last round, in nats.
	Loss float64 `json:"loss"`
	// Recall is the mean over the depths, on held-out queries.
	Recall float64 `json:"recall"`
	// Parameters that the head adds to the model.
	Parameters int `json:"parameters"`
}

// warn adds what the reader must know.
func (r *DistilReport) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// conclude writes the recommendation and the warnings.
func (r *DistilReport) conclude(spec rerank.Spec) {
	if spec.UserIDs {
		r.warn("the similarity depends on the user, a learned probe on the query vector alone: its recall is that for the users of these queries")
	}
	if r.LearnedQueries < 10*spec.QueryDim && !r.exact() {
		r.warn("%d queries are few for probes of %d numbers; bring more if there are, labels are not needed", r.LearnedQueries, spec.QueryDim)
	}
	learned, other := r.bestStage(true), r.bestStage(false)
	if learned == nil {
		return
	}
	last := len(r.Depths) - 1
	if learned.Recall[last] < 0.95 && !r.exact() {
		r.warn("even %d candidates hold %.3f of the exact top %d only; use a deeper list, or another strategy", r.Depths[last], learned.Recall[last], r.K)
	}
	switch {
	case r.exact():
		r.Recommendation = "Keep the strategy average: the similarity is one inner product of the query with the stored vectors, and a learned probe is the same."
	case other != nil && mean(other.Recall) >= mean(learned.Recall):
		r.Recommendation = fmt.Sprintf("Use the strategy %s: no learned probe finds more.", other.Name)
		if other.Companion {
			r.Recommendation += " It needs a companion collection; where there is none, use distilled."
		}
	default:
		r.Recommendation = fmt.Sprintf("Use the strategy distilled with head %s%s.", learned.Head, r.enough(learned))
	}
}

// exact: a head is the similarity itself.
func (r *DistilReport) exact() bool {
	for _, h := range r.Heads {
		if h.Start == startExact {
			return true
		}
	}
	return false
}

// bestStage is the best of the learned probes, or of the other first stages. A
// linear head is preferred where a residual one gains less than half a hundredth.
func (r *DistilReport) bestStage(learned bool) *FirstStage {
	var found *FirstStage
	for i := range r.Stages {
		s := &r.Stages[i]
		if (s.Head != "") != learned {
			continue
		}
		margin := 0.0
		if found != nil && found.Head == HeadLinear {
			margin = 0.005
		}
		if found == nil || mean(s.Recall) > mean(found.Recall)+margin {
			found = s
		}
	}
	return found
}

// enough says which depth finds nearly all.
func (r *DistilReport) enough(s *FirstStage) string {
	for i, v := range s.Recall {
		if v >= 0.95 {
			return fmt.Sprintf(": %d candidates hold %.3f of the exact top %d", r.Depths[i], v, r.K)
		}
	}
	return ""
}
