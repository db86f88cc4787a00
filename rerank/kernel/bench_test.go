package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

func normal(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// BenchmarkRows is one vector of 384 with 1,000 of 20,000 rows.
func BenchmarkRows(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	m, v := normal(rng, 20000, 384), normal(rng, 1, 384).Data
	rows, dst := make([]int32, 1000), make([]float32, 1000)
	for i := range rows {
		rows[i] = rng.Int32N(20000)
	}
	for b.Loop() {
		Rows(dst, v, m, rows)
	}
}

// BenchmarkMulT is the gates' first layer of 16 candidates, 8 by 4 components.
func BenchmarkMulT(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	x, w := normal(rng, 16, 32), normal(rng, 128, 32)
	dst := make([]float32, 16*128)
	for b.Loop() {
		MulT(dst, 128, x, w, nil)
	}
	b.ReportMetric(float64(b.N)*16*32*128/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkSiLU(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	v, src := make([]float32, 1024), normal(rng, 1, 1024).Data
	for b.Loop() {
		copy(v, src)
		SiLU(v)
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/1024, "ns/number")
}
