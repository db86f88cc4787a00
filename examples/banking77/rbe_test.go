package banking77_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/examples/banking77"
	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

const rbeGolden = "testdata/rbe_quality.json"

// TestSupportSelections measures HitRate(10) of CUR with 20 support items on the
// scores of the questions' model, in the mean over splits and seeds, and holds the
// figures to the committed ones: a sample in every run, every fourth item and all
// queries with LIKENESS_SOAK=1, where l2-greedy must beat random, k-means and diverse.
func TestSupportSelections(t *testing.T) {
	name, everyItem, everyQuery, seeds := "sample", 8, 5, uint64(5)
	if os.Getenv("LIKENESS_SOAK") != "" {
		name, everyItem, everyQuery = "full", 4, 1
	}
	want := map[string]figures{}
	text, err := os.ReadFile(rbeGolden)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	scores := questionScores(t, everyItem, everyQuery)
	got := figures{}
	for seed := range seeds {
		o := fitrbe.DefaultOptions()
		o.Supports, o.Seed, o.Compare, o.Judged = 20, seed+1, true, []fitrbe.HitPair{{P: 10, T: 10}}
		fitted, err := fitrbe.Fit(t.Context(), scores, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range fitted.Report.Compared {
			got[string(c.Select)] += math.Round(1e4*c.HitRates[0].Mean/float64(seeds)) / 1e4
		}
	}
	others := []fitrbe.Selection{fitrbe.SelectRandom, fitrbe.SelectKMeans, fitrbe.SelectDiverse}
	if name == "sample" { // too few queries to tell them apart
		others = nil
	}
	for _, other := range others {
		if got[string(fitrbe.SelectL2Greedy)] <= got[string(other)] {
			t.Errorf("l2-greedy finds %.4f, %s %.4f", got[string(fitrbe.SelectL2Greedy)], other, got[string(other)])
		}
	}
	if *update {
		want[name] = got
		writeRBE(t, want)
		return
	}
	for how, value := range want[name] {
		if !(math.Abs(got[how]-value) <= 0.005) {
			t.Errorf("%s finds %.4f, was %.4f; if that is meant, run with -update", how, got[how], value)
		}
	}
}

func writeRBE(t *testing.T, all map[string]figures) {
	t.Helper()
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(rbeGolden), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rbeGolden, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

// questionScores are φ of the questions' MoL, items by queries.
func questionScores(t *testing.T, everyItem, everyQuery int) rerank.Matrix {
	t.Helper()
	m, err := model.Open("../models/banking77-questions-mol")
	if err != nil {
		t.Fatal(err)
	}
	task, err := banking77.Questions("../data/banking77")
	if err != nil {
		t.Fatal(err)
	}
	defer task.Close()
	all, err := npy.Open(task.ItemFile)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	base := rerank.NewMatrix((all.Rows+everyItem-1)/everyItem, all.Cols)
	for i := range base.Rows {
		copy(base.Row(i), all.Row(i*everyItem))
	}
	features := rerank.NewMatrix(base.Rows, m.Spec().Features)
	if err := m.EncodeItems(features, base); err != nil {
		t.Fatal(err)
	}
	queries := (len(task.Queries) + everyQuery - 1) / everyQuery
	scores, column := rerank.NewMatrix(base.Rows, queries), make([]float32, base.Rows)
	for q := range queries {
		enc, err := m.Encode(rerank.Query{Vector: task.Vector(q * everyQuery)})
		if err != nil {
			t.Fatal(err)
		}
		if err := enc.Score(column, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		for x, score := range column {
			scores.Row(x)[q] = score
		}
	}
	return scores
}
