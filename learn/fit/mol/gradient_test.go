package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// wide is an array of float64 of a parameter's shape.
type wide struct {
	rows, cols int
	v          []float64
}

func widen(m rerank.Matrix) wide {
	w := wide{rows: m.Rows, cols: m.Cols}
	for _, x := range m.Data {
		w.v = append(w.v, float64(x))
	}
	return w
}

func (w wide) row(r int) []float64 { return w.v[r*w.cols : (r+1)*w.cols] }

// naiveMoL computes the loss of a batch in float64, written from the formulae of
// testdata/golden/README.md alone. parameters holds the net's parameters in its order, and then its
// user tables.
type naiveMoL struct {
	net        *net
	learner    *learner
	pairs      []samples.Pair
	parameters []wide
	q          rerank.Matrix
}

func (m *naiveMoL) take(n int) []wide {
	out := m.parameters[:n]
	m.parameters = m.parameters[n:]
	return out
}

func naiveAffine(w wide, bias []float64, x []float64) []float64 {
	y := make([]float64, w.rows)
	for r := range y {
		for k, v := range w.row(r) {
			y[r] += v * x[k]
		}
		if bias != nil {
			y[r] += bias[r]
		}
	}
	return y
}

func silu64(x float64) float64 { return x / (1 + math.Exp(-x)) }

func naivePerceptron(p []wide, x []float64) []float64 {
	if len(p) < 3 { // one layer
		return naiveAffine(p[0], p[1].v, x)
	}
	hidden := naiveAffine(p[0], p[1].v, x)
	for i, v := range hidden {
		hidden[i] = silu64(v)
	}
	var bias []float64
	if len(p) > 3 {
		bias = p[3].v
	}
	return naiveAffine(p[2], bias, hidden)
}

func naiveSide(p []wide, a mol.Activation, x []float64) []float64 {
	if len(p) == 2 {
		return naiveAffine(p[0], p[1].v, x)
	}
	both := naiveAffine(p[0], p[1].v, x)
	half := len(both) / 2
	hidden := make([]float64, half)
	for i := range hidden {
		if a == mol.GeGLU {
			hidden[i] = both[i] * 0.5 * (1 + math.Erf(both[i]/math.Sqrt2)) * both[half+i]
		} else {
			hidden[i] = silu64(both[i]) * both[half+i]
		}
	}
	return naiveAffine(p[2], p[3].v, hidden)
}

func wideRow(v []float32) []float64 { return widen(rerank.Matrix{Rows: 1, Cols: len(v), Data: v}).v }

// loss of the pairs.
func (m naiveMoL) loss() float64 {
	n, o := m.net, m.net.options
	all := m.parameters
	query := m.take(len(n.query.parameters()))
	item := m.take(2)
	gate := m.take(3)
	var byItem, byPair []wide
	if n.hasFullGates() {
		byItem, byPair = m.take(3), m.take(len(n.byPair.parameters()))
	}
	tables := m.parameters
	c := m.learner.candidates
	var loss, entropies, count float64
	meanGates := make([]float64, n.pairs())
	for b, p := range m.pairs {
		q := wideRow(m.q.Row(b))
		f := naiveSide(query, o.QueryActivation, q)
		for t, table := range tables {
			row := append([]float64(nil), table.row(n.users[t].rowOf(m.learner.log.Users[p.Query]))...)
			if o.UserDropout > 0 {
				rng := n.noise.rowSource(dropUser+t, b)
				for i := range row {
					if rng.Float64() < o.UserDropout {
						row[i] = 0
					} else {
						row[i] /= 1 - o.UserDropout
					}
				}
			}
			f = append(f, row...)
		}
		queryGate := naivePerceptron(gate, q)
		rng := n.gateNoise(b)
		var mask []bool
		logits := make([]float64, len(c.Rows))
		for x, row := range c.Rows {
			vector := wideRow(m.learner.log.Items.Row(int(row)))
			g := naiveAffine(item[0], item[1].v, vector)
			l := make([]float64, n.pairs())
			for i := range o.PairsQuery {
				for j := range o.PairsItem {
					l[i*o.PairsItem+j] = naiveDot(part(f, i, n.dim, o.L2Norm), part(g, j, n.dim, o.L2Norm)) / o.Temperature
				}
			}
			gates := append([]float64(nil), queryGate...)
			if n.hasFullGates() {
				xg, pg := naivePerceptron(byItem, vector), naivePerceptron(byPair, l)
				for k := range gates {
					gates[k] = silu64(gates[k]*xg[k] + pg[k])
				}
			}
			if rng != nil && (n.hasFullGates() || mask == nil) {
				mask = make([]bool, len(gates))
				for k := range mask {
					mask[k] = rng.Float64() >= o.GateDropout
				}
			}
			naiveSoftmax(gates, mask)
			logits[x] = naiveDot(gates, l)
			if n.hasFullGates() || x == 0 {
				count++
				for k, v := range gates {
					meanGates[k] += v
					entropies -= v * math.Log(v+1e-6)
				}
			}
			if c.Correction != nil && row != p.Item {
				logits[x] += float64(c.Correction[x])
			}
			for _, other := range m.learner.log.Relevant[p.Query] {
				if other == row && row != p.Item {
					logits[x] = math.Inf(-1)
				}
			}
		}
		naiveSoftmax(logits, nil)
		loss -= float64(p.Weight) / m.learner.batches.MeanWeight / float64(len(m.pairs)) * math.Log(logits[c.Columns[p.Item]])
	}
	balance := entropies / count
	for _, v := range meanGates {
		balance += v / count * math.Log(v/count+1e-6)
	}
	loss += o.Balance * balance
	for i, p := range n.learned {
		pull := m.learner.pull
		if n.guarded && i >= len(n.query.parameters())+2 {
			pull *= guardGates
		}
		for k, v := range all[i].v {
			loss += pull * (v - float64(p.start[k])) * (v - float64(p.start[k]))
		}
	}
	return loss
}

func part(v []float64, i, dim int, unit bool) []float64 {
	out := append([]float64(nil), v[i*dim:(i+1)*dim]...)
	if norm := math.Sqrt(naiveDot(out, out)); unit {
		for k := range out {
			out[k] /= max(norm, 1e-6)
		}
	}
	return out
}

func naiveDot(a, b []float64) float64 {
	var sum float64
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func naiveSoftmax(v []float64, mask []bool) {
	kept := false
	for _, keep := range mask {
		kept = kept || keep
	}
	top, sum := math.Inf(-1), 0.0
	for i, x := range v {
		if kept && !mask[i] {
			v[i] = math.Inf(-1)
			continue
		}
		top = max(top, x)
	}
	for i, x := range v {
		v[i] = math.Exp(x - top)
		sum += v[i]
	}
	for i := range v {
		v[i] /= sum
	}
}

// Every gradient, parameter by parameter, against central differences of a loss
// in float64: for both kinds of gates and every option that changes the formula,
// at sizes that fill no tile.
func TestMoLGradients(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"query gates":       func(*Options) {},
		"normalised":        func(o *Options) { o.L2Norm = true },
		"swiglu":            func(o *Options) { o.QueryHidden = 11 },
		"geglu, dropout":    func(o *Options) { o.QueryHidden, o.QueryActivation, o.Dropout = 5, mol.GeGLU, 0.3 },
		"gate dropout":      func(o *Options) { o.GateDropout = 0.4 },
		"users":             func(o *Options) { o.UserTables = []int{7, 3} },
		"users, normalised": func(o *Options) { o.UserTables, o.L2Norm, o.UserDropout = []int{7}, true, 0 },
		"sampled":           func(o *Options) { o.Softmax, o.Draws = 2, 4 },
		"full":              func(o *Options) { o.Gates = GatesFull },
		"guarded":           func(o *Options) { o.Cold = fit.ColdGuard },
		"full, linear, normalised, sampled": func(o *Options) {
			o.Gates, o.GatePairHidden, o.L2Norm, o.Softmax, o.Draws = GatesFull, 0, true, 2, 4
		},
		"full, everything": func(o *Options) {
			o.Gates, o.GateDropout, o.UserTables, o.QueryHidden, o.Dropout = GatesFull, 0.3, []int{5}, 6, 0.2
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.PairsQuery, o.PairsItem, o.Dim, o.GateQueryHidden, o.GateItemHidden, o.GatePairHidden = 5, 3, 3, 9, 5, 6
			o.Balance, o.Temperature, o.Batch = 0.3, 0.4, 13
			change(&o)
			o.setDefaults()
			checkGradient(t, o)
		})
	}
}

// prepare prepares random data.
func prepare(t *testing.T, queries, items, dim int) *samples.Log {
	t.Helper()
	l, err := samples.Prepare(fittest.RandomData(queries, items, dim), true)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func checkGradient(t *testing.T, o Options) {
	t.Helper()
	rng := rand.New(rand.NewPCG(31, 5))
	p := prepare(t, 40, 9, 7)
	p.Users = make([]int64, 40)
	p.Weights = make([][]float32, 40)
	for q := range p.Users {
		p.Users[q] = int64(rng.IntN(50) - 20)
		for range p.Relevant[q] {
			p.Weights[q] = append(p.Weights[q], 0.5+rng.Float32())
		}
	}
	pairs := p.Pairs([]int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil)
	tr := newLearner(p, newNet(o, p, identity(p.Items.Cols), o.Cold == fit.ColdGuard), pairs, 0.05, o)
	for _, v := range tr.net.arrays() { // away from the start, where some gradients are zero
		linalg.AddScaled(v, fittest.NormalMatrix(rng, 1, len(v)).Data, 0.2)
	}
	tr.net.noise = noise{on: true, seed: 3, step: 8}
	tr.computeGradients(pairs)
	if len(tr.net.users) == 0 { // whose gradients add up until their update
		tr.computeGradients(pairs) // forgets those of the step before
	}
	m := naiveMoL{net: tr.net, learner: tr, pairs: pairs, q: tr.queries}
	var gradients []wide
	for _, v := range tr.net.learned {
		m.parameters, gradients = append(m.parameters, widen(v.Matrix)), append(gradients, widen(v.grad))
	}
	for _, table := range tr.net.users {
		m.parameters = append(m.parameters, widen(table.Matrix))
		table.adam.Update(rerank.NewMatrix(table.Rows, table.Cols), 0, 1)
		sum := widen(table.adam.First) // a tenth of the gradients, after one step
		for i := range sum.v {
			sum.v[i] *= 10
		}
		gradients = append(gradients, sum)
	}
	for i, v := range m.parameters {
		for range 2 {
			direction := widen(fittest.NormalMatrix(rng, v.rows, v.cols)).v
			move := func(by float64) float64 {
				for k, d := range direction {
					v.v[k] += by * d
				}
				return m.loss()
			}
			const h = 1e-5
			up, down := move(h), move(-2*h)
			move(h)
			want := (up - down) / (2 * h)
			if i < len(tr.net.learned) && tr.net.guarded && (tr.net.learned[i] == tr.net.query.out.bias || tr.net.learned[i] == tr.net.item.bias) {
				want = 0 // held
			}
			got := naiveDot(gradients[i].v, direction)
			if !(math.Abs(got-want) <= 2e-4*(1+math.Abs(want))) {
				t.Errorf("parameter %d, %dx%d: the gradient along a direction is %.6f, by differences %.6f", i, v.rows, v.cols, got, want)
			}
		}
	}
}

// The values of L_MI, and gates that are golden (testdata/golden/mi_loss).
func TestBalance(t *testing.T) {
	for name, tc := range map[string]struct {
		gates [][]float32
		want  float64
	}{
		"uniform":   {[][]float32{{0.25, 0.25, 0.25, 0.25}, {0.25, 0.25, 0.25, 0.25}}, 0},
		"collapsed": {[][]float32{{1, 0}, {1, 0}}, 0},
		"balanced":  {[][]float32{{1, 0}, {0, 1}}, -math.Log(2)},
	} {
		var b balancing
		b.reset(1, len(tc.gates[0]))
		for _, g := range tc.gates {
			b.addExample(make([]float32, len(g)), g)
		}
		if got := b.loss(); !(math.Abs(got-tc.want) <= 1e-5) {
			t.Errorf("%s: %g, want %g", name, got, tc.want)
		}
	}
}

// identity returns the W of the plain inner product.
func identity(dim int) rerank.Matrix {
	w := rerank.NewMatrix(dim, dim)
	for i := range dim {
		w.Row(i)[i] = 1
	}
	return w
}

// At its start a MoL is the bilinear form, whatever its parts.
func TestMoLStartsAtTheBilinearForm(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"query gates":    func(*Options) {},
		"full gates":     func(o *Options) { o.Gates = GatesFull },
		"few queries":    func(o *Options) { o.PairsQuery = 2; o.Dim = 8 },
		"long":           func(o *Options) { o.Dim = 13 },
		"gated":          func(o *Options) { o.QueryHidden = 40 },
		"gated, geglu":   func(o *Options) { o.QueryHidden, o.QueryActivation = 16, mol.GeGLU },
		"user embedding": func(o *Options) { o.UserTables = []int{5} },
	} {
		t.Run(name, func(t *testing.T) {
			p := prepare(t, 40, 30, 15)
			p.Users = make([]int64, 40)
			o := DefaultOptions()
			change(&o)
			o.Temperature = 0.05
			f := &fitter{log: p, options: o}
			w := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), p.Items.Cols, p.Items.Cols)
			v, err := f.newView(newNet(o, p, w, false))
			if err != nil {
				t.Fatal(err)
			}
			var xy, xx, yy float64
			scores := make([]float32, 30)
			probes := rerank.NewMatrix(40, w.Cols)
			linalg.Multiply(probes, p.Queries, false, w, false)
			for q := range int32(40) {
				e, err := v.encodeQuery(q)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Score(scores, rerank.Items{Features: v.features}); err != nil {
					t.Fatal(err)
				}
				for x, s := range scores {
					want := linalg.Dot(probes.Row(int(q)), p.Items.Row(x)) / o.Temperature
					xy, xx, yy = xy+float64(s)*want, xx+float64(s)*float64(s), yy+want*want
				}
			}
			if fit := xy / math.Sqrt(xx*yy); fit < 0.98 {
				t.Errorf("the scores correlate with the bilinear form by %.4f", fit)
			}
		})
	}
}
