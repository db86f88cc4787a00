package kernel

// Multiply-adds of one round of FMA: chains that do not wait for each other.
const fmaChains = 12

// FMA computes rounds of multiply-adds that do not wait for each other and
// returns how many floating-point operations they were, two a multiply-add: what
// the processor can do at most, for comparison.
func (s *Set) FMA(rounds int) (flops int) {
	var out float32
	width := s.isa.fma(&out, max(rounds, 1))
	return max(rounds, 1) * fmaChains * width * 2
}

// Read returns the sum of v, as fast as it can be read. Its order is not defined.
func (s *Set) Read(v []float32) float32 {
	const step = 128
	var sum float32
	whole := len(v) / step
	if whole > 0 && s.isa.hasAllAssembly() {
		s.isa.read(&sum, v, whole)
		v = v[whole*step:]
	}
	for _, x := range v {
		sum += x
	}
	return sum
}

// fmaGo is FMA of single numbers.
func fmaGo(out *float32, rounds int) {
	const x = 125
	var a, b, c, d, e, f, g, h, i, j, k, l float32
	for range rounds {
		a, b, c, d = a+x*x, b+x*x, c+x*x, d+x*x
		e, f, g, h = e+x*x, f+x*x, g+x*x, h+x*x
		i, j, k, l = i+x*x, j+x*x, k+x*x, l+x*x
	}
	*out = a + b + c + d + e + f + g + h + i + j + k + l
}
