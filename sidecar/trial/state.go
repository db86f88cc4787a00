package trial

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/search"
)

// State holds an experiment's versions, counts and verdict. It is kept in routes/ROUTE/experiment.json of
// the state folder, so that a restart loses nothing.
type State struct {
	// Version is the candidate, and Model the digest of its model. Beside is the version in service, and
	// Control the digest of that one's model. All but Version are "" before the candidate is open.
	Version string `json:"version"`
	// Configured is experiment.candidate as it was when the experiment began; "" stands for Version.
	Configured string          `json:"configured,omitempty"`
	Model      string          `json:"model"`
	Beside     string          `json:"beside"`
	Control    string          `json:"control"`
	Kind       experiment.Kind `json:"kind"`
	Alpha      float64         `json:"alpha"`
	Started    time.Time       `json:"started"`
	Ended      time.Time       `json:"ended,omitzero"`
	experiment.Ramp
	Comparison
	// Observed counts the candidate's answers, Recent the last of them, which the guards watch.
	Observed experiment.Observed `json:"observed"`
	Recent   experiment.Observed `json:"recent"`
	// Session is the length of a period. Test has counted the sessions of all periods before number
	// Period.
	Session time.Duration `json:"session"`
	Period  int64         `json:"period"`
	Counts
}

// Comparison tells from sessions which version is better. In an experiment that divides requests, each session
// is compared with one of the other arm: Waiting holds, by arm, the values of the ended sessions that still
// have no partner.
type Comparison struct {
	Test    *experiment.Test `json:"test"`
	Waiting [3][]float64     `json:"waiting"`
}

// Counts describe the sessions of Test.
type Counts struct {
	// Unnamed counts sessions without a user, each of one query. One person may have had several.
	Unnamed  int      `json:"unnamed,omitempty"`
	Segments Segments `json:"segments,omitzero"`
}

// IsOver reports whether the experiment has ended: the candidate answers no more searches.
func (s *State) IsOver() bool {
	return s.Stage == experiment.Stopped || s.Stage == experiment.Promoted
}

// begin returns the first state of an experiment with a version, or with the configured candidate.
func begin(e config.Experiment, version string, now time.Time) (*State, error) {
	test, err := experiment.NewTest(e.Alpha)
	if err != nil {
		return nil, err
	}
	segments, err := newSegments(e.Alpha)
	return &State{
		Version: cmp.Or(version, e.Candidate), Configured: e.Candidate, Kind: experiment.Kind(e.Kind), Alpha: e.Alpha, Started: now.UTC(), Ramp: experiment.NewRamp(e.Share), Comparison: Comparison{Test: test},
		Session: e.Session, Period: now.UnixNano() / int64(e.Session), Counts: Counts{Segments: segments},
	}, err
}

// isOf reports whether the state belongs to the experiment that the configuration describes.
func (s *State) isOf(e config.Experiment) bool {
	return cmp.Or(s.Configured, s.Version) == e.Candidate && s.Kind == experiment.Kind(e.Kind) && s.Alpha == e.Alpha && s.Session == e.Session
}

// compares reports whether the evidence so far is about the candidate and the version beside which it was opened.
func (s *State) compares(c *rollout.Candidate) bool {
	return s.Model == "" || s.Model == c.Model && s.Beside == c.Beside && s.Control == c.Control
}

// recentAnswers is how many answers Recent counts before it begins again.
const recentAnswers = 2000

// observe counts an answer of the candidate.
func (s *State) observe(a search.Attempt) {
	if s.Recent.Answers >= recentAnswers {
		s.Recent = experiment.Observed{}
	}
	for _, o := range []*experiment.Observed{&s.Observed, &s.Recent} {
		o.Answers++
		for count, is := range map[*int]bool{&o.Slow: a.Slow, &o.Degraded: a.Degraded, &o.Empty: a.Empty, &o.Errors: a.Err != nil} {
			if is {
				*count++
			}
		}
	}
}

// breaches returns why the guards stop the experiment: for all answers of the candidate or, if those are within the
// limits, for the recent ones.
func (s *State) breaches(g config.ExperimentGuard) []string {
	guards := experiment.Guards{LatencyP99: g.LatencyP99, Degraded: g.Degraded, Empty: g.Empty, Errors: g.Errors}
	if all := guards.Check(s.Observed); len(all) > 0 {
		return all
	}
	return guards.Check(s.Recent)
}

// Read returns the state of a route's experiment, or nil if there was none.
func Read(stateDir, route string) (*State, error) {
	path := file(stateDir, route)
	s := &State{}
	found, err := statedir.ReadJSON(path, s)
	if found && !s.Test.IsValid() {
		err = errors.New("its test is damaged")
	}
	if found && err == nil && !s.Segments.areValid() { // an older version wrote it
		s.Segments, err = newSegments(s.Alpha)
	}
	if err != nil {
		return nil, fmt.Errorf("the state of the experiment of route %q, %s: %w; remove it to begin again", route, path, err)
	}
	if !found {
		return nil, nil
	}
	return s, nil
}

func file(stateDir, route string) string {
	return filepath.Join(statedir.Route(stateDir, route), "experiment.json")
}

// Status describes an experiment for the admin page and `likeness experiment status`.
type Status struct {
	Route string `json:"route"`
	State
	Verdict
	Segments []SegmentStatus `json:"segments,omitempty"`
	// Searched reports that the candidate answers searches now.
	Searched bool `json:"searched"`
	// Dropped counts the answers and feedback since the start that no session took, because too many
	// sessions were open or the session was full.
	Dropped int64 `json:"dropped,omitempty"`
	// Waits says why an experiment that should run does not; "" if it runs or is over.
	Waits string `json:"waits,omitempty"`
}

// StatusOf describes a state.
func StatusOf(route string, s *State) Status {
	out := Status{Route: route, State: *s, Verdict: verdictOf(s.Test), Segments: s.Segments.statuses(s.Kind)}
	out.Test, out.State.Segments = s.Test.Clone(), nil // a status is read while the experiment goes on
	return out
}

// Verdict says what a test shows.
type Verdict struct {
	Decision experiment.Decision `json:"decision"`
	// Evidence is the evidence so far, as a share of the evidence that a decision needs.
	Evidence float64 `json:"evidence"`
	// Mean is the mean preference for the candidate, from −1 to 1, and Low and High its bounds.
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Decisive counts the sessions with a preference. Missing is how many more of them decide if the
	// preference stays as it is; 0 if that is not known.
	Decisive int `json:"decisive"`
	Missing  int `json:"missing,omitempty"`
}

func verdictOf(t *experiment.Test) Verdict {
	out := Verdict{Decision: t.Decided, Evidence: min(1, t.Evidence())}
	out.Low, out.High = t.Interval()
	if t.Units == 0 {
		return out
	}
	out.Mean, out.Decisive = t.Sum/float64(t.Units), int(math.Round(t.Squares))
	if t.Decided != experiment.Undecided || out.Decisive == 0 {
		return out
	}
	p, err := experiment.NewPlan(experiment.Question{
		Preference: 0.5 + math.Abs(t.Sum)/t.Squares/2, Decisive: 1, Alpha: t.Alpha, Power: 0.5, Impressions: 1, Share: 1,
	})
	if err == nil {
		out.Missing = max(1, p.Preferences-out.Decisive)
	}
	return out
}

// Leader says who is ahead, and how sure that is.
func (v Verdict) Leader() string {
	switch {
	case v.Decision == experiment.Better:
		return "the candidate is better"
	case v.Decision == experiment.Worse:
		return "the candidate is worse"
	case v.Mean > 0:
		return "the candidate leads, not proved"
	case v.Mean < 0:
		return "the version in service leads, not proved"
	default:
		return "nobody leads"
	}
}
