package bilinear

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/safetensors"

	"github.com/likenessdb/likeness/learn/fit/linalg"
)

// The golden W plus I, because W − I is decomposed.
func TestSpectrumOfTheGoldenForm(t *testing.T) {
	file, err := safetensors.ReadFile("../../../testdata/golden/bilinear/rank8.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../testdata/golden/bilinear/rank8.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Sigma float64 `json:"sigma_r_plus_1"`
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	matrix := func(name string) rerank.Matrix {
		v := file.Tensors[name]
		return rerank.Matrix{Rows: v.Shape[0], Cols: v.Shape[1], Data: v.Data}
	}
	w := matrix("W")
	plusI := rerank.Matrix{Rows: w.Rows, Cols: w.Cols, Data: append([]float32(nil), w.Data...)}
	for i := range w.Rows {
		plusI.Data[i*(w.Cols+1)]++
	}
	d, err := decompose(plusI, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range file.Tensors["singular_values"].Data {
		if !(math.Abs(d.sigma[i]-float64(want)) <= 1e-5) {
			t.Errorf("σ_%d is %g, want %g", i+1, d.sigma[i], want)
		}
	}
	if !(math.Abs(d.bound(8)-golden.Sigma) <= 1e-5) {
		t.Errorf("the bound at rank 8 is %g, want %g", d.bound(8), golden.Sigma)
	}
	queries, documents := matrix("queries"), matrix("documents")
	for rank := 1; rank <= len(d.sigma); rank++ {
		checkBound(t, plusI, d, rank, queries, documents)
	}
}

// checkBound: |φ − φ_r| ≤ ‖q‖‖x‖σ_{r+1} on every pair.
func checkBound(t *testing.T, w rerank.Matrix, d *decomposition, rank int, queries, items rerank.Matrix) {
	t.Helper()
	whole, cut := rerank.NewMatrix(queries.Rows, w.Cols), rerank.NewMatrix(queries.Rows, w.Cols)
	linalg.Multiply(whole, queries, false, w, false)
	d.cut(rank).probe(cut, queries)
	for q := range queries.Rows {
		for x := range items.Rows {
			off := math.Abs(linalg.Dot(whole.Row(q), items.Row(x)) - linalg.Dot(cut.Row(q), items.Row(x)))
			norms := rerank.Norm(queries.Row(q)) * rerank.Norm(items.Row(x))
			if off > norms*(d.bound(rank)+1e-5) {
				t.Fatalf("rank %d: φ of query %d and item %d is off by %g, the bound is %g", rank, q, x, off, norms*d.bound(rank))
			}
		}
	}
}

func TestRankOfTheEnergy(t *testing.T) {
	d := &decomposition{sigma: []float64{3, 2, 1, 0}} // squares 9, 4, 1 of 14
	for share, want := range map[float64]int{0.1: 1, 0.64: 1, 0.65: 2, 0.92: 2, 0.93: 3, 0.999: 3} {
		if got := d.rankOfEnergy(share); got != want {
			t.Errorf("%g of the energy needs rank %d, want %d", share, got, want)
		}
	}
	if d.bound(1) != 2 || d.bound(4) != 0 {
		t.Errorf("bounds %g and %g", d.bound(1), d.bound(4))
	}
}

// A low rank that is enough is found where the quality falls again after it, as on noise.
func TestSuggestedRank(t *testing.T) {
	for name, tc := range map[string]struct {
		enough func(rank int) bool
		want   int
	}{
		"rises":              {func(rank int) bool { return rank >= 37 }, 37},
		"falls after a peak": {func(rank int) bool { return rank >= 60 && rank <= 70 || rank >= 237 }, 60},
		"the first":          {func(int) bool { return true }, 1},
		"late":               {func(rank int) bool { return rank >= 300 }, 300},
		"none":               {func(int) bool { return false }, 384},
	} {
		if got := suggestRank(384, tc.enough); got != tc.want {
			t.Errorf("%s: rank %d, want %d", name, got, tc.want)
		}
	}
}
