//go:build (!amd64 && !arm64) || noasm

package kernel

import "github.com/likenessdb/likeness/rerank"

func accelerated() []*Set { return nil }

func (isa) gemm(c []float32, stride int, a, b []float32, m, k int) { gemmGo(c, stride, a, b, m, k) }
func (isa) silu(x []float32)                                       { SiLU(x) }
func (isa) mix(out *[Lanes]float32, logits, gates []float32)       { mixGo(out, logits, gates) }
func (isa) madd(c, a, b []float32)                                 { maddGo(c, a, b) }
func (isa) rows(dst, v []float32, m rerank.Matrix, rows []int32)   { rowsGo(dst, v, m, rows) }
