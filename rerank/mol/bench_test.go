package mol

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// shape is a random model's.
type shape struct {
	queryDim, itemDim, dim, pq, px      int
	queryHidden, itemHidden, gateHidden int
	combination                         Combination
	byQuery, byItem, byPair             bool
	l2, normalise                       bool
	dropout                             float64
	temperature                         float64
	users                               []int
	activation                          Activation
}

func fullGate(pq, px, dim, gate int) shape {
	return shape{
		queryDim: 384, itemDim: 384, dim: dim, pq: pq, px: px, gateHidden: gate, combination: GLUSiLU,
		byQuery: true, byItem: true, byPair: true, l2: true, normalise: true, temperature: 0.05, activation: SwiGLU,
	}
}

func queryGate(pq, px, dim, gate int) shape {
	s := fullGate(pq, px, dim, gate)
	s.combination, s.byItem, s.byPair = None, false, false
	return s
}

// random makes a model of the shape with numbers of a size that training gives.
func (s shape) random(rng *rand.Rand) (Config, tensor.Set) {
	c := Config{
		QueryDim: s.queryDim, ItemDim: s.itemDim, Dim: s.dim, PairsQuery: s.pq, PairsItem: s.px,
		Temperature: s.temperature, L2Norm: s.l2, QueryHidden: s.queryHidden, ItemHidden: s.itemHidden,
		QueryNonlinearity: s.activation, ItemNonlinearity: s.activation,
		GatingQueryHidden: s.gateHidden, GatingItemHidden: s.gateHidden, GatingPairHidden: s.gateHidden,
		Combination: s.combination, SoftmaxDropout: s.dropout, UserTables: s.users, Normalise: s.normalise,
	}
	t := tensor.Set{}
	add := func(name string, scale float64, dims ...int) {
		n := 1
		for _, d := range dims {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64() * scale)
		}
		t[name] = tensor.Tensor{Shape: dims, Data: v}
	}
	addSide := func(prefix string, in, hidden, out int) {
		if hidden <= 0 {
			add(prefix+".1.weight", 0.1, out, in)
			add(prefix+".1.bias", 0.1, out)
			return
		}
		add(prefix+".1._w", 0.2, in, 2*hidden)
		add(prefix+".1._b", 0.1, 1, 2*hidden)
		add(prefix+".2.weight", 0.2, out, hidden)
		add(prefix+".2.bias", 0.1, out)
	}
	addSide(querySide, s.queryDim, s.queryHidden, (s.pq-len(s.users))*s.dim)
	addSide(itemSide, s.itemDim, s.itemHidden, s.px*s.dim)
	for i, size := range s.users {
		add(fmt.Sprintf(userTable, i), 1, size+1, s.dim)
	}
	pairs := s.pq * s.px
	addGate := func(prefix string, first, in int) {
		add(fmt.Sprintf("%s.%d.weight", prefix, first), 0.2, s.gateHidden, in)
		add(fmt.Sprintf("%s.%d.bias", prefix, first), 0.1, s.gateHidden)
		add(fmt.Sprintf("%s.%d.weight", prefix, first+2), 0.2, pairs, s.gateHidden)
	}
	if s.byQuery {
		addGate(gateQuery, 0, s.queryDim)
	}
	if s.byItem {
		addGate(gateItem, 1, s.itemDim)
	}
	if s.byPair && s.gateHidden > 0 {
		addGate(gatePair, 1, pairs)
		add(gatePair+".3.bias", 0.1, pairs)
	}
	return c, t
}

func (s shape) build(t testing.TB, rng *rand.Rand) *Similarity {
	t.Helper()
	m, err := New(s.random(rng))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func normal(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// BenchmarkScore scores 1,000 candidates gathered from a table of 20,000 rows, on
// every set of kernels.
func BenchmarkScore(b *testing.B) {
	for _, bench := range []struct {
		name string
		shape
	}{
		{"gates=full/shape=4x4x64", fullGate(4, 4, 64, 128)},
		{"gates=full/shape=8x4x64", fullGate(8, 4, 64, 128)},
		{"gates=query/shape=8x4x64", queryGate(8, 4, 64, 128)},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		s := bench.build(b, rng)
		query := rerank.Query{Vector: normal(rng, 1, 384).Data}
		items := rerank.Items{Features: normal(rng, 20000, s.Spec().Features), Rows: make([]int32, 1000)}
		for i := range items.Rows {
			items.Rows[i] = rng.Int32N(20000)
		}
		dst := make([]float32, len(items.Rows))
		for _, k := range kernel.Sets() {
			b.Run(bench.name+"/kernel="+k.Name(), func(b *testing.B) {
				e := encode(b, s.WithKernels(k), query)
				b.ReportAllocs()
				for b.Loop() {
					if err := e.Score(dst, items); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkEncodeItems encodes 256 items of 384 numbers.
func BenchmarkEncodeItems(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := fullGate(4, 4, 64, 128).build(b, rng)
	base := normal(rng, 256, 384)
	dst := rerank.NewMatrix(256, s.Spec().Features)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.EncodeItems(dst, base); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode encodes a query of 384 numbers.
func BenchmarkEncode(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := fullGate(8, 4, 64, 128).build(b, rng)
	q := rerank.Query{Vector: normal(rng, 1, 384).Data}
	for b.Loop() {
		encode(b, s, q)
	}
}
