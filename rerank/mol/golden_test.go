package mol

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/safetensors"
)

const golden = "../../testdata/golden"

func readFile(t testing.TB, parts ...string) *safetensors.File {
	t.Helper()
	f, err := safetensors.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// goldenCase reads a model and what its config.json says beside hyper_parameters.
func goldenCase(t testing.TB, dir string) *Similarity {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var outer struct {
		Parameters      Config `json:"hyper_parameters"`
		ComponentsGiven bool   `json:"components_given"`
	}
	raw = bytes.ReplaceAll(raw, []byte(": NaN"), []byte(": null")) // Python writes it, JSON has none
	if err := json.Unmarshal(raw, &outer); err != nil {
		t.Fatal(err)
	}
	outer.Parameters.ComponentsGiven = outer.ComponentsGiven
	s, err := New(outer.Parameters, readFile(t, dir, "weights.safetensors").Tensors)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// matrix flattens all but the first axis of a tensor.
func matrix(t testing.TB, f *safetensors.File, name string) rerank.Matrix {
	t.Helper()
	v, ok := f.Tensors[name]
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	return rerank.Matrix{Rows: v.Shape[0], Cols: len(v.Data) / v.Shape[0], Data: v.Data}
}

func features(t testing.TB, s rerank.Similarity, base rerank.Matrix) rerank.Matrix {
	t.Helper()
	m := rerank.NewMatrix(base.Rows, s.Spec().Features)
	for i := range m.Data { // what lies there does not matter
		m.Data[i] = float32(math.NaN())
	}
	if err := s.EncodeItems(m, base); err != nil {
		t.Fatal(err)
	}
	return m
}

func encode(t testing.TB, s rerank.Similarity, q rerank.Query) rerank.Encoded {
	t.Helper()
	e, err := s.Encode(q)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func score(t testing.TB, e rerank.Encoded, items rerank.Items) []float32 {
	t.Helper()
	dst := make([]float32, items.Len())
	if err := e.Score(dst, items); err != nil {
		t.Fatal(err)
	}
	return dst
}

func largest(v []float32) (top float64) {
	for _, x := range v {
		top = max(top, math.Abs(float64(x)))
	}
	return top
}

// near fails if an element differs by more than the tolerance; it returns the
// greatest difference.
func near(t testing.TB, what string, have, want []float32, tolerance float64) float64 {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(have), len(want))
	}
	worst := 0.0
	for i := range have {
		d := math.Abs(float64(have[i]) - float64(want[i]))
		if !(d <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v: off by %g, tolerance %g", what, i, have[i], want[i], d, tolerance)
		}
		worst = max(worst, d)
	}
	return worst
}

// queryComponentsOf returns f_i of any MoL's encoded query.
func queryComponentsOf(e rerank.Encoded) rerank.Matrix {
	if f, ok := e.(*fixed); ok {
		return f.e.components
	}
	return e.(*encoded).components
}

// TestGolden compares components, logits, gates and scores with the outputs of
// the RAILS reference, at the tolerances of testdata/golden/README.md.
func TestGolden(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(golden, "mol", "*"))
	if err != nil || len(dirs) < 24 {
		t.Fatalf("%d golden cases (%v), want 24", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) { compareCase(t, dir) })
	}
}

func compareCase(t *testing.T, dir string) {
	s := goldenCase(t, dir)
	in, out := readFile(t, dir, "inputs.safetensors"), readFile(t, dir, "outputs.safetensors")
	kind := "embeddings"
	if s.c.ComponentsGiven {
		kind = "components"
	}
	queries, users := matrix(t, in, "query_"+kind), in.Ints["user_ids"].Data
	x := features(t, s, matrix(t, in, "item_"+kind))
	width := s.c.PairsItem * s.c.Dim
	tolerance := 1e-6 * max(1, largest(out.Tensors["logits"].Data))
	if !s.c.ComponentsGiven {
		g := matrix(t, out, "item_components")
		for r := range x.Rows {
			near(t, "item components", x.Row(r)[:width], g.Row(r), tolerance)
		}
	}
	scores, logits, gates := out.Tensors["scores"].Data, out.Tensors["logits"].Data, out.Tensors["gating_probs"].Data
	pairs, n := s.c.pairs(), x.Rows
	worst := 0.0
	for b := range queries.Rows {
		q := rerank.Query{Vector: queries.Row(b), HasUserID: users != nil}
		if users != nil {
			q.UserID = users[b]
		}
		e := encode(t, s, q)
		if !s.c.ComponentsGiven {
			near(t, "query components", queryComponentsOf(e).Data, matrix(t, out, "query_components").Row(b), tolerance)
		}
		have := score(t, e, rerank.Items{Features: x})
		worst = max(worst, near(t, "scores", have, scores[b*n:][:n], 5e-6*max(1, largest(scores))))
		explained, err := e.(rerank.Explainer).Explain(rerank.Items{Features: x})
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range explained {
			at := (b*n + i) * pairs
			compareTerms(t, x, logits[at:][:pairs], gates[at:][:pairs], tolerance)
		}
	}
	t.Logf("greatest difference of a score: %.2g, of scores up to %.3g", worst, largest(scores))
}

// compareTerms also wants Σ gate·logit to be the score.
func compareTerms(t *testing.T, x rerank.Explanation, logits, gates []float32, tolerance float64) {
	t.Helper()
	dots, pi, sum := make([]float32, len(x.Terms)), make([]float32, len(x.Terms)), 0.0
	for l, term := range x.Terms {
		dots[l], pi[l] = term.Dot, term.Gate
		sum += float64(term.Gate) * float64(term.Logit)
	}
	near(t, "logits", dots, logits, tolerance)
	near(t, "gates", pi, gates, 1e-5)
	if !(math.Abs(sum-float64(x.Score)) <= 1e-5*max(1, math.Abs(sum))) {
		t.Fatalf("Σ gate·logit is %v, the score %v", sum, x.Score)
	}
}
