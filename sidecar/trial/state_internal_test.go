package trial

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestStatusStays: a status does not change while its experiment goes on, since others read it meanwhile.
func TestStatusStays(t *testing.T) {
	state, err := begin(config.Experiment{Candidate: "v2", Kind: "interleave", Alpha: 0.05, Session: time.Minute, Share: 0.5}, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	status := StatusOf("r", state)
	before := *status.Test
	before.Up, before.Down = slices.Clone(before.Up), slices.Clone(before.Down)
	if _, err := state.Test.Add(1); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*status.Test, before) || reflect.DeepEqual(*state.Test, before) {
		t.Errorf("the status has %+v, the state %+v; before there was %+v", status.Test, state.Test, before)
	}
}

// TestMissing: what is missing is what a plan for the preference so far has, less the preferences so far.
func TestMissing(t *testing.T) {
	test, err := experiment.NewTest(0.05)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		difference := 1.0
		if i%5 < 2 {
			difference = -1
		}
		if _, err := test.Add(difference); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := experiment.NewPlan(experiment.Question{Preference: 0.6, Decisive: 1, Alpha: 0.05, Power: 0.5, Impressions: 1, Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s := StatusOf("r", &State{Comparison: Comparison{Test: test}}); s.Missing != plan.Preferences-20 || s.Decisive != 20 || s.Mean != 0.2 {
		t.Errorf("%d are missing of %d; %+v", s.Missing, plan.Preferences, s)
	}
}

// TestObserve: each answer counts once in every count that it belongs to, and the recent ones are counted from the
// start again after a while, so that good answers of long ago hide no fault.
func TestObserve(t *testing.T) {
	s := &State{}
	for _, a := range []search.Attempt{{}, {Slow: true}, {Degraded: true}, {Empty: true}, {Err: errors.New("no"), Slow: true}} {
		s.observe(a)
	}
	if want := (experiment.Observed{Answers: 5, Slow: 2, Degraded: 1, Empty: 1, Errors: 1}); s.Observed != want || s.Recent != want {
		t.Errorf("%+v and %+v, want %+v", s.Observed, s.Recent, want)
	}
	for range recentAnswers - 5 + 3 {
		s.observe(search.Attempt{})
	}
	if want := (experiment.Observed{Answers: 3}); s.Recent != want || s.Observed.Answers != recentAnswers+3 || s.Observed.Errors != 1 {
		t.Errorf("%+v of late, %+v in all", s.Recent, s.Observed)
	}
}

// TestBreaches: each guard stops an experiment for all of its answers, or for the recent ones alone.
func TestBreaches(t *testing.T) {
	bad, good := experiment.Observed{Answers: 1000, Slow: 100, Degraded: 100, Empty: 100, Errors: 100}, experiment.Observed{Answers: 1000}
	for what, g := range map[string]config.ExperimentGuard{
		"slower": {LatencyP99: time.Second}, "degraded": {Degraded: 0.01}, "empty": {Empty: 0.01}, "errors": {Errors: 0.01},
	} {
		for _, s := range []State{{Observed: bad}, {Observed: good, Recent: bad}} {
			if why := s.breaches(g); len(why) != 1 || !strings.HasPrefix(why[0], what) {
				t.Errorf("%s: %q of %+v", what, why, s)
			}
		}
		if why := (&State{Observed: good, Recent: good}).breaches(g); len(why) > 0 {
			t.Errorf("%s: %q of good answers", what, why)
		}
	}
}

// TestWhatEvidenceCompares: evidence about other models, or about another version in service, does not count.
func TestWhatEvidenceCompares(t *testing.T) {
	c := &rollout.Candidate{Model: "m2", Beside: "v1", Control: "m1"}
	for s, want := range map[*State]bool{
		{}: true, {Model: "m2", Beside: "v1", Control: "m1"}: true,
		{Model: "m3", Beside: "v1", Control: "m1"}: false, {Model: "m2", Beside: "v0", Control: "m1"}: false, {Model: "m2", Beside: "v1", Control: "m0"}: false,
	} {
		if got := s.compares(c); got != want {
			t.Errorf("%s, %s, %s: %t", s.Model, s.Beside, s.Control, got)
		}
	}
}

// TestIsOf: evidence counts for an experiment with the same candidate, kind, alpha and session.
func TestIsOf(t *testing.T) {
	e := config.Experiment{Candidate: "v2", Kind: "interleave", Alpha: 0.05, Session: time.Minute, Share: 0.5}
	state, err := begin(e, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	share, candidate, kind, alpha, session := e, e, e, e, e
	share.Share, candidate.Candidate, kind.Kind, alpha.Alpha, session.Session = 0.6, "v3", "ab", 0.01, time.Hour
	for other, want := range map[*config.Experiment]bool{&e: true, &share: true, &candidate: false, &kind: false, &alpha: false, &session: false} {
		if got := state.isOf(*other); got != want {
			t.Errorf("%+v: %t", *other, got)
		}
	}
}
