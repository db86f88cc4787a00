package maxsim_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func build(t testing.TB, c maxsim.Config) *maxsim.Similarity {
	t.Helper()
	s, err := maxsim.New(c, tensor.Set{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t testing.TB, s rerank.Similarity, q []float32) rerank.Encoded {
	t.Helper()
	e, err := s.Encode(rerank.Query{Vector: q})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestGolden compares the behavioural max-sim with the reference's scores.
func TestGolden(t *testing.T) {
	f, err := safetensors.ReadFile("../../testdata/golden/behavioural/cases.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	vectors, queries, want := f.Tensors["maxsim.vectors"], f.Tensors["maxsim.queries"], f.Tensors["maxsim.scores"]
	owners := f.Ints["maxsim.owner"].Data
	n := want.Shape[1]
	items := rerank.Items{Features: rerank.Matrix{Rows: 20, Cols: 6, Data: vectors.Data}, Starts: []int32{0}}
	for item := range n {
		for r, o := range owners {
			if int(o) == item {
				items.Rows = append(items.Rows, int32(r))
			}
		}
		items.Starts = append(items.Starts, int32(len(items.Rows)))
	}
	s := build(t, maxsim.Config{Dim: 6})
	for b := range queries.Shape[0] {
		dst := make([]float32, n)
		if err := encode(t, s, queries.Data[b*6:][:6]).Score(dst, items); err != nil {
			t.Fatal(err)
		}
		for i, v := range dst {
			if !(math.Abs(float64(v-want.Data[b*n+i])) <= 1e-6) {
				t.Errorf("query %d, item %d: %v, want %v", b, i, v, want.Data[b*n+i])
			}
		}
	}
}

func random(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// TestGroups: groups of any size, 0 and more than a block included, with row
// numbers, without them, and as a slice of a table whose Starts begin later.
func TestGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := build(t, maxsim.Config{Dim: 5, Normalise: true})
	m := random(rng, 1300, 5)
	e := encode(t, s, random(rng, 1, 5).Data)
	single := make([]float32, m.Rows)
	if err := e.Score(single, rerank.Items{Features: m}); err != nil {
		t.Fatal(err)
	}
	starts := []int32{3, 3, 4, 260, 300, 900, 1300}
	reversed := make([]int32, m.Rows)
	for i := range reversed {
		reversed[i] = int32(m.Rows - 1 - i)
	}
	for _, rows := range [][]int32{nil, reversed} {
		dst := make([]float32, len(starts)-1)
		if err := e.Score(dst, rerank.Items{Features: m, Rows: rows, Starts: starts}); err != nil {
			t.Fatal(err)
		}
		for i, have := range dst {
			want := float32(math.Inf(-1))
			for p := starts[i]; p < starts[i+1]; p++ {
				row := p
				if rows != nil {
					row = rows[p]
				}
				want = max(want, single[row])
			}
			if have != want {
				t.Errorf("item %d: %v, want %v", i, have, want)
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		broken := rerank.Matrix{Rows: 3, Cols: 5, Data: slices.Clone(m.Data[:15])}
		broken.Row(1)[2] = float32(bad)
		dst := make([]float32, 2)
		if err := e.Score(dst, rerank.Items{Features: broken, Starts: []int32{0, 2, 3}}); err != nil {
			t.Fatal(err)
		}
		if dst[0]-dst[0] == 0 || dst[1]-dst[1] != 0 {
			t.Errorf("a row with %v scores %v", bad, dst)
		}
	}
	for _, starts := range [][]int32{{}, {-1, 2}, {0, 5, 4}, {0, 1301}} {
		if err := e.Score(make([]float32, max(len(starts)-1, 0)), rerank.Items{Features: m, Starts: starts}); !errors.Is(err, rerank.ErrItems) {
			t.Errorf("starts %v: %v, want ErrItems", starts, err)
		}
	}
}

func TestSpec(t *testing.T) {
	s := build(t, maxsim.Config{Dim: 5, Normalise: true}).Spec()
	if s.Kind != rerank.KindMaxSim || !s.GroupedRows || !s.SingleInnerProduct || s.MaxScore != 1 || s.Features != 5 {
		t.Errorf("spec is %+v", s)
	}
	for _, dim := range []int{0, -1, 1 << 21} {
		if _, err := maxsim.New(maxsim.Config{Dim: dim}, nil); !errors.Is(err, rerank.ErrModel) {
			t.Errorf("dim %d: %v", dim, err)
		}
	}
}
