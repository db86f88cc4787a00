package calibrate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// outcomes records the outcomes of audits. It is also the Holder of one route.
type outcomes struct {
	all   []string
	route *route.Route
	held  int
}

func (o *outcomes) Audited(_, outcome string)            { o.all = append(o.all, outcome) }
func (*outcomes) Promise(string, bool, float64, float64) {}
func (o *outcomes) Hold(string) (*route.Route, func(), error) {
	o.held++
	return o.route, func() { o.held-- }, nil
}
func (o *outcomes) auditor(a Audits) *Auditor {
	return NewAuditor(AuditorOptions{Routes: map[string]Audits{"things": a}, Recorder: o, Logger: slog.New(slog.DiscardHandler)})
}

// TestDrawnAnswers: which answers are drawn, and that an answer is kept as it was.
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
		"filtered":     {change: func(r *search.Request, _ *search.Answer) { r.Filter = "{}" }},
		"narrowed":     {change: func(_ *search.Request, a *search.Answer) { a.Narrowed = true }},
		"a scan's":     {change: func(_ *search.Request, a *search.Answer) { a.Strategy = rerank.Scan }},
	} {
		a := (&outcomes{}).auditor(Audits{Share: 1, PerSecond: 1})
		vector := []float32{1, 2}
		r, answer := search.Request{Query: rerank.Query{Vector: vector}, K: 1}, calibrated
		if c.change != nil {
			c.change(&r, &answer)
		}
		a.Searched(t.Context(), "things", r, answer, c.err)
		if drawn := len(a.queue) == 1; drawn != c.drawn {
			t.Errorf("%s: drawn is %t, want %t", name, drawn, c.drawn)
		}
		if vector[0] = 7; c.drawn {
			if d := <-a.queue; d.request.Query.Vector[0] != 1 || d.route != "things" || !slices.Equal(d.answer, scored(answer.Hits)) {
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
	for version, want := range map[string][]string{"v1": nil, "v2": {SkippedFailed}} { // there is no table to compare with
		o.all = nil
		o.auditor(Audits{}).audit(context.Background(), o, drawn{route: "things", version: version, certificate: rerank.Certificate{Status: rerank.StatusCalibrated, Calibration: c}})
		if !slices.Equal(o.all, want) || o.held != 0 {
			t.Errorf("an answer of %s ended as %q, want %q; %d versions are held", version, o.all, want, o.held)
		}
	}
}

// TestExactTop: an item whose score rounding moved below others is among the best, and items
// whose scores one float32 cannot tell apart tie.
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
	scores[0], scores[1] = 1000-off/2, 1000 // as rounding within its bound may have it
	top := newExactTop(q, 1)
	if err := top.add(items, scores, func(i int) (rerank.ID, bool) { return rerank.UintID(uint64(i)), true }); err != nil {
		t.Fatal(err)
	}
	a := top.answer()
	if len(a.top) != 1 || a.top[0].ID != rerank.UintID(0) || a.top[0].Score != 1000 {
		t.Errorf("the best is %+v, want item 0", a.top)
	}
	if least := float32(1000 * 0x1p-24); a.epsilon < least {
		t.Errorf("epsilon is %v; a float32 of this size is off by %v at most", a.epsilon, least)
	}
}
