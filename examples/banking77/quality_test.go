package banking77_test

import (
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/route"
)

var update = flag.Bool("update", false, "write testdata/quality.json anew")

const golden = "../../testdata/quality.json"

// figures are numbers by "task, model, metric", to four decimals.
type figures map[string]float64

// quality is the golden file: the figures of a sample of the questions, which
// every test run computes, and of all of them, which LIKENESS_SOAK=1 computes.
type quality struct {
	Sample figures `json:"sample"`
	Full   figures `json:"full"`
}

// Everything that decides a ranking is in these figures: a change of a kernel, of
// a strategy or of a tie shows in their diff.
func TestQuality(t *testing.T) {
	want := quality{}
	text, err := os.ReadFile(golden)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	full := os.Getenv("LIKENESS_SOAK") != ""
	got := measure(t, full)
	compared := &want.Sample
	if full {
		compared = &want.Full
	}
	if *update {
		*compared = got
		write(t, want)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(*compared)) {
		if value, ok := got[name]; !ok || !(math.Abs(value-(*compared)[name]) <= 0.0005) {
			t.Errorf("%s is %.4f, was %.4f", name, value, (*compared)[name])
		}
	}
	if len(got) != len(*compared) {
		t.Errorf("%d figures, were %d; if that is meant, run with -update", len(got), len(*compared))
	}
}

func measure(t *testing.T, full bool) figures {
	t.Helper()
	all := figures{}
	intents, questions := 6, 60
	trials := "per_embedding:50,average:200,distilled:200:linear,distilled:200:residual"
	if full {
		intents, questions = 1, 1
		trials = "average:200,average:500,average:1000,per_embedding:10,per_embedding:25,per_embedding:50,per_embedding:100," +
			"distilled:100:linear,distilled:200:linear,distilled:500:linear,distilled:1000:linear," +
			"distilled:100:residual,distilled:200:residual,distilled:500:residual,distilled:1000:residual," +
			"stored:200,stored:500,stored:1000"
	}
	all.add(t, banking77.Intents, "banking77-mol", intents, "", "recall@1", "recall@5", "recall@10")
	all.add(t, banking77.Questions, "banking77-questions-bilinear", questions, "", "p@1", "p@10")
	all.add(t, banking77.Questions, "banking77-questions-mol", questions, trials, "p@1", "p@10")
	return all
}

// add evaluates a model and cosine on every nth question of a task.
func (f figures) add(t *testing.T, open func(string) (*banking77.Task, error), name string, every int, trials string, metrics ...string) {
	t.Helper()
	task, err := open("../data/banking77")
	if err != nil {
		t.Fatal(err)
	}
	defer task.Close()
	in := eval.Input{K: 10, Every: every, Pairs: eval.NewPairs(task.Relevant), Model: openModel(t, name)}
	if in.Trials, err = eval.ParseTrials(trials); err != nil {
		t.Fatal(err)
	}
	cosine, err := dot.New(dot.Config{Dim: 384, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in.Baseline = route.Model{Name: "cosine", Similarity: cosine}
	items, queries := openMatrix(t, task.ItemFile), openMatrix(t, task.QueryFile)
	in.Items, in.Queries = items.Matrix, queries.Matrix
	report, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range append(metrics, "mrr@10") {
		f[task.Name+", "+name+", "+metric] = round(report.Metrics[metric])
		f[task.Name+", cosine, "+metric] = round(report.Baseline[metric])
	}
	for _, s := range report.Strategies {
		f[task.Name+", "+name+", first_stage_recall of "+s.Name] = round(s.FirstStageRecall)
	}
}

func openModel(t *testing.T, name string) route.Model {
	t.Helper()
	m, err := model.Open(filepath.Join("..", "models", name))
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}
}

func openMatrix(t *testing.T, path string) *npy.Matrix {
	t.Helper()
	m, err := npy.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

func write(t *testing.T, q quality) {
	t.Helper()
	text, err := json.MarshalIndent(q, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(golden, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
