package kernels_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu/bound"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
)

// tensorArgs packs a model, its table and its queries by the packing kernels, and returns the
// arguments of a scan.
func (g *given) tensorArgs(t *testing.T, m *memory) kernels.TensorArgs {
	t.Helper()
	s, n := g.shape(), &g.network
	pairs, width := n.PairsQuery*n.PairsItem, n.PairsItem*n.Dim
	weights := make(words[uint32], s.WeightsBytes()/4)
	w := kernels.WeightsArgs{
		First: m.put(words[float32](n.First.Data)), Bias: m.put(words[float32](n.FirstBias)), Second: m.put(words[float32](n.Second.Data)),
		Out: m.put(weights), PairsQuery: uint64(n.PairsQuery), PairsItem: uint64(n.PairsItem), Hidden: uint64(s.Hidden), SiLU: g.silu(),
	}
	m.launch(t, s.Weights(), w)

	halves := make(words[uint16], g.rows.Rows*width)
	largest := words[uint32]{0}
	p := kernels.RowsPackArgs{
		Source: m.put(words[float32](g.rows.Data)), Halves: m.put(halves), Largest: m.put(largest), Count: uint64(g.rows.Rows),
		Features: uint64(g.rows.Cols), Width: uint64(width), Stride: uint64(width), PairsQuery: uint64(n.PairsQuery), PairsItem: uint64(n.PairsItem),
	}
	if n.ItemGates {
		p.Gates = m.put(make(words[float32], g.rows.Rows*pairs))
	}
	m.launch(t, kernels.RowsPack(g.rows.Rows), p)

	components, bias, factor := g.operands()
	launch, q := s.Queries(len(g.queries))
	narrow := make(words[uint16], s.QueriesBytes(len(g.queries))/2)
	for i := range narrow {
		narrow[i] = 0x7e00
	}
	q.Components, q.Out = m.put(components), m.put(narrow)
	m.launch(t, launch, q)
	return kernels.TensorArgs{
		Halves: p.Halves, Gates: p.Gates, Weights: w.Out, Components: q.Out, Bias: m.put(bias), Factor: m.put(factor), SiLU: g.silu(),
	}
}

// tensorCases has a case for every generated shape, with the error that its scores may have at the
// case's temperature.
var tensorCases = []struct {
	name           string
	given          func(t *testing.T, queries int) *given
	rows           int
	scans, rescues int // queries
	tolerance      float64
}{
	{"8x4x64", goldenOf("a_ml1m_8x4x64"), 150, 5, 2, 0.02},
	{"8x8x32", goldenOf("b_books_8x8x32"), 150, 5, 2, 0.02},
	{"8x4x128", goldenOf("c_ml20m_8x4x128"), 150, 3, 2, 0.02},
	{"4x4x768", goldenOf("d_lm_4x4x768"), 70, 5, 2, 0.02},
	{"4x4x768, gates of the logits", goldenOf("e_lm_components"), 70, 3, 1, 0.02},
	{"4x4x64", func(t *testing.T, queries int) *given {
		t.Helper()
		return made(t, kernels.Shape{PairsQuery: 4, PairsItem: 4, Dim: 64, Hidden: 128}, 150, queries)
	}, 150, 11, 3, 0.02},
}

func goldenOf(name string) func(t *testing.T, queries int) *given {
	return func(t *testing.T, queries int) *given {
		t.Helper()
		return golden(t, "../../testdata/golden/mol/"+name, queries)
	}
}

// TestTensorScanOfMany scans with as many queries as a launch takes, and one item more than a tile.
func TestTensorScanOfMany(t *testing.T) {
	needsEmulator(t)
	g, m := golden(t, "../../testdata/golden/mol/d_lm_4x4x768", 32), &memory{}
	n := 33
	g.repeat(n)
	a := g.tensorArgs(t, m)
	scores := make(words[float32], 32*n)
	a.Pairs = kernels.Pairs{Scores: m.put(scores), Count: uint64(n), Queries: 32}
	m.launch(t, g.shape().Scan(n, 32, 132), a)
	for q := range 32 {
		if worst, _ := difference(t, scores[q*n:][:n], g.scores(t, q, nil)); worst > 0.02 {
			t.Errorf("query %d: %g from the CPU", q, worst)
		}
	}
}

// TestTensorScanOfOne scans with a single group of queries: two of four components each.
func TestTensorScanOfOne(t *testing.T) {
	needsEmulator(t)
	for _, queries := range []int{1, 2} {
		g, m := golden(t, "../../testdata/golden/mol/d_lm_4x4x768", queries), &memory{}
		n := 200
		g.repeat(n)
		a := g.tensorArgs(t, m)
		scores := make(words[float32], queries*n)
		a.Pairs = kernels.Pairs{Scores: m.put(scores), Count: uint64(n), Queries: uint64(queries)}
		m.launch(t, g.shape().Scan(n, queries, 1), a)
		for q := range queries {
			if worst, _ := difference(t, scores[q*n:][:n], g.scores(t, q, nil)); worst > 0.02 {
				t.Errorf("query %d of %d: %g from the CPU", q, queries, worst)
			}
		}
	}
}

func TestTensorScan(t *testing.T) {
	for _, c := range tensorCases {
		t.Run(c.name, func(t *testing.T) {
			needsEmulator(t)
			g, m := c.given(t, c.scans), &memory{}
			g.repeat(c.rows)
			g.lean(rand.New(rand.NewPCG(4, 2)))
			g.spoil(rand.New(rand.NewPCG(1, 2)))
			a := g.tensorArgs(t, m)
			const first = 2
			n := g.rows.Rows - first
			scores := make(words[float32], c.scans*n)
			a.Pairs = kernels.Pairs{Scores: m.put(scores), First: first, Count: uint64(n), Queries: uint64(c.scans)}
			if _, err := m.run(g.shape().Scan(n, c.scans, 2), a, how{}); err != nil {
				t.Fatal(err)
			}
			upper := make(words[float32], len(scores))
			a.Pairs.Scores, a.Limits = m.put(upper), m.put(g.limits(t))
			m.launch(t, g.shape().Scan(n, c.scans, 2), a)
			var worst, squares, allowed float64
			for q := range c.scans {
				want := g.scores(t, q, nil)[first:]
				w, s := difference(t, scores[q*n:][:n], want)
				worst, squares = math.Max(worst, w), squares+s
				allowed += above(t, upper[q*n:][:n], scores[q*n:][:n], want) / float64(c.scans)
			}
			t.Logf("error at most %.2g, root mean square %.2g, of scores up to %.3g; bounds are %.2g above them",
				worst, math.Sqrt(squares/float64(len(scores))), scale(scores), allowed)
			if allowed > scale(scores)/2 {
				t.Errorf("bounds are %g above scores, in the mean", allowed)
			}
			if worst > c.tolerance {
				t.Errorf("%g from the CPU, want %g at most", worst, c.tolerance)
			}
		})
	}
}

// above fails the test unless every upper bound is at least the kernel's score and the CPU's score (want),
// and finite where the CPU's score is. It returns by how much the bounds exceed the kernel's scores in
// the mean.
func above(t *testing.T, upper, scores, want []float32) (mean float64) {
	t.Helper()
	for i, x := range upper {
		switch {
		case finite(x) != finite(want[i]):
			t.Fatalf("bound %d is %v, the CPU's score %v", i, x, want[i])
		case finite(x) && (x < scores[i] || float64(x) < float64(want[i])-2e-6*scale(want)):
			t.Fatalf("bound %d is %v, the score %v, on the CPU %v", i, x, scores[i], want[i])
		case finite(x):
			mean += float64(x-scores[i]) / float64(len(upper))
		}
	}
	return mean
}

// limits returns the numbers of every query's limits, one query after the other.
func (g *given) limits(t *testing.T) words[float32] {
	t.Helper()
	p := bound.Packing(&g.network, g.rows.Cols)
	loss, width := rerank.NewLoss(p), g.network.PairsItem*g.network.Dim
	packed, back := make([]uint32, p.RowWords()), make([]float32, g.rows.Cols)
	for i := range g.rows.Rows {
		p.Pack(packed, g.rows.Row(i))
		p.Unpack(back, packed, 1)
		copy(back[width:], g.rows.Row(i)[width:])
		if !slices.ContainsFunc(g.rows.Row(i), func(x float32) bool { return !finite(x) }) {
			loss.Add(p, g.rows.Row(i), back)
		}
	}
	var all words[float32]
	for _, q := range g.queries {
		o := q.(rerank.Operator).Operands()
		l, ok := bound.New(&g.network).Limits(&o, &loss)
		if !ok {
			t.Fatal("no limits")
		}
		numbers := l.Numbers()
		all = append(all, numbers[:]...)
	}
	return all
}

// lean changes the components of every other row so that rounding to float16 moves them almost as far as
// it can, and lowers the logits of one query component by all of it.
func (g *given) lean(r *rand.Rand) {
	for i := 0; i < g.rows.Rows; i += 2 {
		o := g.queries[r.IntN(len(g.queries))].(rerank.Operator).Operands()
		f := o.Vectors.Row(r.IntN(o.Vectors.Rows))
		row := g.rows.Row(i)
		for k := range g.network.PairsItem * g.network.Dim {
			if x := float64(row[k]); x != 0 {
				step := math.Exp2(math.Floor(math.Log2(math.Abs(x))) - 10)
				row[k] = float32(math.Trunc(x/step)*step + math.Copysign(0.49*step, float64(f[k%g.network.Dim])))
			}
		}
	}
}

// repeat makes the table n rows long by copies of its rows, in which one component is reversed.
func (g *given) repeat(n int) {
	rows := rerank.NewMatrix(n, g.rows.Cols)
	for i := range n {
		copy(rows.Row(i), g.rows.Row(i%g.rows.Rows))
		if i >= g.rows.Rows {
			row := rows.Row(i)[:g.network.Dim]
			slices.Reverse(row)
		}
	}
	g.rows = rows
}

func TestTensorRescore(t *testing.T) {
	for _, c := range tensorCases {
		t.Run(c.name, func(t *testing.T) {
			needsEmulator(t)
			g, m, r := c.given(t, c.rescues), &memory{}, rand.New(rand.NewPCG(3, 4))
			g.spoil(r)
			a := g.tensorArgs(t, m)
			p, longest := gathered(r, m, g.rows.Rows, c.rescues)
			a.Pairs = p.Pairs
			m.launch(t, g.shape().Rescore(longest, c.rescues, 1), a)
			for q := range c.rescues {
				rows := p.rows[p.starts[q]:p.starts[q+1]]
				if len(rows) == 0 {
					continue
				}
				if worst, _ := difference(t, p.scores[p.starts[q]:p.starts[q+1]], g.scores(t, q, rows)); worst > c.tolerance {
					t.Errorf("query %d: %g from the CPU, want %g at most", q, worst, c.tolerance)
				}
			}
		})
	}
}
