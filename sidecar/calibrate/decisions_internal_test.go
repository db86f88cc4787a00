package calibrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestWhatIsSkippedDoesNotDependOnTheAnswer: an answer that was proved exact counts as kept only
// where another answer would have been compared. Otherwise a busy sidecar would audit the proved
// answers alone, and find the promise kept.
func TestWhatIsSkippedDoesNotDependOnTheAnswer(t *testing.T) {
	sim := dotOfTwo(t)
	rows := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0.1, 0, 0.3}}
	of := func(format rerank.Format) *table.Table {
		all, err := table.FromMemory(table.Meta{Format: format}, []rerank.ID{rerank.UintID(1), rerank.UintID(2)}, rows, nil)
		must(t, err)
		return all
	}
	proved := rerank.Certificate{Status: rerank.StatusExact, Proof: rerank.ProofScan}
	calibrated := rerank.Certificate{Status: rerank.StatusCalibrated}
	right, wrong := []rerank.Scored{{ID: rerank.UintID(1), Score: 1}}, []rerank.Scored{{ID: rerank.UintID(2)}}
	for name, c := range map[string]struct {
		busy        bool
		table       *table.Table
		certificate rerank.Certificate
		answer      []rerank.Scored
		recall      float64
		skipped     string
	}{
		"proved":               {false, of(rerank.FormatFloat32), proved, right, 1, ""},
		"proved, busy":         {true, of(rerank.FormatFloat32), proved, right, 0, SkippedLoad},
		"proved, rounded":      {false, of(rerank.FormatInt8), proved, right, 0, SkippedFailed},
		"proved, no table":     {false, nil, proved, right, 0, SkippedFailed},
		"calibrated":           {false, of(rerank.FormatFloat32), calibrated, right, 1, ""},
		"calibrated, wrong":    {false, of(rerank.FormatFloat32), calibrated, wrong, 0, ""},
		"calibrated, busy":     {true, of(rerank.FormatFloat32), calibrated, right, 0, SkippedLoad},
		"calibrated, rounded":  {false, of(rerank.FormatInt8), calibrated, right, 0, SkippedFailed},
		"calibrated, no table": {false, nil, calibrated, right, 0, SkippedFailed},
	} {
		a := NewAuditor(AuditorOptions{Busy: func() bool { return c.busy }})
		d := drawn{answer: c.answer, certificate: c.certificate}
		d.request.K, d.request.Query.Vector = 1, []float32{1, 0}
		recall, skipped := a.recall(t.Context(), &route.Route{Parts: route.Parts{Table: c.table, Model: route.Model{Similarity: sim}}}, d)
		if recall != c.recall || skipped != c.skipped {
			t.Errorf("%s: recall %g, skipped %q; want %g, %q", name, recall, skipped, c.recall, c.skipped)
		}
	}
}

// TestAnAuditEndsWithItsContext: an answer is not compared any more once the process ends, and counts as one that could not be.
func TestAnAuditEndsWithItsContext(t *testing.T) {
	rows := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0.1, 0, 0.3}}
	all, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1), rerank.UintID(2)}, rows, nil)
	must(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d := drawn{certificate: rerank.Certificate{Status: rerank.StatusCalibrated}}
	d.request.K, d.request.Query.Vector = 1, []float32{1, 0}
	if recall, skipped := NewAuditor(AuditorOptions{}).recall(ended, &route.Route{Parts: route.Parts{Table: all, Model: route.Model{Similarity: dotOfTwo(t)}}}, d); skipped != SkippedFailed {
		t.Errorf("recall %g, skipped %q", recall, skipped)
	}
}

// overlaps is a BatchScorer that notes the most calls at the same time.
type overlaps struct {
	mu        sync.Mutex
	now, most int
}

func (o *overlaps) ScoreBatch([]float32, []rerank.Encoded, rerank.Items) error {
	o.add(1)
	<-time.After(time.Second) // of a bubble's clock, so that every call that may overlap does
	o.add(-1)
	return nil
}

func (o *overlaps) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now += n
	o.most = max(o.most, o.now)
}

// TestAScanLeavesProcessorsAlone: a scan of live answers scores on one core, and a calibration of an operator on as many as there are.
func TestAScanLeavesProcessorsAlone(t *testing.T) {
	const groups = 3
	for cores, want := range map[int]int{1: 1, 2: 2, 0: min(groups, runtime.GOMAXPROCS(0))} {
		synctest.Test(t, func(t *testing.T) {
			var o overlaps
			s := &streamSource{route: &route.Route{Parts: route.Parts{Model: route.Model{Similarity: dotOfTwo(t)}}}, can: rerank.Abilities{ScoreBatch: &o}, cores: cores}
			queries := make([]rerank.Encoded, groups*queriesTogether)
			tops := make([]*exactTop, len(queries))
			for n := range queries {
				queries[n] = wideScores{errors: make([]float64, 1), calls: new(int)}
				tops[n] = newExactTop(queries[n], 1, nil)
			}
			rows := adapters.Rows{IDs: []rerank.ID{rerank.UintID(1)}, Vectors: []rerank.Matrix{rerank.NewMatrix(1, 2)}}
			if must(t, s.score(t.Context(), rows, queries, tops)); o.most != want {
				t.Errorf("%d cores: %d groups of queries are scored at the same time, want %d", cores, o.most, want)
			}
		})
	}
}

// TestAnAnsweredQueryIsNotAskedAgain: not even for its exact answer, which may take a pass over
// the collection.
func TestAnAnsweredQueryIsNotAskedAgain(t *testing.T) {
	j, err := openJournal("", "x")
	must(t, err)
	must(t, j.write(entry{Query: 3, Answers: []answered{{Depth: 5}, {Depth: 20}}}))
	r := &run{journal: j} // without a source of exact answers
	must(t, r.askOne(t.Context(), 3, rerank.Query{}, rerank.Rule{Depth: 5}))
	if got := len(j.answers[3]); got != 2 {
		t.Errorf("%d answers are noted, want 2", got)
	}
}

// TestARuleNeedsADepth: a file whose rule has none, or a negative one, promises nothing.
func TestARuleNeedsADepth(t *testing.T) {
	const text = `{"calibration":{"recall":0.9,"share":0.95,"alpha":0.05,"queries":100,"k":10,"rule":{"strategy":"combined","depth":D,"average_depth":A}}}`
	for depths, ok := range map[[2]string]bool{{"1", "0"}: true, {"5", "3"}: true, {"0", "3"}: false, {"-1", "3"}: false, {"5", "-1"}: false} {
		_, err := parse([]byte(strings.NewReplacer("D", depths[0], "A", depths[1]).Replace(text)))
		if (err == nil) != ok {
			t.Errorf("depths %q: %v", depths, err)
		}
	}
}

// TestAnswersOfAnotherCalibration do not count: they were given under another promise.
func TestAnswersOfAnotherCalibration(t *testing.T) {
	k := Keep("", 0.01)
	k.report = &Report{Calibration: &rerank.Calibration{Recall: 0.9, Share: 0.95}}
	before := *k.report.Calibration
	must(t, k.note(&before, 0))
	must(t, k.note(k.report.Calibration, 1))
	if a := k.Audit(); a.Audited != 1 || a.Missed != 0 {
		t.Errorf("%+v, want one answer, which kept the promise", a)
	}
}

// TestExactAnswersAreOfTheVersionInService: after a switch they come from the model that took over.
func TestExactAnswersAreOfTheVersionInService(t *testing.T) {
	store := embedded.New()
	must(t, store.Load("things", embedded.Collection{Fields: []embedded.Field{{Vectors: rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}}}}}))
	crossed, err := bilinear.New(bilinear.Config{QueryDim: 2, ItemDim: 2}, tensor.Set{"W": {Shape: []int{2, 2}, Data: []float32{0, 1, 1, 0}}})
	must(t, err)
	a := NewAuditor(AuditorOptions{Logger: slog.New(slog.DiscardHandler)})
	for want, sim := range []rerank.Similarity{dotOfTwo(t), crossed} {
		r := &route.Route{
			Policy: route.Policy{Name: "things", Collection: "things", StoreName: "files", Placement: route.PlacementStored, Strategy: rerank.Average, Depth: 1},
			Parts:  route.Parts{Store: store, Model: route.Model{Version: fmt.Sprint(want), Similarity: sim}},
		}
		got, err := a.searchExactly(t.Context(), r, drawn{route: "things", request: search.Request{Query: rerank.Query{Vector: []float32{1, 0}}, K: 1}})
		if err != nil || len(got.top) != 1 || got.top[0].ID != rerank.UintID(uint64(want)) {
			t.Errorf("version %d: %+v, %v", want, got, err)
		}
	}
}

// TestACalibrationIsReadWhenItsFileChanged, be it another length in the same moment, or the same
// length later; and a file that is gone promises nothing.
func TestACalibrationIsReadWhenItsFileChanged(t *testing.T) {
	path := Path(t.TempDir(), "things", "v")
	r := &Report{Calibration: &rerank.Calibration{Recall: 0.9, Share: 0.95, Alpha: 0.05, Queries: 100, K: 1, Rule: rerank.Rule{Strategy: rerank.Average, Depth: 5}}, Version: "v"}
	at := time.Unix(1e9, 0)
	write := func(queries int, at time.Time) {
		r.Calibration.Queries = queries
		must(t, r.Save(path))
		must(t, os.Chtimes(path, at, at))
	}
	write(100, at)
	k := Keep(path, 0.01)
	k.Opened(&route.Route{Policy: route.Policy{Strategy: rerank.Average, MaxDepth: 5}, Parts: route.Parts{Model: route.Model{Version: "v"}}}, nil)
	queries := func() int {
		if c, void := k.Calibration(); c != nil && void == "" {
			return c.Queries
		}
		return 0
	}
	if k.Refresh() || queries() != 100 {
		t.Errorf("without a change: a calibration by %d queries", queries())
	}
	write(1000, at)
	if !k.Refresh() || queries() != 1000 {
		t.Errorf("another length: a calibration by %d queries", queries())
	}
	write(2000, at.Add(time.Second))
	if !k.Refresh() || queries() != 2000 {
		t.Errorf("another time: a calibration by %d queries", queries())
	}
	must(t, os.Remove(path))
	if !k.Refresh() || queries() != 0 || k.Refresh() {
		t.Errorf("without a file: a calibration by %d queries", queries())
	}
}

// TestACalibrationFitsItsRoute: it was made for the model, the collection and the rule of the
// route, whose depth the route allows.
func TestACalibrationFitsItsRoute(t *testing.T) {
	for name, change := range map[string]func(r *route.Route){
		"":           func(*route.Route) {},
		"model":      func(r *route.Route) { r.Model.Version = "w" },
		"collection": func(r *route.Route) { r.Collection = "others" },
		"strategy":   func(r *route.Route) { r.Strategy = rerank.Average },
		"weights":    func(r *route.Route) { r.Weights = rerank.GateWeights },
		"head":       func(r *route.Route) { r.Head = "h" },
		"max_depth":  func(r *route.Route) { r.MaxDepth = 8 },
	} {
		k := Keep(t.TempDir()+"/none", 0.01)
		k.report = &Report{Version: "v", Collection: "things", Calibration: &rerank.Calibration{
			Rule: rerank.Rule{Strategy: rerank.Combined, Depth: 5, AverageDepth: 9, Weights: rerank.UniformWeights},
		}}
		r := &route.Route{Policy: route.Policy{Collection: "things", Strategy: rerank.Combined, Weights: rerank.UniformWeights, MaxDepth: 9}, Parts: route.Parts{Model: route.Model{Version: "v"}}}
		change(r)
		k.Opened(r, nil)
		if c, void := k.Calibration(); (c != nil && void == "") != (name == "") || (c == nil) != (name != "") {
			t.Errorf("another %s: %+v, %q", name, c, void)
		}
	}
}

// TestKeptOfASelfReport: the report counts the answers that reached the recall that it promises.
func TestKeptOfASelfReport(t *testing.T) {
	recalls := slices.Concat(slices.Repeat([]float64{1}, 198), []float64{0, 0})
	report := selfReport(&route.Route{}, kind{k: 10}, recalls, "table")
	if report == nil || report.Promise.Recall != 1 || report.Rules[0].Kept != 198 || report.Rules[0].Queries != 200 {
		t.Errorf("%+v", report)
	}
}

// TestExactAnswersOfAStore: an answer counts as the exact one only if it was proved, and then with the
// rounding of its scores: rows within it tie, and are not missed.
func TestExactAnswersOfAStore(t *testing.T) {
	id := rerank.UintID(7)
	answer := search.Answer{Hits: []search.Hit{{ID: id, Score: 2}}, Certificate: rerank.Certificate{Status: rerank.StatusExact, Epsilon: .25}}
	exact, err := exactOf(answer)
	if err != nil || exact.epsilon != .25 || len(exact.top) != 1 || exact.top[0].ID != id || exact.top[0].Score != 2 {
		t.Errorf("%+v, %v", exact, err)
	}
	answer.Certificate.Status = rerank.StatusSnapshot
	if exact, err := exactOf(answer); !errors.Is(err, errNotExact) || exact.top != nil {
		t.Errorf("of an answer that is not proved: %+v, %v", exact, err)
	}
}

// TestAnIndexThatChangedEndsAPromise that the route made of its live answers, whether or not a file keeps it.
func TestAnIndexThatChangedEndsAPromise(t *testing.T) {
	for _, path := range []string{"", Path(t.TempDir(), "things", "v")} {
		k := Keep(path, 0.01)
		r := &route.Route{Policy: route.Policy{Name: "things", Strategy: rerank.Average, MaxDepth: 5}, Parts: route.Parts{Model: route.Model{Version: "v"}}}
		k.Opened(r, map[string]string{"collection.m": "16"})
		report := selfReport(r, kind{k: 10, rule: rerank.Rule{Strategy: rerank.Average, Depth: 5}}, slices.Repeat([]float64{1}, selfQueries), "table")
		must(t, k.adopt(report))
		for m, holds := range map[string]bool{"16": true, "32": false} {
			k.Described(map[string]string{"collection.m": m})
			if c, void := k.Calibration(); c == nil || (void == "") != holds {
				t.Errorf("file %q, m is %s: %+v, %q", path, m, c, void)
			}
		}
	}
}

// TestExactAnswersThatFailInARow: only those in a row end a route's own calibration.
func TestExactAnswersThatFailInARow(t *testing.T) {
	all, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 0}}, nil)
	must(t, err)
	o := &outcomes{}
	a := o.auditor(Audits{Self: true})
	r := &route.Route{Policy: route.Policy{Name: "things"}, Parts: route.Parts{Table: all, Model: route.Model{Similarity: dotOfTwo(t)}}}
	d := drawn{route: "things", certificate: rerank.Certificate{Status: rerank.StatusExact, Depth: 1}, self: true}
	a.sample("things", "").failed = selfFailures - 1
	a.collect(t.Context(), r, Keep("", 0.01), d)
	if s := a.samples["things"]; s.failed != 0 || !slices.Equal(o.all, []string{OutcomeSampled}) {
		t.Errorf("after an answer that was compared, %d failed in a row, outcomes %q", s.failed, o.all)
	}
}
