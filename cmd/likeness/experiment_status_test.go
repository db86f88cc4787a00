package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// TestExperimentStatus: the state of a sidecar's experiment is told in words.
func TestExperimentStatus(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "likeness.yaml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(refitConfig, "%s", "v1")), 0o600); err != nil {
		t.Fatal(err)
	}
	status := []string{"experiment", "status", "--config", config, "--route", "things"}
	if r := execute(t, "", status...); r.code != 1 || !strings.Contains(r.err, "no experiment") {
		t.Errorf("without one: %+v", r)
	}
	test, err := experiment.NewTest(0.05)
	if err != nil {
		t.Fatal(err)
	}
	for _, preference := range []float64{1, 1, 0, -1, 1} {
		if _, err := test.Add(preference); err != nil {
			t.Fatal(err)
		}
	}
	writeExperiment(t, filepath.Join(dir, "state"), trial.State{Version: "v2", Kind: experiment.Interleaving, Alpha: 0.05, Started: time.Now(), Ramp: experiment.NewRamp(0.05), Comparison: trial.Comparison{Test: test}})
	addToSegment(t, filepath.Join(dir, "state"), "new queries", 1)
	r := execute(t, "", status...)
	for _, want := range []string{"version v2, running", "share 0.05", "the candidate leads, not proved", "5 sessions, 4 with a preference: mean preference +0.400", "sessions with a preference are missing", "sessions with new queries: the candidate leads, not proved; mean preference +1.000"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%q is not in %+v", want, r)
		}
	}
	if r := execute(t, "", append(status, "--output", "json")...); r.code != 0 || !strings.Contains(r.out, `"decisive": 4`) || !strings.Contains(r.out, `"name": "new queries"`) {
		t.Errorf("%+v", r)
	}
	at := filepath.Join(statedir.Route(filepath.Join(dir, "state"), "things"), "experiment.json")
	if err := os.WriteFile(at, []byte(`{"version":"v2","test":{"alpha":0.05}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", status...); r.code != 1 || !strings.Contains(r.err, "remove it to begin again") {
		t.Errorf("a damaged state: %+v", r)
	}
}

// addToSegment adds a session's preference to a segment of the kept experiment.
func addToSegment(t *testing.T, stateDir, segment string, preference float64) {
	t.Helper()
	state, err := trial.Read(stateDir, "things")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.Segments[segment].Test.Add(preference); err != nil {
		t.Fatal(err)
	}
	writeExperiment(t, stateDir, *state)
}
