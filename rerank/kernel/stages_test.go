package kernel_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/kernel"
)

// BenchmarkScreen does the stages of a screen of 256 items of a mixture 8x8x32 with gates of width 128, in bfloat16, of
// every set of AVX-512.
func BenchmarkScreen(b *testing.B) {
	const tiles, pq, px, dim, width = 16, 8, 8, 32, 128
	const pairs, lanes = pq * px, kernel.Lanes
	const logit, layer, words = pairs * lanes, width / 2 * lanes, px * dim / 2 * lanes
	r := rand.New(rand.NewPCG(1, 2))
	pack := func(rows, cols int) kernel.WeightsBFloat16 { return kernel.PackBFloat16(random(r, rows, cols)) }
	query, first, second := pack(pq, dim), pack(width, pairs), pack(pairs, width)
	items, logits, gates := make([]uint32, tiles*words), make([]float32, tiles*logit), make([]float32, tiles*logit)
	for i := range items {
		items[i] = uint32(kernel.RoundBFloat16(float32(r.NormFloat64()))) | uint32(kernel.RoundBFloat16(float32(r.NormFloat64())))<<16
	}
	half, hidden, room := make([]uint32, tiles*logit/2), make([]uint32, tiles*layer), make([]float32, tiles*2*layer)
	bias, factor, plus := fill(r, width), fill(r, pairs), fill(r, tiles*logit)
	var lost [kernel.Lanes]float32
	var extent [3][kernel.Lanes]float32
	var mean [2][kernel.Lanes]float32
	squares := make([][2][kernel.Lanes]float32, tiles)
	each := func(f func(t int)) {
		for t := range tiles {
			f(t)
		}
	}
	stages := []struct {
		name string
		do   func(s *kernel.Set)
	}{
		{"logits", func(s *kernel.Set) {
			s.MultiplyBFloat16(query, items, &kernel.Product{Tiles: px, C: logits, CTile: lanes, CRow: px * lanes, BTile: dim / 2 * lanes, Groups: tiles, CGroup: logit, BGroup: words})
		}},
		{"extent", func(s *kernel.Set) { each(func(t int) { s.Extent(&extent, logits[t*logit:][:logit]) }) }},
		{"round", func(s *kernel.Set) { each(func(t int) { s.Round(half[t*logit/2:], &lost, logits[t*logit:][:logit]) }) }},
		{"hidden layer", func(s *kernel.Set) {
			narrow := kernel.Narrow{Words: hidden, Tile: layer, Squares: squares}
			s.MultiplyBFloat16(first, half, &kernel.Product{Tiles: tiles, C: room, CTile: 2 * layer, BTile: logit / 2, Bias: bias, SiLU: true, Rough: true, Narrow: &narrow})
		}},
		{"gates", func(s *kernel.Set) {
			s.MultiplyBFloat16(second, hidden, &kernel.Product{Tiles: tiles, C: gates, CTile: logit, BTile: layer, Bias: bias[:pairs], Factor: factor, Plus: plus, PlusTile: logit, SiLU: true, Rough: true})
		}},
		{"softmax", func(s *kernel.Set) {
			each(func(t int) { s.Weigh(&mean, logits[t*logit:][:logit], gates[t*logit:][:logit]) })
		}},
	}
	for _, s := range reducedSets() {
		if !strings.HasPrefix(s.Name(), "avx512") {
			continue
		}
		for _, stage := range stages {
			b.Run(stage.name+"/"+s.Name(), func(b *testing.B) {
				for b.Loop() {
					stage.do(s)
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/tiles/lanes, "ns/item")
			})
		}
	}
}
