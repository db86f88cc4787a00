package bilinear_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// BenchmarkScore scores 1,000 candidates of 384 numbers gathered from 20,000.
func BenchmarkScore(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := build(b, bilinear.Config{QueryDim: 384, ItemDim: 384, Normalise: true}, tensor.Set{"W": random(rng, 384, 384)})
	e := encode(b, s, random(rng, 384).Data)
	items := rerank.Items{Features: rerank.Matrix{Rows: 20000, Cols: 384, Data: random(rng, 20000, 384).Data}, Rows: make([]int32, 1000)}
	for i := range items.Rows {
		items.Rows[i] = rng.Int32N(20000)
	}
	dst := make([]float32, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Score(dst, items); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode encodes queries of 384 numbers, alone and in a batch.
func BenchmarkEncode(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, width := range []int{64, 384} {
		s := build(b, bilinear.Config{QueryDim: 384, ItemDim: width, Normalise: true}, tensor.Set{"W": random(rng, 384, width)})
		for _, count := range []int{1, 32} {
			queries := make([]rerank.Query, count)
			for i := range queries {
				queries[i].Vector = random(rng, 384).Data
			}
			for _, k := range kernel.Sets() {
				with := s.WithKernels(k)
				b.Run(fmt.Sprintf("384x%d/%s/%d", width, k.Name(), count), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if _, err := rerank.EncodeAll(with, rerank.AbilitiesOf(with).EncodeBatch, queries); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
