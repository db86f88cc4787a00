package calibrate

import (
	"context"
	"errors"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestMeasuredRoute: a calibration measures the rule itself. No bound on the gap deepens or
// refuses an answer, no timeout cuts it off, no failure is an answer, and no scan replaces it.
func TestMeasuredRoute(t *testing.T) {
	gap := float32(0.5)
	given := route.Route{Policy: route.Policy{
		Name: "things", Collection: "c", Depth: 7, MaxGap: &gap, Timeout: time.Second, Failure: route.FailOpen, ScanIfFaster: true,
	}}
	want := given
	want.MaxGap, want.Timeout, want.Failure, want.ScanIfFaster = nil, 0, route.FailClosed, false
	want.Promise = &opening{}
	if got := measuredRoute(given, want.Promise); !reflect.DeepEqual(got, want) { //nolint:govet // neither has an error
		t.Errorf("a calibration searches %+v, want %+v", got, want)
	}
}

// TestRequestByRule: a search by a rule has every setting of the rule.
func TestRequestByRule(t *testing.T) {
	rule := rerank.Rule{Strategy: rerank.Combined, Depth: 7, AverageDepth: 5, Weights: rerank.GateWeights, Head: "h"}
	q := rerank.Query{Vector: []float32{1}, UserID: 2, HasUserID: true}
	got := requestByRule("things", q, 3, rule)
	want := search.Request{Route: "things", Query: q, K: 3, Strategy: rerank.Combined, Depth: 7, AverageDepth: 5, Weights: rerank.GateWeights, Head: "h"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOutcome: the outcome of a rule summarises the answers to the given queries only.
func TestOutcome(t *testing.T) {
	j, err := openJournal("", "x")
	must(t, err)
	for n := range 300 { // each but every tenth of the middle hundred reaches the recall
		a := answered{Depth: 5, Recall: 1, Candidates: 10, Took: float64(1 + (n*37)%100)}
		if n < 100 || n >= 200 {
			a.Recall, a.Candidates, a.Took = 0, 0, 1000
		} else if n%10 == 0 {
			a.Recall, a.Candidates = 0.5, 20
		}
		must(t, j.write(entry{Query: n, Answers: []answered{{Depth: 9}, a}}))
	}
	p := Promise{K: 10, Recall: 0.9, Share: 0.5, Alpha: 0.01}
	o := (&run{journal: j}).outcome(p, rerank.Rule{Depth: 5}, 100, 200)
	if o.Queries != 100 || o.Kept != 90 || !(math.Abs(o.MeanRecall-0.95) <= 1e-9) || !(math.Abs(o.Candidates-11) <= 1e-9) || o.P50 != 51 || o.P99 != 99 {
		t.Errorf("%+v", o)
	}
	if want := LeastShare(90, 100, 0.01); o.LeastShare != want {
		t.Errorf("the share is at least %v, want %v", o.LeastShare, want)
	}
	var recalls []float64
	for n := range 100 {
		recalls = append(recalls, map[bool]float64{true: 0.5, false: 1}[n%10 == 0])
	}
	if want := leastMean(recalls, 0.01); !(math.Abs(o.LeastMeanRecall-want) <= 1e-9) {
		t.Errorf("the mean recall is at least %v, want %v", o.LeastMeanRecall, want)
	}
}

// meeting is an exactSource that blocks each caller until two are there.
type meeting struct {
	exactSource
	both *sync.WaitGroup
}

var errMet = errors.New("two met")

func (m meeting) answer(context.Context, int, rerank.Query, int) (exactAnswer, error) {
	m.both.Done()
	m.both.Wait()
	return exactAnswer{}, errMet
}

// TestParallelQuestions: the input's number of queries run concurrently.
func TestParallelQuestions(t *testing.T) {
	j, err := openJournal("", "x")
	must(t, err)
	m := meeting{both: &sync.WaitGroup{}}
	m.both.Add(2)
	r := &run{Input: Input{Parallel: 2}, journal: j, exact: m}
	if err := r.ask(t.Context(), "", make([]rerank.Query, 2), 0, 2, rerank.Rule{Depth: 5}); !errors.Is(err, errMet) {
		t.Errorf("error %v, want %v", err, errMet)
	}
}

// TestPrecise: a table answers exactly if its rows are not rounded, or it keeps them in full too.
func TestPrecise(t *testing.T) {
	sim := dotOfTwo(t)
	for _, c := range []struct {
		format      rerank.Format
		full, exact bool
	}{{rerank.FormatFloat32, false, true}, {rerank.FormatBFloat16, false, false}, {rerank.FormatBFloat16, true, true}} {
		path := t.TempDir() + "/t"
		w, err := table.NewWriter(path, table.Meta{Features: 2, Format: c.format, Full: c.full})
		must(t, err)
		must(t, w.Append([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 1 + 0x1p-20}}))
		must(t, w.Close())
		tab, err := table.Open(path, table.Expect{})
		must(t, err)
		if Precise(tab) != c.exact {
			t.Errorf("a table of %s, in full %t, is precise: %t", c.format, c.full, !c.exact)
		}
		if top, err := scanTable(route.Model{Similarity: sim}, tab, rerank.Query{Vector: []float32{0, 1}}, 1, nil, func() error { return nil }); c.exact && (err != nil || top.top[0].Score != 1+0x1p-20) {
			t.Errorf("the exact answer from %s is %+v, %v", c.format, top, err)
		}
		must(t, tab.Close())
	}
}

// TestDeletedRowsAreNoAnswer: the exact answer from a live table has no row that was deleted or replaced.
func TestDeletedRowsAreNoAnswer(t *testing.T) {
	path, one, two := t.TempDir()+"/t", rerank.UintID(1), rerank.UintID(2)
	w, err := table.NewWriter(path, table.Meta{Features: 2})
	must(t, err)
	must(t, w.Append([]rerank.ID{one, two, rerank.UintID(3)}, rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{9, 0, 8, 0, 1, 0}}))
	must(t, w.Close())
	live, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{})
	must(t, err)
	defer func() { must(t, live.Close()) }()
	must(t, live.Delete([]rerank.ID{one}))
	must(t, live.Upsert([]rerank.ID{two}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{2, 0}}, nil))
	snapshot := live.Snapshot()
	defer snapshot.Release()
	top, err := scanTable(route.Model{Similarity: dotOfTwo(t)}, snapshot, rerank.Query{Vector: []float32{1, 0}}, 2, nil, func() error { return nil })
	if err != nil || len(top.top) != 2 || top.top[0].ID != two || top.top[0].Score != 2 {
		t.Errorf("the exact answer is %+v, %v; want item 2 as it is now, then item 3", top.top, err)
	}
}

// TestExactSource: exact answers come from a table in full precision, else from the collection,
// unless only a table keeps the rows of an item together.
func TestExactSource(t *testing.T) {
	of := func(owner string) (exactSource, error) {
		r := &run{opening: &opening{route: route.Route{Policy: route.Policy{Owner: owner}, Parts: route.Parts{Store: embedded.New(), Model: route.Model{Similarity: dotOfTwo(t)}}}}}
		s, _, err := r.exactSource()
		return s, err
	}
	if s, err := of(""); err != nil || s.name() != "collection" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := of("item"); !errors.Is(err, ErrInput) {
		t.Errorf("items of several rows: %v", err)
	}
}

func dotOfTwo(t *testing.T) rerank.Similarity {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	must(t, err)
	return sim
}
