package kernels_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// given is a model with items and queries, which the CPU scores for comparison.
type given struct {
	network mol.Network
	rows    rerank.Matrix
	queries []rerank.Encoded
}

func (g *given) shape() kernels.Shape {
	n := &g.network
	return kernels.Shape{PairsQuery: n.PairsQuery, PairsItem: n.PairsItem, Dim: n.Dim, Hidden: n.First.Rows}
}

// scores returns the CPU's scores of a query for these rows, or for all rows if rows is nil.
func (g *given) scores(t *testing.T, query int, rows []uint32) []float32 {
	t.Helper()
	items := rerank.Items{Features: g.rows}
	if rows != nil {
		items.Rows = make([]int32, len(rows))
		for i, r := range rows {
			items.Rows[i] = int32(r)
		}
	}
	out := make([]float32, items.Len())
	if err := g.queries[query].Score(out, items); err != nil {
		t.Fatal(err)
	}
	return out
}

// golden reads a golden case, and repeats its queries until there are enough; in repeated ones some signs are
// reversed.
func golden(t *testing.T, dir string, queries int) *given {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.ReplaceAll(raw, []byte(": NaN"), []byte(": null")) // Python writes it, JSON has none
	var config struct {
		Parameters      mol.Config `json:"hyper_parameters"`
		ComponentsGiven bool       `json:"components_given"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	config.Parameters.ComponentsGiven = config.ComponentsGiven
	weights, inputs := tensors(t, dir, "weights"), tensors(t, dir, "inputs")
	s, err := mol.New(config.Parameters, weights)
	if err != nil {
		t.Fatal(err)
	}
	side := "embeddings"
	if config.ComponentsGiven {
		side = "components"
	}
	return encoded(t, s, matrix(inputs["item_"+side]), matrix(inputs["query_"+side]), queries)
}

func encoded(t *testing.T, s *mol.Similarity, items, vectors rerank.Matrix, queries int) *given {
	t.Helper()
	g := &given{network: s.Network(), rows: rerank.NewMatrix(items.Rows, s.Spec().Features)}
	if err := s.EncodeItems(g.rows, items); err != nil {
		t.Fatal(err)
	}
	for q := range queries {
		v := append([]float32(nil), vectors.Row(q%vectors.Rows)...)
		for i := range v {
			if q >= vectors.Rows && i%(q+1) == 0 {
				v[i] = -v[i]
			}
		}
		e, err := s.Encode(rerank.Query{Vector: v, UserID: int64(q), HasUserID: true})
		if err != nil {
			t.Fatal(err)
		}
		g.queries = append(g.queries, e)
	}
	return g
}

func tensors(t *testing.T, dir, name string) tensor.Set {
	t.Helper()
	f, err := safetensors.ReadFile(filepath.Join(dir, name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return f.Tensors
}

func matrix(v tensor.Tensor) rerank.Matrix {
	return rerank.Matrix{Rows: v.Shape[0], Cols: len(v.Data) / v.Shape[0], Data: v.Data}
}

// made returns a random model of a shape, with items and queries.
func made(t *testing.T, shape kernels.Shape, items, queries int) *given {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(shape.Dim), 5))
	const width = 24
	c := mol.Config{
		QueryDim: width, ItemDim: width, Dim: shape.Dim, PairsQuery: shape.PairsQuery, PairsItem: shape.PairsItem, Temperature: 0.05, L2Norm: true,
		GatingQueryHidden: 8, GatingItemHidden: 8, GatingPairHidden: shape.Hidden, Combination: mol.GLUSiLU,
	}
	pairs, set := shape.PairsQuery*shape.PairsItem, tensor.Set{}
	layer := func(name string, out, in int, bias bool) {
		w := random(r, out*in)
		for i := range w {
			w[i] *= float32(1.5 / math.Sqrt(float64(in)))
		}
		set[name+".weight"] = tensor.Tensor{Shape: []int{out, in}, Data: w}
		if bias {
			set[name+".bias"] = tensor.Tensor{Shape: []int{out}, Data: random(r, out)}
		}
	}
	layer("_query_embeddings_fn._query_emb_proj_module.1", shape.PairsQuery*shape.Dim, width, true)
	layer("_item_embeddings_fn._item_emb_proj_module.1", shape.PairsItem*shape.Dim, width, true)
	layer("_gating_fn._query_only_partial_module.0", 8, width, true)
	layer("_gating_fn._query_only_partial_module.2", pairs, 8, false)
	layer("_gating_fn._item_only_partial_module.1", 8, width, true)
	layer("_gating_fn._item_only_partial_module.3", pairs, 8, false)
	layer("_gating_fn._qi_partial_module.1", shape.Hidden, pairs, true)
	layer("_gating_fn._qi_partial_module.3", pairs, shape.Hidden, true)
	s, err := mol.New(c, set)
	if err != nil {
		t.Fatal(err)
	}
	return encoded(t, s, rerank.Matrix{Rows: items, Cols: width, Data: random(r, items*width)},
		rerank.Matrix{Rows: queries, Cols: width, Data: random(r, queries*width)}, queries)
}

// operands returns the queries in the kernels' arrays.
func (g *given) operands() (components, bias, factor words[float32]) {
	pairs := g.network.PairsQuery * g.network.PairsItem
	for _, q := range g.queries {
		o := q.(rerank.Operator).Operands()
		for _, x := range o.Vectors.Data {
			components = append(components, x*o.Scale)
		}
		for l := range pairs {
			b, f := float32(0), float32(1)
			if g.network.SecondBias != nil {
				b = g.network.SecondBias[l]
			}
			switch {
			case g.network.Combination == mol.GLUSiLU:
				f = o.Gates[l]
			case o.Gates != nil:
				b += o.Gates[l]
			}
			bias, factor = append(bias, b), append(factor, f)
		}
	}
	return components, bias, factor
}

// optional returns the address of an array, or 0 if it is empty.
func (m *memory) optional(v []float32) uint64 {
	if len(v) == 0 {
		return 0
	}
	return m.put(words[float32](v))
}

func (g *given) silu() uint64 {
	if g.network.Combination == mol.GLUSiLU {
		return 1
	}
	return 0
}

const sharedMemory = 227 << 10

// exactArgs returns the arguments of the kernel mol_exact.
func (g *given) exactArgs(m *memory, tile int) kernels.ExactArgs {
	n := &g.network
	components, bias, factor := g.operands()
	return kernels.ExactArgs{
		Table: m.put(words[float32](g.rows.Data)), First: m.optional(n.First.Data), FirstBias: m.optional(n.FirstBias), Second: m.optional(n.Second.Data),
		Components: m.put(components), Bias: m.put(bias), Factor: m.put(factor), SiLU: g.silu(),
		PairsQuery: uint64(n.PairsQuery), PairsItem: uint64(n.PairsItem), Dim: uint64(n.Dim), Hidden: uint64(n.First.Rows),
		Features: uint64(g.rows.Cols), Tile: uint64(tile),
	}
}

func goldens(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("../../testdata/golden/mol/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	return dirs
}

// difference returns the greatest difference of finite scores, and the sum of squares. It fails the test if a score is
// finite on one side only.
func difference(t *testing.T, got, want []float32) (worst, squares float64) {
	t.Helper()
	for i, x := range got {
		if finite(x) != finite(want[i]) {
			t.Fatalf("score %d is %v, the CPU says %v", i, x, want[i])
		}
		if finite(x) {
			d := math.Abs(float64(x) - float64(want[i]))
			worst, squares = math.Max(worst, d), squares+d*d
		}
	}
	return worst, squares
}

// spoil puts a NaN or an infinity into some rows.
func (g *given) spoil(r *rand.Rand) {
	for i, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		g.rows.Row(i)[r.IntN(g.rows.Cols)] = x
		g.rows.Row(i + 3)[g.rows.Cols-1-i] = x // a gate, where there are some
	}
}

// TestExact: the kernel that takes every shape scores each golden case as the CPU does.
func TestExact(t *testing.T) {
	for _, dir := range goldens(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			g, r := golden(t, dir, 3), rand.New(rand.NewPCG(9, 9))
			if g.network.Fixed {
				t.Skip("its gates are the query's alone: it is one inner product")
			}
			g.spoil(r)
			launch, tile, err := g.shape().ExactScan(g.rows.Rows-1, 3, sharedMemory)
			if err != nil {
				t.Fatal(err)
			}
			m := &memory{}
			a := g.exactArgs(m, tile)
			scores := make(words[float32], 3*(g.rows.Rows-1))
			a.Pairs = kernels.Pairs{Scores: m.put(scores), First: 1, Count: uint64(g.rows.Rows - 1), Queries: 3}
			m.launch(t, launch, a)
			const tolerance = 2e-6
			for q := range 3 {
				got, want := scores[q*(g.rows.Rows-1):][:g.rows.Rows-1], g.scores(t, q, nil)[1:]
				if worst, _ := difference(t, got, want); worst > tolerance*scale(want) {
					t.Fatalf("query %d: %g from the CPU", q, worst)
				}
			}
			p, longest := gathered(r, m, g.rows.Rows, 3)
			a.Pairs = p.Pairs
			if launch, tile, err = g.shape().ExactRescore(longest, 3, 48<<10); err != nil {
				t.Fatal(err)
			}
			a.Tile = uint64(tile)
			m.launch(t, launch, a)
			for q := range 3 {
				rows := p.rows[p.starts[q]:p.starts[q+1]]
				if len(rows) == 0 {
					continue
				}
				want := g.scores(t, q, rows)
				if worst, _ := difference(t, p.scores[p.starts[q]:p.starts[q+1]], want); worst > tolerance*scale(want) {
					t.Fatalf("query %d, gathered: %g from the CPU", q, worst)
				}
			}
		})
	}
}

// scale returns the unit for errors.
func scale(scores []float32) float64 {
	top := 1.0
	for _, x := range scores {
		if finite(x) {
			top = math.Max(top, math.Abs(float64(x)))
		}
	}
	return top
}

func ExampleShape_ExactScan() {
	_, tile, err := kernels.Shape{PairsQuery: 8, PairsItem: 8, Dim: 32, Hidden: 128}.ExactScan(1000, 1, 48<<10)
	fmt.Println(tile, err)
	_, _, err = kernels.Shape{PairsQuery: 128, PairsItem: 128, Dim: 8, Hidden: 4096}.ExactScan(1000, 1, 48<<10)
	fmt.Println(err)
	// Output:
	// 16 <nil>
	// shape does not fit a block: 128x128x8x4096 needs more than the 49152 bytes of shared memory; score it on the CPU
}
