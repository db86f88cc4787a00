package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/gain"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// refitConfig is a route with two versions.
const refitConfig = `
state_dir: state
stores: {files: {kind: embedded, collections: {things: {vectors: items.npy}}}}
models: {a: {path: a.safetensors}, b: {path: b.safetensors}}
routes:
  things:
    store: files
    collection: things
    unit_vectors: true
    active: v1
    versions: {v1: {model: a}, v2: {model: b}}
    events: {share: 1}
    experiment: {candidate: v2, feedback: {click: 1}}
`

// clickedLog keeps the events of people who want the item nearest to the query with its halves swapped.
func clickedLog(t *testing.T, dir string, items rerank.Matrix) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	now := time.Now()
	kept, err := events.OpenRoute(statedir.Events(filepath.Join(dir, "state"), "things"), "things", events.RouteOptions{
		Share: 1, Keep: []string{events.FieldVector}, Log: events.LogOptions{Now: func() time.Time { return now }},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct{ days, answers int }{{20, 600}, {1, 200}} {
		now = time.Now().Add(-time.Duration(part.days) * 24 * time.Hour)
		var clicks []events.Feedback
		for range part.answers {
			now = now.Add(time.Minute)
			q, swapped := make([]float32, items.Cols), make([]float32, items.Cols)
			for i := range q {
				q[i] = float32(rng.NormFloat64())
				swapped[(i+items.Cols/2)%items.Cols] = q[i]
			}
			rerank.Normalise(q)
			best, most := 0, float32(-1e9)
			for i := range items.Rows {
				dot := float32(0)
				for j, x := range items.Row(i) {
					dot += x * swapped[j]
				}
				if dot > most {
					best, most = i, dot
				}
			}
			m := &events.Impression{Answer: events.AnswerID{Call: kept.NewCall()}, Vector: q, First: 1}
			for _, i := range rng.Perm(items.Rows)[:6] {
				if i != best && len(m.Items) < 5 {
					m.Items = append(m.Items, events.Item{ID: rerank.UintID(uint64(i))})
				}
			}
			m.Items[rng.IntN(5)].ID = rerank.UintID(uint64(best))
			kept.Show(m)
			clicks = append(clicks, events.Feedback{Answer: m.Answer, Item: rerank.UintID(uint64(best)), Kind: "click", Weight: 1})
		}
		if got, err := kept.Feed(t.Context(), clicks); err != nil || got.Accepted != part.answers {
			t.Fatal(got, err)
		}
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRefit: a model that is better takes the candidate's place, an interrupted run goes on, and one that
// is not better than what is in service changes nothing.
func TestRefit(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(4, 4))
	items := rerank.NewMatrix(150, 8)
	for i := range items.Rows {
		for j := range items.Cols {
			items.Row(i)[j] = float32(rng.NormFloat64())
		}
		rerank.Normalise(items.Row(i))
	}
	path := filepath.Join(dir, "likeness.yaml")
	if err := os.WriteFile(path, []byte(refitConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := npy.Write(filepath.Join(dir, "items.npy"), items); err != nil {
		t.Fatal(err)
	}
	plain, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "a", Config: json.RawMessage(`{"dim":8,"normalise":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Write(filepath.Join(dir, "a.safetensors"), plain); err != nil {
		t.Fatal(err)
	}
	clickedLog(t, dir, items)
	run := func(want, path string, more ...string) (refitDecision, string) {
		t.Helper()
		r := execute(t, "", append([]string{"refit", "--config", path, "--route", "things", "--newest", "72h", "--output", "json"}, more...)...)
		var d refitDecision
		if r.code != 0 || json.Unmarshal([]byte(r.out), &d) != nil || !strings.Contains(d.Reason, want) {
			t.Fatalf("%d, %s, %s", r.code, r.out, r.err)
		}
		return d, r.err
	}
	few, _ := run("600 choices, and 1000 are wanted", path)
	if _, err := os.Stat(filepath.Join(dir, "b.safetensors")); err == nil || few.Better {
		t.Fatalf("too few choices: %+v, %v", few, err)
	}
	writeExperiment(t, filepath.Join(dir, "state"), trial.State{Version: "v2", Ramp: experiment.NewRamp(0.05)}) // it waits for the first model
	fitFlags := []string{"--least", "500", "--", "--rounds", "4"}
	better, steps := run("better than the model in service: mrr@10 from clicks", path, fitFlags...)
	fitted, err := model.Open(filepath.Join(dir, "b.safetensors"))
	if !strings.Contains(steps, "shadow: the candidate answered") || !strings.Contains(steps, "0 answers failed, 0 degraded, 0 empty") {
		t.Errorf("no shadow step: %s", steps)
	}
	if err != nil || !better.Better || fitted.Version != better.Model || better.Served != plain.Version {
		t.Fatalf("%+v, %v", better, err)
	}

	gained := func(model string, first, now bool) {
		t.Helper()
		s, err := gain.Read(filepath.Join(dir, "state"), "things")
		if err != nil || s.Now.Model != model || s.First.Gain > 0.1 != first || s.Now.Gain > 0.1 != now || s.Fell() {
			t.Errorf("%+v, %v", s, err)
		}
	}
	gained(plain.Version, false, false) // cosine itself
	state := filepath.Join(dir, "state", "refit", "things")
	b, err := os.ReadFile(filepath.Join(state, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	interrupted := bytes.Replace(b, []byte(`"done": true`), []byte(`"done": false`), 1)
	if err := os.WriteFile(filepath.Join(state, "run.json"), interrupted, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, said := run("better than", path, fitFlags...); !strings.Contains(said, "goes on with the run") || strings.Contains(said, "refit: likeness fit") || again.Model != better.Model {
		t.Errorf("an interrupted run: %+v, %s", again, said)
	}

	// The candidate goes into service. The next one is tried as v1.
	if err := (choice.Choice{}).Next("v2", fitted.Version, "v1", time.Now()).Save(filepath.Join(dir, "state"), "things"); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "refit", "--config", path, "--route", "things", filepath.Join(dir, "state"), filepath.Join(dir, "other")); r.code != 1 || !strings.Contains(r.err, `put one in service everywhere`) {
		t.Errorf("sidecars with other versions in service: %d, %s", r.code, r.err)
	}
	if same, _ := run("the model that is in service; nothing is changed", path, fitFlags...); same.Better || same.Served != fitted.Version {
		t.Errorf("%+v", same)
	}
	measured, said := run("the model in service gains +0.", path, "--only-eval", "--version", "")
	if measured.Model != "" || strings.Contains(said, "likeness fit") || !strings.Contains(measured.Reason, "at first") {
		t.Errorf("%+v, %s", measured, said)
	}
	gained(fitted.Version, true, true)
	for want, form := range map[string][]string{
		"not shown to be better than cosine": {"--form", "diagonal"}, "not better than the model in service": {"--form", "low_rank", "--rank", "4"},
	} {
		if other, _ := run(want, path, append([]string{"--least", "500", "--", "--rounds", "4"}, form...)...); other.Better || other.Model == "" {
			t.Errorf("%+v", other)
		}
	}
	if m, err := model.Open(filepath.Join(dir, "a.safetensors")); err != nil || m.Version != plain.Version {
		t.Errorf("the candidate's model was changed: %v", err)
	}
	admin := &experimentOf{version: "v1"}
	at := httptest.NewTLSServer(admin)
	defer at.Close()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	if err := errors.Join(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw}), 0o600), os.WriteFile(token, []byte("canary\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{"failed to verify certificate": {"--token-file", token}, ": 401 ": {"--tls-ca", ca}} {
		if r := execute(t, "", append([]string{"refit", "--config", path, "--route", "things", "--admin", at.URL}, flags...)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%q: %d, %s, want %q", flags, r.code, r.err, want)
		}
	}
	experimentFlags := []string{"--decide", "experiment", "--admin", at.URL, "--tls-ca", ca, "--token-file", token}
	run("nothing is changed (--stop-experiment stops it)", path, append(experimentFlags, append(fitFlags, "--form", "diagonal")...)...)
	if m, err := model.Open(filepath.Join(dir, "a.safetensors")); err != nil || m.Version != plain.Version || len(admin.asked) != 0 {
		t.Errorf("the model of a running experiment was changed: %q, %v", admin.asked, err)
	}
	tried, said := run("the experiment decides", path, append([]string{"--stop-experiment"}, append(experimentFlags, append(fitFlags, "--form", "diagonal")...)...)...)
	if want := []string{"/experiments/stop?route=things", "/experiments/restart?route=things&version=v1"}; !slices.Equal(admin.asked, want) || !strings.Contains(said, "it is stopped") {
		t.Errorf("asked for %q, want %q: %s", admin.asked, want, said)
	}
	if m, err := model.Open(filepath.Join(dir, "a.safetensors")); err != nil || tried.Better || m.Version != tried.Model {
		t.Errorf("%+v is tried, %v", tried, err)
	}
	if m, err := model.Open(filepath.Join(state, "replaced.safetensors")); err != nil || m.Version != plain.Version {
		t.Errorf("the replaced model was not kept: %v", err)
	}
	writeExperiment(t, filepath.Join(dir, "state"), trial.State{Version: "v1", Model: "m", Ramp: experiment.NewRamp(0.05)})
	if again, _ := run(`the experiment with version "v1" is running`, path, fitFlags...); again.Model != "" {
		t.Errorf("%+v", again)
	}
	for _, args := range [][]string{{"--stop-experiment"}, {"--version", "v2"}, {"--version", "v9"}, {"--decide", "luck"}} {
		if r := execute(t, "", append([]string{"refit", "--config", path, "--route", "things"}, args...)...); r.code != 2 {
			t.Errorf("%q: %d, %s", args, r.code, r.err)
		}
	}
}

// experimentOf answers as the admin port of a sidecar with one experiment does, which ends some time after
// it was stopped. The port takes the token "canary".
type experimentOf struct {
	version string
	asked   []string // what was posted
	looks   int      // after the stop
}

func (e *experimentOf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer canary" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodPost {
		e.asked = append(e.asked, r.URL.String())
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s := trial.Status{Route: "things", State: trial.State{Version: e.version, Ramp: experiment.NewRamp(0.1)}, Searched: true}
	if len(e.asked) > 0 {
		e.looks++
		s.Stage, s.Searched = experiment.Stopped, e.looks < 3
	}
	_ = json.NewEncoder(w).Encode([]trial.Status{s})
}

// writeExperiment writes the state of the experiment of the route "things".
func writeExperiment(t *testing.T, stateDir string, s trial.State) {
	t.Helper()
	test, err := experiment.NewTest(0.05)
	if err != nil {
		t.Fatal(err)
	}
	if s.Test == nil {
		s.Test = test
	}
	s.Alpha = 0.05
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	at := statedir.Route(stateDir, "things")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "experiment.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestShadowRefuses: a candidate that fails, degrades or finds nothing more often than its guards permit is
// not tried; one failure among many stops nothing, and latency is left to the experiment.
func TestShadowRefuses(t *testing.T) {
	guard := config.ExperimentGuard{LatencyP99: time.Millisecond, Degraded: 0.01, Empty: 0.01, Errors: 0.01}
	for name, c := range map[string]struct {
		seen    experiment.Observed
		refused bool
	}{
		"sound": {experiment.Observed{Answers: 200}, false}, "one failure": {experiment.Observed{Answers: 200, Errors: 1}, false},
		"failures": {experiment.Observed{Answers: 200, Errors: 30}, true}, "degraded": {experiment.Observed{Answers: 200, Degraded: 30}, true},
		"empty": {experiment.Observed{Answers: 200, Empty: 30}, true}, "slow here": {experiment.Observed{Answers: 200, Slow: 200}, false},
	} {
		if why := (shadowReport{Observed: c.seen}).refusal(guard); (len(why) > 0) != c.refused {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestRefitDecision: better is what is shown to be better than the baseline and than the model in
// service; a difference that may be none is not.
func TestRefitDecision(t *testing.T) {
	models := func(gain, toBest eval.Paired, newIsBest bool) *eval.Report {
		r := &eval.Report{BaselineName: "cosine", Method: eval.Method{Metric: "mrr@10"}, Models: []eval.ModelReport{
			{Model: eval.Model{Version: "new"}, Gains: map[string]eval.Paired{"mrr@10": gain}}, {Model: eval.Model{Version: "old"}},
		}}
		at := 1
		if !newIsBest {
			at = 0
		}
		r.Models[at].ToBest = &toBest
		return r
	}
	paired := func(low, high float64) eval.Paired { return eval.Paired{Interval: eval.Interval{Low: low, High: high}} }
	for name, c := range map[string]struct {
		report *eval.Report
		better bool
		reason string
	}{
		"better":          {models(paired(0.1, 0.2), paired(-0.2, -0.1), true), true, "better than the model in service"},
		"may be equal":    {models(paired(0.1, 0.2), paired(-0.2, 0.01), true), false, "not shown to be better than the model in service"},
		"worse":           {models(paired(0.1, 0.2), paired(-0.2, -0.1), false), false, "not better than the model in service"},
		"no gain at all":  {models(paired(0, 0.2), paired(-0.2, -0.1), true), false, "not shown to be better than cosine"},
		"of other models": {&eval.Report{}, false, ""},
	} {
		better, reason, err := betterThan(c.report, "new", "old")
		if better != c.better || !strings.HasPrefix(reason, c.reason) || (err != nil) != (c.reason == "") {
			t.Errorf("%s: %t, %q, %v", name, better, reason, err)
		}
	}
}

// TestLineOfARefit: the fit is judged by its latest queries, goes on with an interrupted one, and takes the flags
// behind --.
func TestLineOfARefit(t *testing.T) {
	r := refit{refitFlags: &refitFlags{source: &source{Source: config.Source{File: "c.yaml", Set: []string{"a=b"}}}, route: "r", dir: t.TempDir(), kind: "mol"}, fit: []string{"--rounds", "4"}}
	want := "fit mol --config c.yaml --route r --set a=b --queries train-queries.parquet#vector --pairs train.parquet --split time --out model.safetensors"
	for _, resumes := range []string{"", " --resume"} {
		if resumes != "" {
			if err := os.WriteFile(r.file("model.safetensors.checkpoint"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.ReplaceAll(strings.Join(r.fitLine(), " "), r.dir+"/", ""); got != want+resumes+" --rounds 4" {
			t.Errorf("%s\nwant %s%s --rounds 4", got, want, resumes)
		}
	}
}

// TestWhichRunGoesOn: files are of a run with the same model in service, for the same version, that has not ended.
func TestWhichRunGoesOn(t *testing.T) {
	for begun, want := range map[refitRun]bool{
		{Served: "m", Version: "v2"}: true, {Served: "m", Version: "v3"}: false, {Served: "n", Version: "v2"}: false, {Served: "m", Version: "v2", Done: true}: false, {}: false,
	} {
		if got := begun.isOf("m", "v2"); got != want {
			t.Errorf("%+v: %t", begun, got)
		}
	}
}

// TestRefitRefusesASharedFile: a refit never replaces the file of the model in service.
func TestRefitRefusesASharedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "likeness.yaml")
	text := strings.ReplaceAll(refitConfig, "b.safetensors", "a.safetensors")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "refit", "--config", path, "--route", "things"); r.code != 2 || !strings.Contains(r.err, "have one model file") {
		t.Errorf("code %d, %s", r.code, r.err)
	}
}

// TestShadowAnswers: the queries of a shadow step lie all over the log, and its report counts each answer once, by
// what was wrong with it. No answer is no fault where the version in service has none either.
func TestShadowAnswers(t *testing.T) {
	if got := evenly(1000, 4); !slices.Equal(got, []int{0, 250, 500, 750}) || len(evenly(3, 4)) != 3 {
		t.Errorf("rows %v", got)
	}
	hits := func(ids ...uint64) (a search.Answer) {
		for _, id := range ids {
			a.Hits = append(a.Hits, search.Hit{ID: rerank.UintID(id)})
		}
		return a
	}
	degraded := hits(1)
	degraded.Degraded = &search.Degraded{}
	served := []shadowAnswer{{answer: hits(1, 2)}, {answer: hits(1)}, {answer: hits(1)}, {answer: hits(1)}, {}}
	candidate := []shadowAnswer{
		{answer: hits(2, 1), took: time.Second}, {err: errors.New("no")}, {answer: degraded}, {}, {},
	}
	got := compareAnswers(served, candidate)
	want := shadowReport{Observed: experiment.Observed{Answers: 5, Errors: 1, Degraded: 1, Empty: 1}, Common: 0.6, P99: time.Second}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
