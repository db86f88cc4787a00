package kernel

// fmaChains is the number of independent chains of multiply-adds in one round of FMA.
const fmaChains = 12

// FMA computes rounds of independent multiply-adds and returns the number of floating-point
// operations, two per multiply-add. Its speed is the processor's peak, for comparison.
func (s *Set) FMA(rounds int) (flops int) {
	var out float32
	width := s.isa.fma(&out, max(rounds, 1))
	return max(rounds, 1) * fmaChains * width * 2
}

// Read returns the sum of v, in an undefined order, as fast as the memory can be read.
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

// fmaGo is FMA without vector instructions.
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
