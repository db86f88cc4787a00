package eval_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
)

// The same seed gives the same report; the verdict names the simplest model that
// is as good, and the baseline where nothing is better.
func TestVerdict(t *testing.T) {
	in := world(t)
	in.Traits = eval.Traits{Parameters: 16}
	diagonal := eval.Contender{Model: flipped(t), Traits: eval.Traits{Form: bilinear.Diagonal, Parameters: 4}}
	diagonal.Model.Name = "diagonal"
	plain := eval.Contender{Model: cosine(t)}
	plain.Model.Name = "plain"
	in.Others = []eval.Contender{diagonal, plain}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	v := r.Verdict
	if v.Answer != "yes" || v.Choose != "diagonal" || v.Class != eval.ClassDiagonal || v.Sure != 1 || len(v.AsGood) != 2 {
		t.Errorf("%+v", v)
	}
	m := r.Models[2]
	if m.AsGood || m.ToBest == nil || m.ToBest.Difference != -1 || m.Gains["mrr@10"].Ties != 1 {
		t.Errorf("the baseline as a model: %+v", m)
	}
	if g := r.Models[0].Gains["mrr@10"]; g.Difference != 1 || g.Low != 1 || g.Wins != 1 || r.Models[0].Regressions != nil {
		t.Errorf("%+v, %+v", g, r.Models[0].Regressions)
	}
	again, err := eval.Run(t.Context(), in)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("a second run differs, %v", err)
	}
	in.Others, in.Model, in.Baseline = nil, cosine(t), flipped(t)
	if r, err = eval.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if v := r.Verdict; v.Answer != "no" || v.Choose != "flipped" || v.Sure != 0 {
		t.Errorf("%+v", v)
	}
	if x := r.Models[0].Regressions; len(x) != 19 || x[0].RankBefore != 1 || x[0].RankAfter != 700 || x[0].Margin >= 0 {
		t.Errorf("regressions %+v", x)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// divided returns a world in which the model finds the answers to the first wins queries, and the
// baseline the answers to all others.
func divided(t *testing.T, wins int) eval.Input {
	t.Helper()
	in := world(t)
	relevant := make([][]int32, in.Queries.Rows)
	for q := range relevant {
		relevant[q] = in.Pairs.Relevant(q)
		if q < wins {
			continue
		}
		greatest := -2.0
		for i := range in.Items.Rows {
			if c := cos(in.Queries.Row(q), in.Items.Row(i)); c > greatest {
				greatest, relevant[q] = c, []int32{int32(i)}
			}
		}
	}
	in.Pairs = eval.NewPairs(relevant)
	return in
}

// TestVerdictNeedsAnIntervalAboveZero: a model that is better in the mean, by no more than
// chance explains, is not shown to be worth it.
func TestVerdictNeedsAnIntervalAboveZero(t *testing.T) {
	for _, c := range []struct {
		wins   int
		answer verdict.Answer
		choose string
		text   string
	}{
		{18, "yes", "flipped", "Worth it: take flipped"},
		{12, "unclear", "cosine", "Cannot tell: keep cosine until more queries judge; needs about 170 queries."},
		{10, "unclear", "cosine", "Cannot tell: keep cosine"},
		{8, "unclear", "cosine", "Cannot tell: keep cosine"},
		{2, "no", "cosine", "Not worth it: keep cosine."},
	} {
		r, err := eval.Run(t.Context(), divided(t, c.wins))
		if err != nil {
			t.Fatal(err)
		}
		v, g := r.Verdict, r.Models[0].Gains["mrr@10"]
		if v.Answer != c.answer || v.Choose != c.choose || !strings.Contains(strings.Join(v.Text, " "), c.text) {
			t.Errorf("%d of 20 queries won, %+.2f (%+.2f to %+.2f): %+v, want %s", c.wins, g.Difference, g.Low, g.High, v, c.answer)
		}
	}
}

// TestCopiesOfQuestions plants a leak: the items are questions, each asked again for the one beside it, and the model
// is cosine with noise. Cosine always ranks the question's own copy first, so that the noise gains, unless the copies are left out.
func TestCopiesOfQuestions(t *testing.T) {
	const pairs = 150
	items, noise := matrix(2*pairs, 5), matrix(2*pairs, 6)
	relevant, itself := make([][]int32, items.Rows), make([][]int32, items.Rows)
	queries := rerank.NewMatrix(items.Rows, items.Cols)
	for q := range items.Rows {
		if q%2 == 1 {
			for i, x := range items.Row(q - 1) {
				items.Row(q)[i] = x + 0.02*noise.Row(q)[i]
			}
		}
		for i, x := range items.Row(q) {
			queries.Row(q)[i] = 3 * x * (1 + 1e-4*noise.Row(q)[i]) // of another length, and rounded
		}
		relevant[q], itself[q] = []int32{int32(q ^ 1)}, []int32{int32(q)}
	}
	w := tensor.Tensor{Shape: []int{4, 4}, Data: []float32{1, 0.2, -0.1, 0, -0.2, 1, 0, 0.1, 0.1, 0, 1, -0.2, 0, -0.1, 0.2, 1}}
	noisy, err := bilinear.New(bilinear.Config{QueryDim: 4, ItemDim: 4, Normalise: true}, tensor.Set{"W": w})
	if err != nil {
		t.Fatal(err)
	}
	in := eval.Input{
		Model: route.Model{Name: "noisy", Similarity: noisy}, Baseline: cosine(t), Items: items, Queries: queries, Pairs: eval.NewPairs(relevant), K: 10,
	}
	run := func() *eval.Report {
		r, err := eval.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := run()
	if text := strings.Join(r.Verdict.Text, " "); r.Verdict.Answer == verdict.Yes || r.Counts.Copies != items.Rows || !strings.Contains(text, "Of 300 queries the own vector is an item too") {
		t.Errorf("mrr@10 %.3f of the model, %.3f of cosine: %s, %d copies, %q", r.Metrics["mrr@10"], r.Baseline["mrr@10"], r.Verdict.Answer, r.Counts.Copies, text)
	}
	alone := r.Metrics["mrr@10"]
	for q := range relevant {
		relevant[q] = []int32{int32(q &^ 1), int32(q | 1)}
	}
	in.Pairs = eval.NewPairs(relevant) // the copy was chosen too
	if r = run(); r.Metrics["mrr@10"] != alone || r.Metrics["recall@10"] > 1 || r.Counts.Pairs != items.Rows || len(in.Pairs.Relevant(0)) != 2 {
		t.Errorf("with copies among the answers mrr@10 is %.3f of %d pairs, want %.3f of %d", r.Metrics["mrr@10"], r.Counts.Pairs, alone, items.Rows)
	}
	in.Pairs = eval.NewPairs(itself) // nothing else was
	if r = run(); r.Baseline["mrr@10"] != 1 || r.Counts.Copies != 0 || r.Counts.Pairs != items.Rows {
		t.Errorf("mrr@10 of cosine for the copies is %.3f, %d of them left out", r.Baseline["mrr@10"], r.Counts.Copies)
	}
}

// TestQueriesThatTaught: queries that the fit learned from count in nothing, if only new ones are to count.
func TestQueriesThatTaught(t *testing.T) {
	in := divided(t, 15)
	all, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.NewOnly, in.SeenBefore = true, make([]bool, in.Queries.Rows)
	for q := range in.SeenBefore {
		in.SeenBefore[q] = q < 15
	}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(r.Verdict.Text, " "); r.Counts.SeenBefore != 15 || r.Counts.Queries != all.Counts.Queries-15 || r.Counts.Pairs >= all.Counts.Pairs ||
		r.Metrics["mrr@10"] == all.Metrics["mrr@10"] || r.Models[0].Traffic != nil || !strings.Contains(text, "15 queries are left out") {
		t.Errorf("%+v, mrr@10 %.3f, of all %.3f: %s", r.Counts, r.Metrics["mrr@10"], all.Metrics["mrr@10"], text)
	}
	for q := range in.SeenBefore {
		in.SeenBefore[q] = true
	}
	if _, err := eval.Run(t.Context(), in); !errors.Is(err, eval.ErrInput) {
		t.Errorf("without a new query: %v", err)
	}
}

// TestRepeatedQueriesAreOneDraw: a query that was asked fifteen times wins once.
func TestRepeatedQueriesAreOneDraw(t *testing.T) {
	in := divided(t, 15)
	for q := 1; q < 15; q++ {
		copy(in.Queries.Row(q), in.Queries.Row(0))
	}
	relevant := make([][]int32, in.Queries.Rows)
	for q := range relevant {
		relevant[q] = in.Pairs.Relevant(q)
		if q < 15 {
			relevant[q] = in.Pairs.Relevant(0)
		}
	}
	in.Pairs = eval.NewPairs(relevant)
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if g := r.Models[0].Gains["mrr@10"]; r.Verdict.Answer != "unclear" || g.Low > 0 {
		t.Errorf("five queries lose and one, asked fifteen times, wins: %q, gain %+v", r.Verdict.Answer, g)
	}
}

// An interval of a mean has the width that theory gives.
func TestIntervals(t *testing.T) {
	in := world(t)
	in.Queries = matrix(900, 9)
	relevant := make([][]int32, 900)
	for q := range relevant {
		relevant[q] = []int32{int32(q % 700)}
	}
	in.Pairs, in.K = eval.NewPairs(relevant), 350
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Metrics["hit_rate@350"]
	i := r.Models[0].Intervals["hit_rate@350"]
	want := 2 * 1.96 * math.Sqrt(p*(1-p)/900)
	if i.Low >= p || i.High <= p || !(math.Abs(i.High-i.Low-want) <= want/10) {
		t.Errorf("%v in %+v, want a width of %v", p, i, want)
	}
}

// Warm and cold items are told apart by the training log, popular ones by thirds.
func TestSegments(t *testing.T) {
	in := world(t)
	in.Popularity = make([]float64, in.Items.Rows)
	for i := range in.Popularity {
		in.Popularity[i] = float64(i % 4) // a quarter is cold
	}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	items, queries := map[string]int{}, map[string]int{}
	for _, s := range r.Models[0].Segments {
		items[s.Name], queries[s.Name] = s.Items, s.Queries
		if s.Metric != 1 || *s.Baseline != 0 || s.Gain.Difference != 1 {
			t.Errorf("%+v", s)
		}
	}
	if items["cold"] != 175 || items["warm"] != 525 || queries["cold"]+queries["warm"] != 19 || items["head"] != 175 {
		t.Errorf("items %v, queries %v", items, queries)
	}
	if r.Method.Popularity != "training_pairs" {
		t.Error(r.Method)
	}
}

// A strategy's loss and the exact gain add up.
func TestFirstStageLoss(t *testing.T) {
	in := world(t)
	var err error
	if in.Trials, err = eval.ParseTrials("stored:20,distilled:20,scan"); err != nil {
		t.Fatal(err)
	}
	other := eval.Contender{Model: cosine(t)}
	in.Others = []eval.Contender{other}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Models[0]
	if len(m.Strategies) != 2 || !strings.Contains(m.Unserved["distilled:20"], "probe") {
		t.Fatalf("%+v, unserved %v", m.Strategies, m.Unserved)
	}
	if s := m.Strategies[0]; s.Loss.Difference != 1 || s.Gain.Difference != 0 {
		t.Errorf("%+v", s)
	}
	if s := m.Strategies[1]; s.Loss.Difference != 0 || s.Gain.Difference != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSpectrum(t *testing.T) {
	factor := tensor.Tensor{Shape: []int{2, 1}, Data: []float32{3, 4}}
	for form, c := range map[string]struct {
		tensors tensor.Set
		want    []float64
	}{
		"full":              {tensor.Set{"W": {Shape: []int{2, 2}, Data: []float32{3, 0, 0, 0.5}}}, []float64{2, 0.5}},
		"diagonal":          {tensor.Set{"w": {Shape: []int{2}, Data: []float32{0.5, 3}}}, []float64{2, 0.5}},
		"identity_low_rank": {tensor.Set{"P": factor, "Q": factor}, []float64{25}},
		"low_rank":          {tensor.Set{"P": factor, "Q": factor}, []float64{24, 1}},
	} {
		config := `{"query_embedding_dim": 2, "item_embedding_dim": 2, "normalise": false, "form": "` + form + `"}`
		m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Config: json.RawMessage(config), Tensors: c.tensors})
		if err != nil {
			t.Fatal(err)
		}
		traits, err := eval.TraitsOf(m, true)
		if err != nil || len(traits.Spectrum) != len(c.want) || string(traits.Form) != form {
			t.Fatalf("%s: %+v, %v", form, traits, err)
		}
		for i, v := range c.want {
			if !(math.Abs(traits.Spectrum[i]-v) <= 1e-6) {
				t.Errorf("%s: %v, want %v", form, traits.Spectrum, c.want)
			}
		}
	}
}

// TestSpectrumOfARectangle: a form of queries and items of different dimensions has no W − I.
func TestSpectrumOfARectangle(t *testing.T) {
	m, err := model.New(model.Parameters{
		Kind: rerank.KindBilinear, Config: json.RawMessage(`{"query_embedding_dim": 3, "item_embedding_dim": 2, "normalise": false, "form": "full"}`),
		Tensors: tensor.Set{"W": {Shape: []int{3, 2}, Data: make([]float32, 6)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if traits, err := eval.TraitsOf(m, true); err != nil || traits.Spectrum != nil || traits.Form != bilinear.Full {
		t.Errorf("%+v, %v", traits, err)
	}
}

// Queries with equal vectors are one draw of the bootstrap.
func TestEqualQueriesAreOneCluster(t *testing.T) {
	in := world(t)
	copy(in.Queries.Row(1), in.Queries.Row(0))
	in.Baseline = route.Model{}
	r, err := eval.Run(t.Context(), in)
	if err != nil || r.Method.Clusters != 18 || r.Verdict.Answer != "" || r.Verdict.Choose != "flipped" {
		t.Errorf("%+v %+v %v", r.Method, r.Verdict, err)
	}
}
