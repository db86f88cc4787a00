package fit

import "fmt"

// Comparison compares the MRR@10 of a similarity with the MRR@10 of the plain inner
// product, on the same queries, among all items of the collection.
type Comparison struct {
	Queries  int     `json:"queries"`
	MRR      float64 `json:"mrr"`
	Baseline float64 `json:"baseline"` // MRR@10 of the plain inner product
	Gain     float64 `json:"gain"`
	// StandardError is the standard error of Gain. Queries of one item count as one
	// cluster, because they win and lose together.
	StandardError float64 `json:"standard_error"`
}

// ClearlyBetter reports whether the gain is at least one standard error, which makes
// it five to one that the similarity is no worse than the plain inner product.
func (c Comparison) ClearlyBetter() bool { return c.Gain > 0 && c.Gain >= c.StandardError }

// PullTrial is one strength of the pull to the start, and the quality of the fit with it.
type PullTrial struct {
	Pull  float64 `json:"pull"`
	Scale float64 `json:"scale"`
	Rate  float64 `json:"rate"`
	// LoggedMRR and LoggedNDCG are MRR@10 and nDCG@10 of held-out queries for items
	// that the fit has seen.
	LoggedMRR  float64 `json:"logged"`
	LoggedNDCG float64 `json:"ndcg"`
	// Cold compares on held-out items. It is nil if none were held out.
	Cold *Comparison `json:"cold,omitempty"`
	// Admissible means that items without logs lose nothing, or are not guarded.
	Admissible bool `json:"admissible"`
	Chosen     bool `json:"chosen"`
}

// ColdWarning words the warning that items without logs lose. guarded says that the
// fit already tried every pull that could keep them.
func ColdWarning(c Comparison, guarded bool) string {
	text := fmt.Sprintf("items without logs lose: MRR@10 %.4f ± %.4f, %.4f by the plain inner product, on %d queries of items held out",
		c.MRR, c.StandardError, c.Baseline, c.Queries)
	if guarded {
		return text + "; no pull that was tried keeps them"
	}
	return text + "; when the collection gets such items, fit again with --cold guard"
}
