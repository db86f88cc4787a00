package distilled

import (
	"maps"
	"os"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/teacher"
)

// Bars for a learned probe on real vectors, in a search among known questions by a full-gate MoL.
// The questions are every fourth one, and the fit learns from every eighth; with LIKENESS_SOAK=1
// they are all 10,003, and the bars are the documented figures. The questions of the test split
// judge.
func TestQualityDistilled(t *testing.T) {
	fittest.SkipUnderRace(t)
	among, every, rounds, depths := 4, 8, 5, []int{50, 125}
	bars := map[string][2]float64{HeadLinear: {0.905, 0.97}, HeadResidual: {0.92, 0.975}}
	if os.Getenv("LIKENESS_SOAK") != "" {
		among, every, rounds, depths = 1, 1, 10, []int{200, 500}
		bars = map[string][2]float64{HeadLinear: {0.955, 0.983}, HeadResidual: {0.97, 0.99}}
	}
	m, err := model.Open("../../../examples/models/banking77-questions-mol")
	if err != nil {
		t.Fatal(err)
	}
	items := sample(t, "train", among)
	o := DefaultOptions()
	o.Rounds = rounds
	found, err := Fit(t.Context(), m, fit.Data{Items: items, Queries: sample(t, "train", every)}, o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFitter(m, fit.Data{Items: items, Queries: sample(t, "test", 12)}, o)
	if err != nil {
		t.Fatal(err)
	}
	p := model.Parameters{Kind: rerank.KindMoL, Config: m.Parameters().Config, Tensors: m.Parameters().Tensors}
	maps.Copy(p.Tensors, found.Tensors)
	if m, err = model.New(p); err != nil {
		t.Fatal(err)
	}
	all := fittest.AllRows(f.lessons.queries.Rows)
	x, err := teacher.NewExam(t.Context(), f.teacher, f.lessons.items, all, 10, depths, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for head, bar := range bars {
		u := rerank.NewMatrix(len(all), items.Cols)
		for i := range all {
			e, err := m.Encode(rerank.Query{Vector: f.lessons.queries.Row(i)})
			if err != nil {
				t.Fatal(err)
			}
			probes, err := e.Probes(rerank.Plan{Strategy: rerank.Distilled, Head: head, Depth: depths[1]})
			if err != nil {
				t.Fatal(err)
			}
			copy(u.Row(i), probes[0].Vector)
		}
		stage := x.Vectors(rerank.FirstStage{}, u)
		t.Logf("%s: %.4f of the exact top 10 among %d candidates, %.4f among %d", head, stage.Recall[0], depths[0], stage.Recall[1], depths[1])
		if stage.Recall[0] < bar[0] || stage.Recall[1] < bar[1] {
			t.Errorf("%s: recall@10 is %.4f and %.4f at %v candidates, want %v", head, stage.Recall[0], stage.Recall[1], depths, bar)
		}
	}
}

// sample is every nth vector of a split of BANKING77.
func sample(t *testing.T, split string, every int) rerank.Matrix {
	t.Helper()
	m := fittest.OpenVectors(t, split)
	out := rerank.NewMatrix((m.Rows+every-1)/every, m.Cols)
	for r := range out.Rows {
		copy(out.Row(r), m.Row(r*every))
	}
	return out
}
