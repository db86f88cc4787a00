package gpu

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// madeMoL is a MoL of components that are given, whose gates come from the logits
// through layers of that size: with small weights the gates hardly move, and a bound
// closes; with large ones none does.
func madeMoL(t testing.TB, size float32, hidden int, temperature float64) *model.Model {
	t.Helper()
	const pq, px, dim = 2, 3, 8
	config, err := json.Marshal(mol.Config{
		QueryDim: pq * dim, ItemDim: px * dim, Dim: dim, PairsQuery: pq, PairsItem: px, Temperature: temperature,
		GatingPairHidden: hidden, Combination: mol.None, ComponentsGiven: true, Normalise: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, uint64(hidden)))
	set := tensor.Set{}
	add := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = size * float32(rng.NormFloat64())
		}
		set[name] = tensor.Tensor{Shape: shape, Data: data}
	}
	const part = "_gating_fn._qi_partial_module."
	if hidden > 0 {
		add(part+"1.weight", hidden, pq*px)
		add(part+"1.bias", hidden)
		add(part+"3.weight", pq*px, hidden)
		add(part+"3.bias", pq*px)
	} else {
		add(part+"1.weight", pq*px, pq*px)
		add(part+"1.bias", pq*px)
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindMoL, Name: "made", Config: config, Tensors: set})
	if err != nil {
		t.Fatal(err)
	}
	return m.WithKernels(kernel.Go())
}

func unitRows(n, components, dim int, seed uint64) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 9))
	m := rerank.NewMatrix(n, components*dim)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	for r := range n {
		for c := range components {
			rerank.Normalise(m.Row(r)[c*dim:][:dim])
		}
	}
	return m
}

// scripted is a machine whose tables have two scores a row: rough and exact.
type scripted struct {
	rough, exact []float32
	launches     []string
}

func (m *scripted) Facts() (Facts, error) {
	return Facts{Name: "scripted", Memory: 1 << 30, Free: 1 << 30, MaxBatch: 8, MaxKeep: 8192}, nil
}
func (m *scripted) ModelBytes(*Network) int64           { return 1 }
func (m *scripted) TableBytes(*Network, int) int64      { return 1 }
func (m *scripted) LoadModel(*Network) (Model, error)   { return m, nil }
func (m *scripted) NewTable(Model, int) (Table, error)  { return m, nil }
func (m *scripted) Close() error                        { return nil }
func (m *scripted) Approximates() bool                  { return true }
func (m *scripted) Free() error                         { return nil }
func (m *scripted) Write(int, rerank.Matrix) error      { return nil }
func (m *scripted) Patch([]uint32, rerank.Matrix) error { return nil }
func (m *scripted) CopyFrom(Table, int) error           { return nil }
func (m *scripted) Resize(int, []uint32) error          { return nil }
func (m *scripted) Run(jobs []Job) ([]Survivors, error) {
	out := make([]Survivors, len(jobs))
	for i, j := range jobs {
		scores, way := m.rough, "rough"
		if j.Way == Exact {
			scores, way = m.exact, "exact"
		}
		rows := j.Rows
		if rows == nil {
			for r := range scores {
				rows = append(rows, uint32(r))
			}
		}
		m.launches = append(m.launches, fmt.Sprintf("%s %d of %d", way, j.Keep, len(rows)))
		top := rerank.NewTopK(j.Keep + 1)
		for _, r := range rows {
			top.Push(rerank.Scored{ID: rerank.UintID(uint64(r)), Score: scores[r], Index: int(r)})
		}
		out[i] = Survivors{Next: none32, Scored: len(rows)}
		for n, s := range top.Sorted() {
			if n == j.Keep {
				out[i].Next = s.Score
				break
			}
			out[i].Rows, out[i].Scores = append(out[i].Rows, uint32(s.Index)), append(out[i].Scores, s.Score)
		}
	}
	return out, nil
}

// TestCertify: K' doubles until the bound closes; where it cannot, all rows are scored
// in float32, or the answer says that it rests on what was measured. Rows score −i
// roughly, and row 100 really has the best score of all but two.
func TestCertify(t *testing.T) {
	const rows = 2000
	m := &scripted{}
	for i := range rows {
		m.rough = append(m.rough, -float32(i)/1000)
	}
	m.exact = append(m.exact, m.rough...)
	m.exact[100] = -0.0015
	for _, c := range []struct {
		name     string
		bound    float64
		measured int // pairs that were measured; their error is 0.05
		want     string
		proved   bool
	}{
		{"closes at once", 0.02, 0, "[rough 64 of 2000 exact 4 of 64]", true},
		{"closes when doubled", 0.1, 0, "[rough 64 of 2000 exact 4 of 64 rough 128 of 2000 exact 4 of 128]", true},
		{"never closes", math.Inf(1), 0, "[rough 64 of 2000 exact 4 of 64 exact 4 of 2000]", true},
		{"by what was measured", math.Inf(1), 500, "[rough 64 of 2000 exact 4 of 64 rough 128 of 2000 exact 4 of 128]", false},
	} {
		m.launches = nil
		tb := &table{model: &loaded{on: m}, on: m, rows: rows, rounding: &rounding{mostKept: 1024, wanted: c.measured, count: c.measured, worst: 0.05}}
		s := &search{ctx: context.Background(), table: tb, k: 3, count: rows, bound: c.bound, done: make(chan struct{})}
		s.begin()
		for more := true; more; {
			found, _ := m.Run([]Job{s.job()})
			more = s.step(found[0])
		}
		if got := fmt.Sprint(m.launches); got != c.want {
			t.Errorf("%s: launches %s, want %s", c.name, got, c.want)
		}
		if (s.best.Measured == 0) != c.proved || s.err != nil {
			t.Errorf("%s: measured on %d pairs (%v), want proved: %t", c.name, s.best.Measured, s.err, c.proved)
		}
		if got := fmt.Sprint(s.best.Rows, s.best.Next); c.bound > 0.05 && got != "[0 1 100] -0.002" {
			t.Errorf("%s: rows and next %s, want [0 1 100] -0.002", c.name, got)
		}
	}
}

// TestBoundsHold: no score by Approximate, in plain Go as the kernels round, is further
// from φ in float64 arithmetic than its bound, and where gates are small the bound is
// worth something.
func TestBoundsHold(t *testing.T) {
	for _, c := range []struct {
		size   float32
		hidden int
		tau    float64
		useful bool
	}{{0.01, 0, 1, true}, {0.01, 4, 0.5, true}, {0.3, 0, 0.1, false}, {0.3, 16, 0.05, false}, {1, 7, 0.02, false}} {
		m := madeMoL(t, c.size, c.hidden, c.tau)
		n := NetworkOf(m)
		items, queries := unitRows(300, 3, 8, 1), unitRows(20, 2, 8, 2)
		tb := &table{model: &loaded{Model: m, network: n, weights: newWeights(n), on: &scripted{}}, loss: rerank.NewLoss(n.packing16())}
		tb.look(items)
		worst, bound := 0.0, 0.0
		for q := range queries.Rows {
			enc, err := m.Encode(rerank.Query{Vector: queries.Row(q)})
			if err != nil {
				t.Fatal(err)
			}
			o := enc.(rerank.Operator).Operands()
			exact, rough := make([]float32, items.Rows), roughScores(n, &o, items)
			if err := enc.Score(exact, rerank.Items{Features: items}); err != nil {
				t.Fatal(err)
			}
			bound = approximateError(n, tb.model.weights, &o, &tb.loss) + exactError(n, &o, &tb.loss)
			for i := range exact {
				d := math.Abs(float64(exact[i]) - float64(rough[i]))
				worst = max(worst, d)
				if !(d <= bound) {
					t.Fatalf("weights of %v, %d wide, temperature %v: off by %v, the bound is %v", c.size, c.hidden, c.tau, d, bound)
				}
			}
		}
		if useful := bound < 0.02/c.tau; useful != c.useful {
			t.Errorf("weights of %v, %d wide, temperature %v: off by %v at most, the bound is %v", c.size, c.hidden, c.tau, worst, bound)
		}
	}
}

// roughScores are in float16 operands and float32 sums.
func roughScores(n *Network, o *rerank.Operands, items rerank.Matrix) []float32 {
	half := func(v []float32) []float32 { r, _ := round16(v); return r }
	dot := func(a, b []float32) (sum float32) {
		for k, x := range a {
			sum += x * b[k]
		}
		return sum
	}
	layer := func(w rerank.Matrix, bias, x []float32) []float32 {
		out := make([]float32, w.Rows)
		for r := range out {
			out[r] = dot(half(w.Row(r)), x) + bias[r]
		}
		return out
	}
	out := make([]float32, items.Rows)
	for i := range out {
		logits := make([]float32, n.MoL.PairsQuery*n.MoL.PairsItem)
		for l := range logits {
			f := half(scaled(o.Vectors.Row(l/n.MoL.PairsItem), o.Scale))
			logits[l] = dot(f, half(items.Row(i)[l%n.MoL.PairsItem*n.MoL.Dim:][:n.MoL.Dim]))
		}
		x := half(logits)
		if n.MoL.First.Rows > 0 {
			x = layer(n.MoL.First, n.MoL.FirstBias, x)
			for k, v := range x {
				x[k] = v / (1 + float32(math.Exp(-float64(v))))
			}
			x = half(x)
		}
		z := layer(n.MoL.Second, n.MoL.SecondBias, x)
		kernel.Softmax(z)
		out[i] = dot(z, logits)
	}
	return out
}
