package kernel_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

const guard = float32(12345)

// TestExp compares with math.Exp over the whole range: 0.51 units in the last
// place, of a denormal as of any other number.
func TestExp(t *testing.T) {
	worst, at := 0.0, float32(0)
	check := func(x float32) {
		have, want := float64(kernel.Exp(x)), math.Exp(float64(x))
		if want > math.MaxFloat32 && math.IsInf(have, 1) {
			return
		}
		bits := math.Float32bits(float32(want))
		ulp := float64(math.Float32frombits(bits+1)) - float64(math.Float32frombits(bits))
		if e := math.Abs(have-want) / ulp; !(e <= worst) {
			worst, at = e, x
		}
	}
	for x := float32(-104); x < 88.7; x += 0.0007 {
		check(x)
	}
	for _, x := range []float32{0, 1, -1, 1e-45, -1e-45, 1e-8, -87.3, -87.4, -103.97, 88.72, math.Ln2, -math.Ln2} {
		check(x)
	}
	if !(worst <= 0.51) {
		t.Errorf("Exp(%v) is off by %.3f units in the last place, want 0.51 at most", at, worst)
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct{ x, want float32 }{
		{inf, inf}, {-inf, 0}, {89, inf}, {-104, 0}, {math.MaxFloat32, inf}, {-math.MaxFloat32, 0}, {-701, 0}, {701, inf},
	} {
		if have := kernel.Exp(c.x); have != c.want {
			t.Errorf("Exp(%v) is %v, want %v", c.x, have, c.want)
		}
	}
	if have := kernel.Exp(float32(math.NaN())); have == have {
		t.Errorf("Exp(NaN) is %v, want NaN", have)
	}
}

func TestActivations(t *testing.T) {
	for x := -120.0; x <= 120; x += 0.01 {
		v := []float32{float32(x), float32(x)}
		kernel.SiLU(v[:1])
		kernel.GELU(v[1:])
		x := float64(float32(x))
		for i, want := range []float64{x / (1 + math.Exp(-x)), 0.5 * x * math.Erfc(-x/math.Sqrt2)} {
			if !(math.Abs(float64(v[i])-want) <= 1e-7*math.Abs(want)+2e-15*math.Abs(x)+1e-44) {
				t.Fatalf("activation %d of %v is %v, want %v", i, x, v[i], want)
			}
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, x := range []float32{nan, inf, -inf} {
		v := []float32{x}
		if kernel.SiLU(v); !notFinite(v[0]) {
			t.Errorf("SiLU(%v) is %v, want a number that is not finite", x, v[0])
		}
	}
}

func TestSoftmax(t *testing.T) {
	for _, c := range [][]float32{{0}, {1, 2, 3}, {-1e38, 0, 1e38}, {1000, 1000}, {-50, 50, 0.5}} {
		v := append([]float32(nil), c...)
		kernel.Softmax(v)
		var sum, total float64
		for _, x := range c {
			sum += math.Exp(float64(x) - largest(c))
		}
		for i, x := range c {
			total += float64(v[i])
			if want := math.Exp(float64(x)-largest(c)) / sum; !(math.Abs(float64(v[i])-want) <= 2e-7) {
				t.Errorf("softmax of %v has %v at %d, want %v", c, v[i], i, want)
			}
		}
		if !(math.Abs(total-1) <= 1e-6) {
			t.Errorf("softmax of %v adds up to %v", c, total)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		v := []float32{1, float32(bad), 2}
		kernel.Softmax(v)
		for i, x := range v {
			if x == x {
				t.Errorf("softmax with %v has %v at %d, want NaN", bad, x, i)
			}
		}
	}
}

func largest(v []float32) float64 {
	top := math.Inf(-1)
	for _, x := range v {
		top = max(top, float64(x))
	}
	return top
}

func notFinite(x float32) bool { return x-x != 0 }

func random(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// TestProducts compares every function of inner products with sums in float64,
// within Gamma, and wants each row to score the same bits in every tile. Guard
// cells around dst and between its rows must keep their value.
func TestProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a, b := random(rng, rng.IntN(9), rng.IntN(40)), random(rng, rng.IntN(20), 0)
		b = random(rng, b.Rows, a.Cols)
		var bias []float32
		if rng.IntN(2) == 0 {
			bias = random(rng, 1, b.Rows).Data
		}
		stride := b.Rows + rng.IntN(3)
		narrow, wide := guarded(a.Rows*stride), guarded(a.Rows*stride)
		kernel.MulT(narrow[4:len(narrow)-4], stride, a, b, bias)
		kernel.MulTWide(wide[4:len(wide)-4], stride, a, b, bias)
		for r := range a.Rows {
			for c := range b.Rows {
				checkElement(t, a.Row(r), b.Row(c), bias, c, narrow[4+r*stride+c], wide[4+r*stride+c])
				narrow[4+r*stride+c], wide[4+r*stride+c] = guard, guard
			}
		}
		untouched(t, narrow)
		untouched(t, wide)
		checkRows(t, rng, b)
	}
}

func checkElement(t *testing.T, x, y, bias []float32, c int, narrow, wide float32) {
	t.Helper()
	exact, scale, plain := 0.0, 0.0, kernel.Dot(x, y)
	for k := range x {
		exact += float64(x[k]) * float64(y[k])
	}
	if bias != nil {
		exact += float64(bias[c])
		scale = math.Abs(float64(bias[c]))
		plain += bias[c]
	}
	scale += rerank.Norm(x) * rerank.Norm(y)
	if narrow != plain {
		t.Fatalf("MulT has %v, Dot %v: the tile changes the sum", narrow, plain)
	}
	if !(math.Abs(float64(narrow)-exact) <= kernel.Gamma(len(x)+1)*scale) {
		t.Fatalf("MulT has %v, want %v", narrow, exact)
	}
	if !(math.Abs(float64(wide)-exact) <= 0x1p-24*math.Abs(exact)+1e-14*scale) {
		t.Fatalf("MulTWide has %v, want %v", wide, exact)
	}
}

func checkRows(t *testing.T, rng *rand.Rand, m rerank.Matrix) {
	t.Helper()
	v := random(rng, 1, m.Cols).Data
	all := guarded(m.Rows)
	kernel.Rows(all[4:len(all)-4], v, m, nil)
	rows := make([]int32, rng.IntN(30))
	if m.Rows == 0 {
		rows = rows[:0]
	}
	some := guarded(len(rows))
	for i := range rows {
		rows[i] = rng.Int32N(int32(m.Rows))
	}
	if len(rows) > 0 {
		kernel.Rows(some[4:len(some)-4], v, m, rows)
	}
	for i, r := range rows {
		if some[4+i] != all[4+r] || some[4+i] != kernel.Dot(v, m.Row(int(r))) {
			t.Fatalf("row %d scores %v gathered, %v in order", r, some[4+i], all[4+r])
		}
		some[4+i] = guard
	}
	for i := range m.Rows {
		all[4+i] = guard
	}
	untouched(t, some)
	untouched(t, all)
}

// guarded is a slice of n numbers between two times four, all of them guards.
func guarded(n int) []float32 {
	v := make([]float32, n+8)
	for i := range v {
		v[i] = guard
	}
	return v
}

func untouched(t *testing.T, v []float32) {
	t.Helper()
	for i, x := range v {
		if x != guard {
			t.Fatalf("cell %d outside the result was written: %v", i-4, x)
		}
	}
}

func TestNorm(t *testing.T) {
	if n := kernel.Norm([]float32{3e30, 0, 4e30, 0, 0}); n != 5e30 {
		t.Errorf("norm is %v, want 5e30", n)
	}
	for _, c := range []struct{ v, want []float32 }{
		{[]float32{3, 4}, []float32{0.6, 0.8}},
		{[]float32{0, 0, 0, 0, 0}, []float32{0, 0, 0, 0, 0}},
		{[]float32{8e-8}, []float32{0.08}},                                     // a clamp, not a sum
		{[]float32{3e38, -3e38, 3e38, -3e38}, []float32{0.5, -0.5, 0.5, -0.5}}, // the norm exceeds float32
	} {
		clamped := slices.Clone(c.v)
		rerank.NormaliseClamped(clamped, 1e-6)
		kernel.Normalise(c.v, 1e-6)
		for i := range c.v {
			if !(math.Abs(float64(c.v[i]-c.want[i])) <= 1e-8) || !(math.Abs(float64(clamped[i]-c.want[i])) <= 1e-8) {
				t.Errorf("normalised to %v and %v, want %v", c.v, clamped, c.want)
			}
		}
	}
}

// TestSpectralNorm: the bound is at least the greatest singular value, which these
// matrices have by construction, and at most a tenth more.
func TestSpectralNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 7, 64} {
		diagonal, rankOne := rerank.NewMatrix(n, n), rerank.NewMatrix(n, n+3)
		for i := range n {
			diagonal.Row(i)[i] = 3
		}
		x, y := random(rng, 1, n), random(rng, 1, n+3)
		for i := range n {
			for j := range n + 3 {
				rankOne.Row(i)[j] = x.Data[i] * y.Data[j]
			}
		}
		for name, c := range map[string]struct {
			w    rerank.Matrix
			want float64
		}{
			"all singular values are 3": {diagonal, 3},
			"rank one":                  {rankOne, rerank.Norm(x.Data) * rerank.Norm(y.Data) * (1 - 1e-6)}, // each product was rounded
		} {
			if got := kernel.SpectralNorm(c.w); got < c.want || got > 1.1*c.want {
				t.Errorf("%s, %d rows: %v, want %v or a little more", name, n, got, c.want)
			}
		}
	}
}

func TestRaiseMax(t *testing.T) {
	var a atomic.Uint32
	for _, x := range []float32{1, 3, 2, float32(math.NaN()), float32(math.Inf(1)), -5} {
		kernel.RaiseMax(&a, x)
	}
	if have := math.Float32frombits(a.Load()); have != 3 {
		t.Errorf("the maximum is %v, want 3", have)
	}
}
