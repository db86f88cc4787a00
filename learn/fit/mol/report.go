package mol

import (
	"strings"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/learn/verdict"
)

// Report says what a fit of a Mixture-of-Logits did and how good the model is.
type Report struct {
	Gates      Gates `json:"gates"`
	PairsQuery int   `json:"pairs_query"`
	PairsItem  int   `json:"pairs_item"`
	Dim        int   `json:"dim"`
	L2Norm     bool  `json:"l2_norm"`
	// Temperature is τ.
	Temperature float64 `json:"temperature"`
	Parameters  int     `json:"parameters"`
	Normalise   bool    `json:"normalise"`
	// Measure chose the setting, the pull and the rounds, and judges the fit.
	Measure fit.Measure `json:"measure"`
	Seed    uint64      `json:"seed"`
	Counts  fit.Counts  `json:"counts"`
	// Pull is λ of λ‖θ − θ₀‖², where θ₀ is the start. Rounds is the number of rounds
	// that was best; 0 means that no mixture was better than the start, a bilinear form.
	Pull   float64 `json:"pull"`
	Rounds int     `json:"rounds"`
	// Interrupted means that the fit was ended early and returned its best model so far.
	Interrupted bool `json:"interrupted,omitempty"`
	// ColdTraffic is the share of the traffic to come that looks for items without logs.
	// Guarded means that the pull was chosen on held-out items, Guarding what that costs
	// and buys.
	ColdTraffic float64         `json:"cold_traffic"`
	Guarded     bool            `json:"guarded"`
	Guarding    *fit.Guarding   `json:"guarding,omitempty"`
	Pulls       []fit.PullTrial `json:"pulls,omitempty"`
	// Logged compares on held-out queries.
	Logged fit.Comparison `json:"logged"`
	// Cold compares on held-out items, for a fit that had not seen them.
	Cold    *fit.Comparison `json:"cold,omitempty"`
	History []Round         `json:"history"`
	Usage   GateUsage       `json:"gate_usage"`
	// Recall says what share of the exact top 10 the candidates of a first stage have.
	Recall []StrategyRecall `json:"recall"`
	// Verdict says whether to take the model; Recommendation is its text.
	Verdict        fit.Verdict `json:"verdict"`
	Recommendation string      `json:"recommendation"`
	Warnings       []string    `json:"warnings,omitempty"`
}

// GateUsage describes the gates of held-out queries with their own items.
type GateUsage struct {
	Queries int `json:"queries"`
	// Mass is the mean gate of each pair of components, at i·P_X + j.
	Mass []float64 `json:"mass"`
	// Entropy is the entropy of Mass in nats, MeanEntropy the mean entropy of the gates
	// of a query. Both are at most log(P_Q·P_X). Largest is the mean of the largest gate.
	Entropy     float64 `json:"entropy"`
	MeanEntropy float64 `json:"mean_entropy"`
	Largest     float64 `json:"largest"`
}

// StrategyRecall is the share of φ's exact top 10 among the candidates of a first stage.
type StrategyRecall struct {
	Strategy string `json:"strategy"`
	// Stored means that the probes search the stored vectors; otherwise they search
	// fields of a companion.
	Stored bool `json:"stored"`
	Depth  int  `json:"depth"`
	// Candidates is the mean number of items that all lists together find.
	Candidates float64 `json:"candidates"`
	Recall     float64 `json:"recall"`
	Queries    int     `json:"queries"`
}

// Round is one round of the fit that the held-out queries judge.
type Round struct {
	Round int     `json:"round"`
	Loss  float64 `json:"loss"` // mean over its steps, with all its terms
	// Value is the measure of held-out queries after the round, on a sample of them if
	// there are many.
	Value float64 `json:"value,omitempty"`
}

// addHistory reports the rounds of a trial.
func (r *Report) addHistory(s *train.Snapshot) {
	r.History = nil
	for _, round := range s.History {
		r.History = append(r.History, Round{Round: round.Number, Loss: round.MeanLoss, Value: round.Rating})
	}
}

// measure decides whether the net is worth it, on as many held-out queries as that needs, and
// reports its gates and what share of its best items a first stage finds. An interrupted fit
// looks at few queries.
func (f *fitter) measure(n *net) error {
	v, err := f.newView(n)
	if err != nil {
		return err
	}
	all, decide := judge.NewShuffled(f.log, f.options.Measure, f.split.HeldOut, f.options.Seed), judge.Decide
	if f.report.Interrupted {
		all, decide = f.thin(all), judge.DecideQuickly
	}
	o, err := decide(all, judge.InnerProductRival(), []judge.Rival{{Name: modelName, Numbers: n.countNumbers(), Marks: v.marks}}, verdict.DefaultRule())
	if err != nil {
		return err
	}
	f.task.Add(f.costOf(2 * o.Queries))
	f.report.Logged = o.Gains[0]
	f.report.setVerdict(o)
	sample := f.thin(all)
	if f.report.Usage, err = v.measureGates(sample); err != nil {
		return err
	}
	f.report.Recall, err = v.measureRecall(sample)
	return err
}

// modelName names the fitted model in a verdict.
const modelName = "this model"

// setVerdict sets the verdict of a decision between the model and the plain inner product.
func (r *Report) setVerdict(o *judge.Outcome) {
	r.Verdict = fit.NewVerdict(o.Decision, o.Queries, o.Choice())
	if o.Decision.Answer != verdict.Yes {
		return
	}
	advice := "Fit a bilinear form too: on frozen vectors it is often as good, and simpler."
	if r.Gates != GatesQuery {
		advice = "Fit gates of the query alone and a bilinear form too: they are often as good, and their answers are exact."
	}
	r.Verdict.Text = append(r.Verdict.Text, advice)
}

// recommend states the verdict, and what guarding costs and buys.
func (r *Report) recommend() {
	if r.Guarding != nil {
		r.Verdict.Text = append(r.Verdict.Text, r.Guarding.Text())
	}
	r.Recommendation = strings.Join(r.Verdict.Text, "\n")
}
