package inner

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// maxParts is how many vectors of a table's number format stand for a query's side U.
const maxParts = 2

// parts is a query's side U as a sum of vectors in the number format of a table's rows, which are
// multiplied with the rows as they are. The second vector represents what the first one leaves.
type parts struct {
	packing  rerank.Packing
	bfloat16 [maxParts][]float32 // before they are rounded to bfloat16
	int8     [maxParts][]int8
	// factors[p][b] is the scale of block b of int8 part p, times the query's own.
	factors [maxParts][]float32
	norm    float64           // of U
	rest    [maxParts]float64 // rest[p] is the norm of what the parts up to p leave of U
}

// leastFactor is the least scale of an int8 part, so that a product with it does not become
// subnormal. A block of smaller numbers is left out of the part.
const leastFactor = 1e-30

// in returns U in the number format of some rows. It keeps the last result.
func (p *Product) in(packing rerank.Packing) *parts {
	if known := p.parts.Load(); known != nil && known.packing == packing {
		return known
	}
	t := &parts{packing: packing, norm: rerank.Norm(p.U)}
	if packing.Format == rerank.FormatInt8 {
		t.splitInt8(p.U, p.Scale)
	} else {
		t.splitBFloat16(p.U)
	}
	p.parts.Store(t)
	return t
}

func (t *parts) splitBFloat16(u []float32) {
	left := u
	for part := range t.bfloat16 {
		t.bfloat16[part] = left
		next := make([]float32, len(u))
		for i, v := range left {
			next[i] = v - kernel.WidenBFloat16(kernel.RoundBFloat16(v)) // exact
		}
		left, t.rest[part] = next, rerank.Norm(next)
	}
}

func (t *parts) splitInt8(u []float32, scale float32) {
	left, values := make([]float64, len(u)), make([]float32, len(u))
	for i, v := range u {
		left[i] = float64(v)
	}
	for part := range t.int8 {
		t.int8[part], t.factors[part] = make([]int8, len(u)), make([]float32, t.packing.Blocks())
		for i, v := range left {
			values[i] = float32(v)
		}
		var squares float64
		for b := range t.packing.Blocks() {
			first, last := t.packing.Values(b)
			of := kernel.Quantize(t.int8[part][first:last], values[first:last])
			factor := of * scale
			if !(math.Abs(float64(factor)) >= leastFactor) {
				clear(t.int8[part][first:last])
				factor = 0
			}
			t.factors[part][b] = factor
			for i, n := range t.int8[part][first:last] {
				left[first+i] -= float64(of) * float64(n)
				squares += left[first+i] * left[first+i]
			}
		}
		t.rest[part] = math.Sqrt(squares)
	}
}
