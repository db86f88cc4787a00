package fit

import "fmt"

// MoLReport says what a fit of a MoL did, what it is worth, and to whom.
type MoLReport struct {
	Gates      Gates `json:"gates"`
	PairsQuery int   `json:"pairs_query"`
	PairsItem  int   `json:"pairs_item"`
	Dim        int   `json:"dim"`
	L2Norm     bool  `json:"l2_norm"`
	// Temperature is τ.
	Temperature float64 `json:"temperature"`
	Parameters  int     `json:"parameters"`
	Normalise   bool    `json:"normalise"`
	Seed        uint64  `json:"seed"`
	Counts      Counts  `json:"counts"`
	// Pull is λ of λ‖θ − θ₀‖², θ₀ the start; Rounds is how many were best. After 0
	// rounds it is the start, as nothing was better.
	Pull   float64 `json:"pull"`
	Rounds int     `json:"rounds"`
	// Interrupted: the fit was ended before its time; this is the best it had.
	Interrupted bool `json:"interrupted,omitempty"`
	// Guarded: the pull was chosen on held-out items.
	Guarded bool        `json:"guarded"`
	Pulls   []PullTrial `json:"pulls,omitempty"`
	// Logged is the quality on held-out queries, against the plain inner product.
	Logged Comparison `json:"logged"`
	// Cold is the quality on held-out items, of the fit that had not seen them.
	Cold    *Comparison `json:"cold,omitempty"`
	History []MoLRound  `json:"history"`
	Usage   GateUsage   `json:"gate_usage"`
	// Recall is what the candidates of a first stage keep of the exact top 10.
	Recall         []StrategyRecall `json:"recall"`
	Recommendation string           `json:"recommendation"`
	Warnings       []string         `json:"warnings,omitempty"`
}

// GateUsage is what the gates do for held-out queries and their own items.
type GateUsage struct {
	Queries int `json:"queries"`
	// Mass is the mean gate of each pair of components, at i·P_X + j.
	Mass []float64 `json:"mass"`
	// Entropy is that of Mass, MeanEntropy the mean of each query's, in nats; both
	// are at most log(P_Q·P_X). Largest is the mean of the largest gate.
	Entropy     float64 `json:"entropy"`
	MeanEntropy float64 `json:"mean_entropy"`
	Largest     float64 `json:"largest"`
}

// StrategyRecall is recall@10 of φ's exact order by the candidates of a first stage.
type StrategyRecall struct {
	Strategy string `json:"strategy"`
	// Stored: the probes search the stored vectors, else fields of a companion.
	Stored bool `json:"stored"`
	Depth  int  `json:"depth"`
	// Candidates is the mean number of items found, of all lists together.
	Candidates float64 `json:"candidates"`
	Recall     float64 `json:"recall"`
	Queries    int     `json:"queries"`
}

// measure judges the net on the held-out queries.
func (w *molWork) measure(n *molNet) error {
	v, err := w.view(n)
	if err != nil {
		return err
	}
	j := w.judge
	if n.full() {
		j = w.thinned(j)
	}
	scores, err := v.reciprocal(j)
	if err != nil {
		return err
	}
	w.report.Logged = compare(scores, j.reciprocal(plain), j.items)
	if w.report.Usage, err = v.usage(w.thinned(j)); err != nil {
		return err
	}
	w.report.Recall, err = v.recall(j)
	return err
}

func (r *MoLReport) recommend() {
	c := r.Logged
	switch {
	case c.Gain <= 2*c.StandardError:
		r.Recommendation = "Stay with the plain inner product: on held-out queries this model was not surely better."
	case r.Gates == GatesQuery:
		r.Recommendation = fmt.Sprintf("Better than the plain inner product by %.4f ± %.4f. Fit a bilinear form too: on frozen vectors it is often as good, and simpler.", c.Gain, c.StandardError)
	default:
		r.Recommendation = fmt.Sprintf("Better than the plain inner product by %.4f ± %.4f. Fit gates of the query alone and a bilinear form too: they are often as good, and their answers are exact.", c.Gain, c.StandardError)
	}
}
