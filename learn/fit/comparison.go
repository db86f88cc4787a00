package fit

import "fmt"

// Comparison compares a similarity with the plain inner product by the fit's measure, on
// the same queries, among all items of the collection.
type Comparison struct {
	Queries  int     `json:"queries"`
	Value    float64 `json:"value"`
	Baseline float64 `json:"baseline"` // of the plain inner product
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
	// Rounds is the number of rounds that the trial's fit took, where fits differ in it.
	Rounds int `json:"rounds,omitempty"`
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

// Logged returns the measure of held-out queries for items that the fit has seen.
func (t PullTrial) Logged(m Measure) float64 { return ByMeasure(m, t.LoggedMRR, t.LoggedNDCG) }

// Value returns the measure of all traffic if the given share of it looks for items without logs.
// Cold has to be by the same measure; if nil, Value returns the measure of the others.
func (t PullTrial) Value(m Measure, coldTraffic float64) float64 {
	if t.Cold == nil {
		return t.Logged(m)
	}
	return (1-coldTraffic)*t.Logged(m) + coldTraffic*t.Cold.Value
}

// Guarding says what it costs and buys to hold a fit back for items without logs.
type Guarding struct {
	Measure Measure `json:"measure"`
	// Traffic is the share of the traffic to come that looks for items without logs.
	Traffic float64 `json:"traffic"`
	// LoggedLoss is how much less, by the measure, queries for items with logs reach than at the
	// setting that is best for them. ColdGain is how much more queries for items without logs reach.
	LoggedLoss float64 `json:"logged_loss"`
	ColdGain   float64 `json:"cold_gain"`
}

// NewGuarding compares the chosen trial with the one that is best for logged items. All
// trials measured held-out items.
func NewGuarding(m Measure, traffic float64, chosen PullTrial, tried []PullTrial) *Guarding {
	free := chosen
	for _, t := range tried {
		if t.Logged(m) > free.Logged(m) {
			free = t
		}
	}
	return &Guarding{Measure: m, Traffic: traffic, LoggedLoss: free.Logged(m) - chosen.Logged(m), ColdGain: chosen.Cold.Value - free.Cold.Value}
}

// Text states in a sentence what guarding costs and buys.
func (g Guarding) Text() string {
	if g.LoggedLoss == 0 {
		return fmt.Sprintf("Nothing is held back for items without logs (%.1f %% of the traffic to come): the setting that is best for logged items is taken.", 100*g.Traffic)
	}
	return fmt.Sprintf("Holding back for items without logs (%.1f %% of the traffic to come) costs logged items %.4f of %s and buys the others %.4f: %+.4f over all traffic.",
		100*g.Traffic, g.LoggedLoss, g.Measure.Name(), g.ColdGain, g.Traffic*g.ColdGain-(1-g.Traffic)*g.LoggedLoss)
}

// UnguardedText states in a sentence that a fit does nothing for items without logs, and
// what that costs them.
func UnguardedText(m Measure, c Comparison, traffic float64) string {
	return fmt.Sprintf("Items without logs (%.1f %% of the traffic to come) are not guarded: %+.4f of %s against the plain similarity, %+.4f over all traffic.",
		100*traffic, c.Gain, m.Name(), traffic*c.Gain)
}

// ColdWarning words the warning that items without logs lose. guarded says that the
// fit already tried every pull that could keep them.
func ColdWarning(m Measure, c Comparison, guarded bool) string {
	text := fmt.Sprintf("items without logs lose %.4f ± %.4f of %s", -c.Gain, c.StandardError, m.Name())
	if guarded {
		return text + "; no pull that was tried keeps them"
	}
	return text + "; when the collection gets such items, fit again with --cold guard"
}
