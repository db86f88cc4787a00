package eval_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
)

const dim = 4

func matrix(rows int, seed uint64) rerank.Matrix {
	r := rand.New(rand.NewPCG(seed, 1))
	m := rerank.NewMatrix(rows, dim)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

// flipped is φ(q, x) = −⟨q, x⟩ on unit vectors: cosine upside down.
func flipped(t *testing.T) route.Model {
	t.Helper()
	w := tensor.Tensor{Shape: []int{dim, dim}, Data: make([]float32, dim*dim)}
	for i := range dim {
		w.Data[i*dim+i] = -1
	}
	s, err := bilinear.New(bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: true}, tensor.Set{"W": w})
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: "flipped", Version: "1", Similarity: s}
}

func cosine(t *testing.T) route.Model {
	t.Helper()
	s, err := dot.New(dot.Config{Dim: dim, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: "cosine", Similarity: s}
}

// world is a model that puts the items of least cosine first, with pairs that
// name, for every query but the last, the item of least cosine.
func world(t *testing.T) eval.Input {
	t.Helper()
	in := eval.Input{Model: flipped(t), Baseline: cosine(t), Queries: matrix(20, 1), Items: matrix(700, 2), K: 10}
	relevant := make([][]int32, in.Queries.Rows)
	for q := range in.Queries.Rows - 1 {
		least, at := math.Inf(1), 0
		for i := range in.Items.Rows {
			if c := cos(in.Queries.Row(q), in.Items.Row(i)); c < least {
				least, at = c, i
			}
		}
		relevant[q] = []int32{int32(at)}
	}
	in.Pairs = eval.NewPairs(relevant)
	return in
}

func cos(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum / rerank.Norm(a) / rerank.Norm(b)
}

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	in := world(t)
	var err error
	if in.Trials, err = eval.ParseTrials("average:20,stored:20,stored:800,scan"); err != nil {
		t.Fatal(err)
	}
	var steps atomic.Int64
	in.Progress = func(string, int) func(int) { return func(n int) { steps.Add(int64(n)) } }
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if r.Metrics["mrr@10"] != 1 || r.Metrics["recall@1"] != 1 || r.Baseline["mrr@10"] != 0 {
		t.Errorf("the model has %v, cosine %v; want 1 and 0", r.Metrics, r.Baseline)
	}
	want := eval.Counts{Items: 700, Queries: 19, Pairs: 19, QueriesWithoutPairs: 1}
	if r.Counts != want {
		t.Errorf("counts %+v, want %+v", r.Counts, want)
	}
	// One exact list of φ itself, a list of the worst rows, every row, a scan.
	for i, want := range []struct{ recall, exact, candidates float64 }{{1, 1, 20}, {0, 0, 20}, {1, 1, 700}, {1, 1, 700}} {
		o := r.Strategies[i]
		if o.FirstStageRecall != want.recall || o.Exact != want.exact || !(math.Abs(o.Candidates-want.candidates) <= 5) {
			t.Errorf("%s: %+v, want %+v", o.Name, o, want)
		}
	}
	if steps.Load() != 2*700+2*19+4*19 {
		t.Errorf("progress of %d steps", steps.Load())
	}
}

// TestRunWithoutSeenItems: what was seen before a query is missing from every ranking and from
// what each strategy answers. Here it is all that ranks before the relevant item by cosine, so
// that cosine is perfect.
func TestRunWithoutSeenItems(t *testing.T) {
	in := world(t)
	in.Model, in.Baseline = cosine(t), flipped(t)
	in.Seen = make([][]int32, in.Queries.Rows)
	for q := range in.Seen {
		relevant := in.Pairs.Relevant(q)
		for x := range int32(in.Items.Rows) {
			if x%7 < 6 && len(relevant) > 0 && x != relevant[0] {
				in.Seen[q] = append(in.Seen[q], x)
			}
		}
	}
	var err error
	if in.Trials, err = eval.ParseTrials("average:20,scan"); err != nil {
		t.Fatal(err)
	}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if r.Baseline["mrr@10"] != 1 {
		t.Errorf("the baseline has %v", r.Baseline)
	}
	for _, o := range r.Strategies { // compared with the exact ranking, which has no seen item either
		if o.FirstStageRecall != 1 || o.Exact != 1 {
			t.Errorf("%s: %+v, want the exact answers", o.Name, o)
		}
	}
	for q := range in.Seen { // nothing is left but the relevant item
		in.Seen[q] = nil
		for x := range int32(in.Items.Rows) {
			if relevant := in.Pairs.Relevant(q); len(relevant) > 0 && x != relevant[0] {
				in.Seen[q] = append(in.Seen[q], x)
			}
		}
	}
	if r, err = eval.Run(t.Context(), in); err != nil || r.Metrics["recall@1"] != 1 {
		t.Errorf("with one item left cosine has %v, %v; want 1", r.Metrics, err)
	}
}

func TestRunTakesEveryNthQuery(t *testing.T) {
	in := world(t)
	in.Every, in.Baseline, in.Seen = 6, route.Model{}, make([][]int32, in.Queries.Rows)
	for q := range in.Seen { // a third of the items, another third than the query before
		for x := q % 3; x < in.Items.Rows; x += 3 {
			if !slices.Contains(in.Pairs.Relevant(q), int32(x)) {
				in.Seen[q] = append(in.Seen[q], int32(x))
			}
		}
	}
	var err error
	if in.Trials, err = eval.ParseTrials("scan"); err != nil {
		t.Fatal(err)
	}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if r.Counts.Queries != 4 || r.Counts.QueriesSkipped != 16 || r.Baseline != nil {
		t.Errorf("%+v, baseline %v", r.Counts, r.Baseline)
	}
	if found := r.Strategies[0].FirstStageRecall; found != 1 {
		t.Errorf("without the items that each query has seen, a scan finds %g of the exact ranking", found)
	}
	if r.Method.Margin != verdict.DefaultMargin {
		t.Errorf("the margin is %g where none was asked for", r.Method.Margin)
	}
}

func TestRunBreaksTiesByID(t *testing.T) {
	in := world(t)
	for i := range in.Items.Rows {
		copy(in.Items.Row(i), in.Items.Row(0)) // all alike
	}
	in.ItemIDs = make([]rerank.ID, in.Items.Rows)
	for i := range in.ItemIDs {
		in.ItemIDs[i] = rerank.UintID(uint64(in.Items.Rows - i)) // the last row has the least id
	}
	for row, want := range map[int32]float64{699: 1, 698: 0.5, 697: 1.0 / 3, 0: 0} {
		relevant := make([][]int32, in.Queries.Rows)
		relevant[0] = []int32{row}
		in.K, in.Pairs = 3, eval.NewPairs(relevant)
		r, err := eval.Run(t.Context(), in)
		if err != nil || r.Metrics["mrr@3"] != want {
			t.Errorf("row %d: %v, %v; want %v", row, r, err, want)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*eval.Input){
		"k is 0":                func(in *eval.Input) { in.K = 0 },
		"queries have 3":        func(in *eval.Input) { in.Queries.Cols = 3 },
		"items have 3":          func(in *eval.Input) { in.Items.Cols = 3 },
		"1 item ids":            func(in *eval.Input) { in.ItemIDs = []rerank.ID{rerank.UintID(1)} },
		"1 user ids":            func(in *eval.Input) { in.UserIDs = []int64{1} },
		"no query that was cho": func(in *eval.Input) { in.Pairs = eval.NewPairs(make([][]int32, 20)) },
		"margin is 1,":          func(in *eval.Input) { in.Margin = 1 },
		"margin is -0.1,":       func(in *eval.Input) { in.Margin = -0.1 },
		"the least gain -0.1":   func(in *eval.Input) { in.LeastGain = -0.1 },
		"to plan for NaN":       func(in *eval.Input) { in.Power = math.NaN() },
		"confidence is 1;":      func(in *eval.Input) { in.Confidence = 1 },
		"popularity of 1":       func(in *eval.Input) { in.Popularity = []float64{1} },
		"seen items of 1":       func(in *eval.Input) { in.Seen = make([][]int32, 1) },
		"traffic of 1":          func(in *eval.Input) { in.Asked = []float64{1} },
		"1 marked as seen":      func(in *eval.Input) { in.SeenBefore = []bool{true} },
	} {
		in := world(t)
		spoil(&in)
		_, err := eval.Run(t.Context(), in)
		if !errors.Is(err, eval.ErrInput) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want ErrInput", name, err)
		}
	}
	in := world(t)
	in.Trials = []eval.Trial{{Name: "distilled:5", Strategy: rerank.Distilled, Depth: 5}}
	if _, err := eval.Run(t.Context(), in); !errors.Is(err, route.ErrSetup) {
		t.Errorf("a strategy that the model lacks: got %v, want ErrSetup", err)
	}
	in = world(t)
	in.Queries.Data[0] = float32(math.NaN())
	if _, err := eval.Run(t.Context(), in); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of NaN: got %v, want ErrQuery", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := eval.Run(ctx, world(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: got %v", err)
	}
}

func TestReportKeepsTheOrderOfStrategies(t *testing.T) {
	b, err := json.Marshal(eval.Report{Strategies: eval.Strategies{{Name: "b:1"}, {Name: "a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(b); strings.Index(text, `"b:1":{`) > strings.Index(text, `"a:1":{`) || !json.Valid(b) {
		t.Errorf("%s", text)
	}
}

func TestRunCountsItemsThatAreNotFinite(t *testing.T) {
	in := world(t)
	in.Items.Row(5)[0] = float32(math.NaN())
	r, err := eval.Run(t.Context(), in)
	if err != nil || r.Counts.NotFiniteItems != 1 {
		t.Errorf("%+v, %v; want one", r, err)
	}
}

// A strategy that the model cannot serve is refused before the long work.
func TestRunRefusesATrialBeforeItRanks(t *testing.T) {
	in := world(t)
	var err error
	if in.Trials, err = eval.ParseTrials("distilled:20"); err != nil {
		t.Fatal(err)
	}
	in.Progress = func(stage string, _ int) func(int) {
		if strings.HasPrefix(stage, "ranking") {
			t.Errorf("it began with %s", stage)
		}
		return func(int) {}
	}
	if _, err := eval.Run(t.Context(), in); err == nil || !strings.Contains(err.Error(), "learned probe") {
		t.Errorf("got %v, want that the probe is missing", err)
	}
}
