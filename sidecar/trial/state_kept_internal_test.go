package trial

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/search"
)

var settings = config.Experiment{Candidate: "v2", Kind: string(experiment.Interleaving), Alpha: 0.05, Session: minute, Share: 0.5}

// serving is the version in service, beside which any candidate opens.
type serving struct{ version, model string }

func (s serving) Serving(string) (version, model string, err error) { return s.version, s.model, nil }

func (serving) Activated(context.Context, string, string) (bool, error) { return false, nil }

func (s serving) OpenCandidate(context.Context, string, string) (*rollout.Candidate, error) {
	return &rollout.Candidate{Model: "m2", Beside: s.version, Control: s.model, Close: func() error { return nil }}, nil
}

// newTrial returns an experiment of the route r, whose events are in dir.
func newTrial(t *testing.T, dir string, now func() time.Time) (*trial, *events.Route) {
	t.Helper()
	kept, err := events.OpenRoute(statedir.Events(dir, "r"), "r", events.RouteOptions{Share: 1, Keep: []string{events.FieldUser, events.FieldText}, Log: events.LogOptions{Now: now}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	engine, err := search.New(nil, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &trial{
		Options: Options{Engine: engine, Versions: serving{"v1", "m1"}, Events: events.Book{"r": kept}, StateDir: dir, Logger: slog.New(slog.DiscardHandler)},
		route:   "r", settings: settings,
	}, kept
}

// TestJoin: after a restart an experiment has the counts and the waiting sessions of its state, and reads the
// sessions that are not counted yet, no others.
func TestJoin(t *testing.T) {
	dir, now := t.TempDir(), at(10)
	before, kept := newTrial(t, dir, func() time.Time { return now })
	state, err := begin(settings, "", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, period := range []int{10, 12} {
		now = at(period)
		m := shownTo("ann", 0, period)
		m.Text = "the same question"
		m.Answer = events.AnswerID{Call: kept.NewCall()}
		kept.Show(m)
	}
	if err := errors.Join(kept.Close(), before.join(state)); err != nil {
		t.Fatal(err)
	}
	if n := len(before.tally.open); n != 2 {
		t.Fatalf("%d sessions since the start, want 2", n)
	}
	state.Period, state.Unnamed = 12, 3
	state.Waiting[experiment.Control] = []float64{0.5}
	after, _ := newTrial(t, dir, func() time.Time { return now })
	if err := after.join(state); err != nil {
		t.Fatal(err)
	}
	if y := after.tally; len(y.open) != 1 || y.counts.Unnamed != 3 || !slices.Equal(y.Waiting[experiment.Control], []float64{0.5}) {
		t.Errorf("%d sessions, %+v, %v wait", len(y.open), y.counts, y.Waiting)
	} else {
		for _, s := range y.open {
			if !s.returning {
				t.Error("the query of a counted session is not remembered")
			}
		}
	}
}

// TestReadWithoutSegmentTests: the state of a version before segments had tests goes on, with new segments.
func TestReadWithoutSegmentTests(t *testing.T) {
	state, err := begin(settings, "", at(10))
	if err != nil {
		t.Fatal(err)
	}
	state.Unnamed, state.Segments = 3, Segments{"one_answer": {Control: Side{Sessions: 5}}}
	dir := t.TempDir()
	if err := statedir.WriteJSON(file(dir, "r"), state); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, "r")
	if err != nil || got.Unnamed != 3 || !got.Segments.areValid() {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDecideByTheVersionInService: an experiment ends when another version, or another model under the version's
// name, goes into service.
func TestDecideByTheVersionInService(t *testing.T) {
	for served, want := range map[serving]experiment.Stage{
		{"v1", "m1"}: experiment.Running, {"v2", "m2"}: experiment.Promoted, {"v3", "m1"}: experiment.Stopped, {"v1", "m3"}: experiment.Stopped,
	} {
		x, _ := newTrial(t, t.TempDir(), time.Now)
		state, err := begin(settings, "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		state.Beside, state.Control = "v1", "m1"
		if err := x.join(state); err != nil {
			t.Fatal(err)
		}
		x.Versions = served
		if _, after, err := x.decide(time.Now()); err != nil || after.Stage != want {
			t.Errorf("%+v in service: %s, %v, want %s", served, after.Stage, err, want)
		}
	}
}

// TestPrepare: an experiment that a person promotes takes the share of its settings, also if its state has another.
func TestPrepare(t *testing.T) {
	for promote, want := range map[experiment.Promote]float64{experiment.Ask: 0.5, experiment.Auto: 0.05} {
		x, _ := newTrial(t, t.TempDir(), time.Now)
		x.settings.Promote = string(promote)
		state, err := begin(settings, "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		state.Share, x.state = 0.05, state
		if err := x.prepare(t.Context(), time.Now()); err != nil || x.state.Share != want {
			t.Errorf("promoted by %s, the share is %g, want %g; %v", promote, x.state.Share, want, err)
		}
	}
}

// TestModelsOfAnExperiment: an experiment notes which models it compares. One that goes on with another model of either side
// begins again.
func TestModelsOfAnExperiment(t *testing.T) {
	for name, c := range map[string]struct {
		model, beside, control string
		again                  bool
	}{
		"new": {"", "", "", false}, "the same": {"m2", "v1", "m1", false}, "another candidate": {"m0", "v1", "m1", true},
		"another version": {"m2", "v0", "m1", true}, "another control": {"m2", "v1", "m0", true},
	} {
		x, _ := newTrial(t, t.TempDir(), time.Now)
		state, err := begin(settings, "", time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		state.Model, state.Beside, state.Control, x.state = c.model, c.beside, c.control, state
		if err := x.prepare(t.Context(), time.Now()); err != nil {
			t.Fatal(name, err)
		}
		if s := x.state; s.Model != "m2" || s.Beside != "v1" || s.Control != "m1" || (s != state) != c.again {
			t.Errorf("%s: model %q beside %q of model %q, begun again: %t", name, s.Model, s.Beside, s.Control, s != state)
		}
	}
}

// refusing has a version in service, and puts no other one there.
type refusing struct{ serving }

func (refusing) Activated(context.Context, string, string) (bool, error) {
	return false, errors.New("its table is damaged")
}

// TestABetterCandidateThatCannotServe: the experiment says why the candidate is not put in service, and tries again later.
func TestABetterCandidateThatCannotServe(t *testing.T) {
	x, _ := newTrial(t, t.TempDir(), time.Now)
	x.Versions = refusing{serving{"v2", "m2"}} // a person has activated the candidate
	state, err := begin(settings, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.join(state); err != nil {
		t.Fatal(err)
	}
	x.candidate = &rollout.Candidate{Close: func() error { return nil }}
	now := time.Now()
	if x.turn(t.Context(), now); !strings.Contains(x.waits, "its table is damaged") || !x.retry.After(now) || x.state.IsOver() {
		t.Errorf("it waits because of %q until %s, over %t", x.waits, x.retry, x.state.IsOver())
	}
}

// TestSaveAgain: counts that could not be written are written with the next save.
func TestSaveAgain(t *testing.T) {
	x, _ := newTrial(t, t.TempDir(), time.Now)
	var err error
	if x.state, err = begin(settings, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	routes := filepath.Join(x.StateDir, "routes")
	if err := os.WriteFile(routes, nil, 0o600); err != nil { // where a folder should be
		t.Fatal(err)
	}
	var log strings.Builder
	x.Logger = slog.New(slog.NewTextHandler(&log, nil))
	x.save(true)
	if !strings.Contains(log.String(), "not written") {
		t.Errorf("the log has %q", log.String())
	}
	if err := os.Remove(routes); err != nil {
		t.Fatal(err)
	}
	x.saved = time.Time{}
	x.save(false)
	if state, err := Read(x.StateDir, "r"); err != nil || state == nil {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestSearchesOfAnExperiment have every setting of the experiment, and report their outcomes to it.
func TestSearchesOfAnExperiment(t *testing.T) {
	x, _ := newTrial(t, t.TempDir(), time.Now)
	x.settings.Guard.LatencyP99, x.settings.Kind = 30*time.Millisecond, string(experiment.Dividing)
	x.candidate, x.state = &rollout.Candidate{Standby: &search.Standby{}}, &State{Version: "v2", Ramp: experiment.NewRamp(0.05)}
	got := x.searches()
	got.Attempted(search.Attempt{Empty: true})
	if x.state.Observed != (experiment.Observed{Answers: 1, Empty: 1}) || !x.dirty {
		t.Errorf("%+v is observed", x.state.Observed)
	}
	got.Attempted = nil
	if want := (&search.Trial{
		Name: "r/v2", Version: "v2", Kind: experiment.Dividing, Share: 0.05, Session: minute, Patience: 30 * time.Millisecond, Candidate: x.candidate.Standby,
	}); !reflect.DeepEqual(got, want) { //nolint:govet // no error is in either
		t.Errorf("%+v, want %+v", got, want)
	}
}

// closing opens candidates, and notes how many are closed.
type closing struct {
	serving

	opened, closed *int
}

func (c closing) OpenCandidate(ctx context.Context, route, version string) (*rollout.Candidate, error) {
	*c.opened++
	candidate, err := c.serving.OpenCandidate(ctx, route, version)
	candidate.Close = func() error { *c.closed++; return nil }
	return candidate, err
}

// TestRestart: an experiment that begins again closes its candidate, opens the version that is asked for, and forgets its evidence,
// once. It also closes the candidate when it ends.
func TestRestart(t *testing.T) {
	x, _ := newTrial(t, t.TempDir(), time.Now)
	opened, closed := 0, 0
	x.Versions = closing{serving{"v1", "m1"}, &opened, &closed}
	now := time.Now()
	for n, want := range []struct{ opened, closed int }{{1, 0}, {1, 0}, {2, 1}, {2, 1}} {
		if n == 2 {
			x.asked, x.state.Unnamed = asked{what: askedToRestart, version: "v3"}, 7
		}
		if err := x.prepare(t.Context(), now); err != nil || opened != want.opened || closed != want.closed {
			t.Fatalf("turn %d: %d opened, %d closed, want %+v; %v", n, opened, closed, want, err)
		}
	}
	if x.state.Unnamed != 0 || x.state.Version != "v3" || !x.state.isOf(settings) || !x.searched {
		t.Errorf("%+v", x.state)
	}
	x.leave()
	if closed != 2 || x.searched || x.tally != nil {
		t.Errorf("%d closed at the end", closed)
	}
}
