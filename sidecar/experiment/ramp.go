package experiment

// Promote says who puts a better candidate in service.
type Promote string

// Who puts a better candidate in service.
const (
	// Auto raises the candidate's share by itself.
	Auto Promote = "auto"
	// Ask waits for a person once the candidate is better.
	Ask Promote = "ask"
)

// Stage says where a ramp stands.
type Stage string

// Where a ramp stands.
const (
	// Running compares the arms.
	Running Stage = "running"
	// Waiting means that the candidate is better, and a person has to activate it.
	Waiting Stage = "waiting"
	// Promoted means that the candidate answers everything.
	Promoted Stage = "promoted"
	// Stopped means that the control answers everything again.
	Stopped Stage = "stopped"
)

// shares are the shares of the traffic that a ramp goes through.
func shares() []float64 { return []float64{0.01, 0.05, 0.25, 0.5, 1} }

// provenShare is the greatest share that a candidate gets before it is better.
const provenShare = 0.25

// stepAnswers is the number of answers after which a candidate without a breach goes on to the
// next share.
const stepAnswers = 500

// Ramp is the state of an experiment that raises the candidate's share.
type Ramp struct {
	Stage Stage   `json:"stage"`
	Share float64 `json:"share"`
	// Since is the number of answers at the last change of the share.
	Since int `json:"since"`
	// Why holds the reasons of the last change.
	Why []string `json:"why,omitempty"`
}

// NewRamp returns a ramp at its first share.
func NewRamp(share float64) Ramp { return Ramp{Stage: Running, Share: share} }

// Evidence holds the state of an experiment on which the next share of the candidate depends.
type Evidence struct {
	Decision Decision
	// Answers counts the answers of the experiment so far.
	Answers int
	// Breaches are the reasons of Guards.Check.
	Breaches []string
}

// Next returns the state after new evidence, which is the old state if nothing has to change. A breach or
// proved harm stops the experiment at once. With Auto the share grows with the number of answers up to a
// quarter of the traffic, and beyond only while the candidate is better. A stopped, promoted or waiting
// ramp stays as it is, but harm ends waiting too.
func (r Ramp) Next(e Evidence, promote Promote) Ramp {
	switch {
	case r.Stage == Stopped || r.Stage == Promoted:
		return r
	case len(e.Breaches) > 0:
		return Ramp{Stage: Stopped, Since: e.Answers, Why: e.Breaches}
	case e.Decision == Worse:
		return Ramp{Stage: Stopped, Since: e.Answers, Why: []string{"the candidate is worse"}}
	case r.Stage == Waiting:
		return r
	case e.Decision == Better && promote != Auto:
		return Ramp{Stage: Waiting, Share: r.Share, Since: e.Answers, Why: []string{"the candidate is better; activate it"}}
	case promote != Auto || e.Answers-r.Since < stepAnswers:
		return r
	}
	if r.Share == 1 && e.Decision == Better {
		return Ramp{Stage: Promoted, Share: 1, Since: e.Answers, Why: []string{"the candidate is better, and sound on all traffic"}}
	}
	for _, share := range shares() {
		switch {
		case share <= r.Share:
		case share <= provenShare:
			return Ramp{Stage: Running, Share: share, Since: e.Answers, Why: []string{"no guard was breached"}}
		case e.Decision == Better:
			return Ramp{Stage: Running, Share: share, Since: e.Answers, Why: []string{"the candidate is better"}}
		default:
			return r
		}
	}
	return r
}
