package companion

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// BenchmarkPlaceNewItem computes the companion vector of one item, as `follow` does for a write: 3,000
// scores of the shipped full-gate MoL, and 512 numbers. What the numbers are does not matter.
func BenchmarkPlaceNewItem(b *testing.B) {
	m, err := model.Open("../../../examples/models/banking77-questions-mol")
	if err != nil {
		b.Fatal(err)
	}
	const anchors, dim, hidden = 3000, 512, 512
	rng := rand.New(rand.NewPCG(1, 1))
	add := func(p model.Parameters, name string, shape ...int) {
		size := 1
		for _, n := range shape {
			size *= n
		}
		p.Tensors[name] = tensor.Tensor{Shape: shape, Data: fittest.NormalMatrix(rng, 1, size).Data}
	}
	e, err := m.Encode(rerank.Query{Vector: fittest.NormalMatrix(rng, 1, m.Spec().QueryDim).Data})
	if err != nil {
		b.Fatal(err)
	}
	p := m.Parameters()
	p.Tensors = maps.Clone(p.Tensors)
	add(p, companion.Anchors, anchors, m.Spec().QueryDim)
	add(p, companion.Hidden, hidden, m.Spec().QueryDim)
	add(p, companion.Out, dim, 1+features(e).Cols+hidden)
	add(p, companion.Threshold, anchors)
	add(p, companion.Mean, anchors)
	add(p, companion.Leak, 1)
	if m, err = model.New(p); err != nil {
		b.Fatal(err)
	}
	item, row := fittest.NormalMatrix(rng, 1, m.Spec().ItemDim), rerank.NewMatrix(1, m.Spec().Features)
	if err := m.EncodeItems(row, item); err != nil {
		b.Fatal(err)
	}
	w := rerank.NewMatrix(1, dim)
	place := func() {
		if err := rerank.AbilitiesOf(m.Similarity).Derive.Derive(w, companion.Field, rerank.Items{Features: row}); err != nil {
			b.Fatal(err)
		}
	}
	place() // encodes the anchors
	before := fittest.UserTime()
	for b.Loop() {
		place()
	}
	b.ReportMetric(1e3*(fittest.UserTime()-before)/float64(b.N), "cpu-ms/op")
}
