package calibrate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// outcomes records the outcomes of audits. It is also the Holder of one route.
type outcomes struct {
	all   []string
	holds []bool // one for each promise that was reported
	route *route.Route
	held  int
}

func (o *outcomes) Audited(rt, outcome string) {
	if rt != "things" {
		outcome += " of another route"
	}
	o.all = append(o.all, outcome)
}
func (o *outcomes) Promise(_ string, holds bool, _, _ float64) {
	o.holds = append(o.holds, holds)
}
func (o *outcomes) Hold(string) (*route.Route, func(), error) {
	o.held++
	return o.route, func() { o.held-- }, nil
}
func (o *outcomes) auditor(a Audits) *Auditor {
	return NewAuditor(AuditorOptions{Routes: map[string]Audits{"things": a}, Recorder: o, Logger: slog.New(slog.DiscardHandler)})
}

// TestDrawnAnswers: only some answers are drawn, and a drawn answer is not changed.
func TestDrawnAnswers(t *testing.T) {
	calibrated := search.Answer{Hits: []search.Hit{{ID: rerank.UintID(1), Score: 2}}, Strategy: rerank.Average, Certificate: rerank.Certificate{Status: rerank.StatusCalibrated}}
	for name, c := range map[string]struct {
		change func(*search.Request, *search.Answer)
		err    error
		drawn  bool
	}{
		"calibrated":   {drawn: true},
		"proved exact": {change: func(_ *search.Request, a *search.Answer) { a.Certificate.Status = rerank.StatusExact }, drawn: true},
		"unknown":      {change: func(_ *search.Request, a *search.Answer) { a.Certificate.Status = rerank.StatusUnknown }},
		"failed":       {err: errors.New("failed")},
		"degraded":     {change: func(_ *search.Request, a *search.Answer) { a.Degraded = &search.Degraded{Reason: "store"} }},
		"a history's": {change: func(r *search.Request, _ *search.Answer) {
			r.History = []plan.WeightedID{{ID: rerank.UintID(1), Weight: 1}}
		}},
		"filtered": {change: func(r *search.Request, _ *search.Answer) { r.Filter = "{}" }},
		"narrowed": {change: func(_ *search.Request, a *search.Answer) { a.Narrowed = true }},
		"a scan's": {change: func(_ *search.Request, a *search.Answer) { a.Strategy = rerank.Scan }},
	} {
		a := (&outcomes{}).auditor(Audits{Share: 1, PerSecond: 1})
		vector, vectors, excluded := []float32{1, 2}, []float32{3, 4}, []rerank.ID{rerank.UintID(5)}
		r, answer := search.Request{Query: rerank.Query{Vector: vector, Vectors: rerank.Matrix{Rows: 1, Cols: 2, Data: vectors}}, K: 1, Exclude: excluded}, calibrated
		if c.change != nil {
			c.change(&r, &answer)
		}
		a.Searched(t.Context(), "things", r, answer, c.err)
		if drawn := len(a.queue) == 1; drawn != c.drawn {
			t.Errorf("%s: drawn is %t, want %t", name, drawn, c.drawn)
		}
		vector[0], vectors[0], excluded[0] = 7, 7, rerank.UintID(7) // the caller uses its memory again
		if c.drawn {
			if d := <-a.queue; d.request.Query.Vector[0] != 1 || d.request.Query.Vectors.Data[0] != 3 || d.request.Exclude[0] != rerank.UintID(5) || d.route != "things" || !slices.Equal(d.answer, scored(answer.Hits)) {
				t.Errorf("%s: %+v was drawn", name, d)
			}
		}
	}
}

// TestAuditRate: no more answers are drawn than per_second allows, and the others are counted.
func TestAuditRate(t *testing.T) {
	answer := search.Answer{Certificate: rerank.Certificate{Status: rerank.StatusCalibrated}}
	for perSecond, want := range map[float64]int{0: 0, 1e-9: 1, 1e-3: 1} {
		var o outcomes
		a := o.auditor(Audits{Share: 1, PerSecond: perSecond})
		for range 3 {
			a.Searched(t.Context(), "things", search.Request{}, answer, nil)
		}
		if len(a.queue) != want || !slices.Equal(o.all, slices.Repeat([]string{SkippedRate}, 3-want)) {
			t.Errorf("%v a second: %d were drawn, the others ended as %q; want %d", perSecond, len(a.queue), o.all, want)
		}
	}
}

// TestAuditQueue: when the queue is full, an answer is counted and not drawn.
func TestAuditQueue(t *testing.T) {
	var o outcomes
	a := o.auditor(Audits{Share: 1, PerSecond: 1e12})
	answer := search.Answer{Certificate: rerank.Certificate{Status: rerank.StatusCalibrated}}
	for drawn := 0; drawn < maxQueue; { // two may come in the same nanosecond
		a.Searched(t.Context(), "things", search.Request{}, answer, nil)
		drawn = len(a.queue)
	}
	for before := len(o.all); len(o.all) == before || o.all[len(o.all)-1] == SkippedRate; {
		a.Searched(t.Context(), "things", search.Request{}, answer, nil)
	}
	if last := o.all[len(o.all)-1]; last != SkippedQueue {
		t.Errorf("an answer more than the queue holds ended as %q", last)
	}
}

// TestCoveredAnswers lists which answers a promise covers. An answer that was proved exact is
// covered if it would carry the promise otherwise.
func TestCoveredAnswers(t *testing.T) {
	c := &rerank.Calibration{K: 10, Rule: rerank.Rule{Strategy: rerank.Combined, Depth: 20, AverageDepth: 5, Weights: rerank.GateWeights, Head: "h"}}
	other := *c
	r := &route.Route{Policy: route.Policy{Weights: rerank.GateWeights, Head: "h"}}
	exact := drawn{request: search.Request{K: 10}, strategy: rerank.Combined, certificate: rerank.Certificate{Status: rerank.StatusExact, Depth: 20}}
	for name, of := range map[string]struct {
		change func(*drawn)
		want   bool
	}{
		"proved exact": {func(*drawn) {}, true},
		"calibrated":   {func(d *drawn) { d.certificate = rerank.Certificate{Status: rerank.StatusCalibrated, Calibration: c} }, true},
		"of a calibration before": {func(d *drawn) {
			d.certificate = rerank.Certificate{Status: rerank.StatusCalibrated, Calibration: &other}
		}, false},
		"exact, another K":              {func(d *drawn) { d.request.K = 11 }, false},
		"exact, another strategy":       {func(d *drawn) { d.strategy = rerank.Average }, false},
		"exact, less deep":              {func(d *drawn) { d.certificate.Depth = 19 }, false},
		"exact, asked for its weights":  {func(d *drawn) { d.request.Weights = rerank.GateWeights }, true},
		"exact, asked for others":       {func(d *drawn) { d.request.Weights = rerank.UniformWeights }, false},
		"exact, asked for another head": {func(d *drawn) { d.request.Head = "g" }, false},
		"exact, average depth":          {func(d *drawn) { d.request.AverageDepth = 4 }, false},
	} {
		d := exact
		of.change(&d)
		if got := d.carries(c, r); got != of.want {
			t.Errorf("%s: the promise covers it: %t", name, got)
		}
	}
}

// TestAuditedVersion: an answer is audited only while the version that gave it is served.
func TestAuditedVersion(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := Path(t.TempDir(), "things", "v2")
	made := &rerank.Calibration{Recall: 0.9, Share: 0.95, Alpha: 0.05, Queries: 100, K: 1, Rule: rerank.Rule{Strategy: rerank.Average, Depth: 5}, Made: time.Now().UTC().Truncate(time.Second)}
	if err := (&Report{Calibration: made, Version: "v2"}).Save(path); err != nil {
		t.Fatal(err)
	}
	k := Keep(path, 0.01)
	o := &outcomes{route: &route.Route{Policy: route.Policy{Name: "things"}, Parts: route.Parts{Model: route.Model{Version: "v2", Similarity: sim}, Promise: k}}}
	k.Opened(&route.Route{Policy: route.Policy{Strategy: rerank.Average, MaxDepth: 5}, Parts: o.route.Parts}, nil)
	c, void := k.Calibration()
	if c == nil || void != "" {
		t.Fatalf("the promise is %+v, %q", c, void)
	}
	o.auditor(Audits{}).report("things", k)
	if !slices.Equal(o.holds, []bool{true}) {
		t.Errorf("a promise that holds was told as %v", o.holds)
	}
	for version, want := range map[string][]string{"v1": nil, "v2": {SkippedFailed}} { // there is no table to compare with
		o.all = nil
		o.auditor(Audits{}).audit(context.Background(), o, drawn{route: "things", version: version, certificate: rerank.Certificate{Status: rerank.StatusCalibrated, Calibration: c}})
		if !slices.Equal(o.all, want) || o.held != 0 {
			t.Errorf("an answer of %s ended as %q, want %q; %d versions are held", version, o.all, want, o.held)
		}
	}
	tab, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1)}, rerank.NewMatrix(1, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := drawn{route: "things", version: "v2", self: true, certificate: rerank.Certificate{Status: rerank.StatusCalibrated, Calibration: c}}
	d.request.K, d.request.Query.Vector = 1, []float32{1, 0}
	a := o.auditor(Audits{})
	a.samples["things"] = &selfSample{version: "v2", failed: 3}
	if a.audit(context.Background(), o, d); a.samples["things"].failed != 4 {
		t.Errorf("an exact answer that failed after three others: %d are counted", a.samples["things"].failed)
	}
	o.route.Table = tab
	if a.audit(context.Background(), o, d); a.samples["things"].failed != 0 {
		t.Errorf("after an exact answer %d failures in a row are counted", a.samples["things"].failed)
	}
	k.Described(map[string]string{"collection.index": "another"}) // the promise is void
	o.all, o.holds = nil, nil
	o.auditor(Audits{}).audit(context.Background(), o, drawn{route: "things", version: "v2", certificate: rerank.Certificate{Status: rerank.StatusCalibrated, Calibration: c}})
	o.auditor(Audits{}).report("things", k)
	if o.all != nil || !slices.Equal(o.holds, []bool{false}) {
		t.Errorf("a void promise was audited with %q and told as %v", o.all, o.holds)
	}
	if err := o.auditor(Audits{}).each(o, func(string, *route.Route, *Keeper) error { return nil }); err != nil || o.held != 0 {
		t.Errorf("after a look at every promise: %v, %d versions are held", err, o.held)
	}
}

// TestPromisesAreLoggedOnce: a promise is logged when it changes, not after every audit.
func TestPromisesAreLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	k := Keep(Path(t.TempDir(), "things", "v1"), 0.01)
	a := NewAuditor(AuditorOptions{Recorder: &outcomes{}, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	for _, s := range []standing{{nil, ""}, {&rerank.Calibration{}, ""}, {&rerank.Calibration{}, ""}, {nil, "void"}, {nil, "void"}, {nil, ""}} {
		k.standing.Store(&s)
		a.report("things", k)
	}
	if n := bytes.Count(text.Bytes(), []byte("\n")); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, text.Bytes())
	}
}

// TestExactTop: an item among the best is kept even if rounding moved its score below others, and
// items whose scores one float32 cannot tell apart tie.
func TestExactTop(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := sim.Encode(rerank.Query{Vector: []float32{1000, 0}})
	if err != nil {
		t.Fatal(err)
	}
	rows := rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 1 - 0x1p-24, 0, 0.5, 0}}
	items := rerank.Items{Features: rows}
	scores := make([]float32, 3)
	if err := q.Score(scores, items); err != nil {
		t.Fatal(err)
	}
	off := q.Bound(nil, nil).Epsilon
	if !(off > 1000*0x1p-24) {
		t.Fatalf("the bound of rounding is %v", off)
	}
	scores[0], scores[1] = 1000-0.9*off, 1000+0.9*off // as rounding within its bound may leave them
	top := newExactTop(q, 1, nil)
	if err := top.add(items, scores, func(i int) (rerank.ID, bool) { return rerank.UintID(uint64(i)), true }); err != nil {
		t.Fatal(err)
	}
	a := top.answer()
	if len(a.top) != 1 || a.top[0].ID != rerank.UintID(0) || a.top[0].Score != 1000 {
		t.Errorf("the best is %+v, want item 0", a.top)
	}
}

// TestExactTopError: the error of exact scores is the greatest error in float64 of all batches,
// and half a step of the largest float32, whatever its sign.
func TestExactTopError(t *testing.T) {
	for wide, least := range map[float64]float32{0: 1000 * 0x1p-24, 0.5: 0.5 + 1000*0x1p-24} {
		top := rerank.NewTopK(2)
		top.Push(rerank.Scored{ID: rerank.UintID(1), Score: 3})
		top.Push(rerank.Scored{ID: rerank.UintID(2), Score: -1000})
		if a := (&exactTop{top: top, wideError: wide}).answer(); a.epsilon < least || a.epsilon > least*1.001 {
			t.Errorf("epsilon is %v, want %v or a little more", a.epsilon, least)
		}
	}
	e := &exactTop{query: wideScores{errors: []float64{0.25, 0.125}, calls: new(int)}, k: 1, top: rerank.NewTopK(1)}
	for range 2 {
		err := e.add(rerank.Items{Features: rerank.NewMatrix(1, 1)}, []float32{1}, func(int) (rerank.ID, bool) { return rerank.UintID(1), true })
		if err != nil {
			t.Fatal(err)
		}
	}
	if e.wideError != 0.25 {
		t.Errorf("the error in float64 is %v, want 0.25", e.wideError)
	}
}

// wideScores is an encoded query whose float64 scores are all 1, with a given error for each call.
type wideScores struct {
	rerank.Encoded
	errors []float64
	calls  *int
}

func (wideScores) Bound([]rerank.Probe, []rerank.List) rerank.Bound { return rerank.Bound{Epsilon: 1} }

func (w wideScores) ScoreWide(dst []float64, _ rerank.Items) (float64, error) {
	for i := range dst {
		dst[i] = 1
	}
	*w.calls++
	return w.errors[*w.calls-1], nil
}
