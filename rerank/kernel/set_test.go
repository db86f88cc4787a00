package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// sentinel is put around every output; a kernel that writes beside it is found.
const sentinel = 12345.5

// fenced returns n numbers, off numbers after an aligned address. When the test ends, it checks the
// numbers around them.
func fenced(t *testing.T, n, off int) []float32 {
	t.Helper()
	all := make([]float32, off+n+32)
	for i := range all {
		all[i] = sentinel
	}
	t.Cleanup(func() {
		for i, v := range all {
			if (i < off || i >= off+n) && v != sentinel {
				t.Errorf("wrote %v at %d of %d", v, i-off, n)
			}
		}
	})
	return all[off : off+n : off+n]
}

// each runs a test on every set and at several misalignments.
func each(t *testing.T, f func(t *testing.T, s *kernel.Set, off int)) {
	for _, s := range kernel.Sets() {
		for _, off := range []int{0, 1, 3, 7} {
			t.Run(fmt.Sprintf("%s+%d", s.Name(), off), func(t *testing.T) { f(t, s, off) })
		}
	}
}

func near(got float32, want, scale float64) bool {
	return math.Abs(float64(got)-want) <= 1e-6*math.Max(1, scale)
}

func TestGemm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, shape := range [][2]int{{1, 1}, {3, 7}, {4, 64}, {8, 64}, {9, 5}, {12, 33}, {32, 128}, {128, 32}, {7, 768}} {
			m, k := shape[0], shape[1]
			w, b := random(r, m, k), fenced(t, k*kernel.Lanes, off)
			copy(b, random(r, k, kernel.Lanes).Data)
			c := fenced(t, kernel.Padded(m)*kernel.Lanes, off)
			for i := range c {
				c[i] = float32(i % 5)
			}
			s.Gemm(c, kernel.Pack(w), b)
			for i, got := range c {
				want, scale := float64(i%5), 1.
				for q := range k {
					if row := i / kernel.Lanes; row < m {
						p := float64(w.Row(row)[q]) * float64(b[q*kernel.Lanes+i%kernel.Lanes])
						want, scale = want+p, scale+math.Abs(p)
					}
				}
				if !near(got, want, scale) {
					t.Fatalf("%dx%d: c[%d] = %v, want %v", m, k, i, got, want)
				}
			}
		}
	})
}

func TestGemmOfNothing(t *testing.T) {
	for _, s := range kernel.Sets() {
		c := []float32{1, 2}
		s.Gemm(c, kernel.Pack(rerank.NewMatrix(0, 3)), nil)
		s.Gemm(c, kernel.Pack(rerank.NewMatrix(3, 0)), nil)
		s.SiLU(nil)
		s.Rows(c, nil, rerank.NewMatrix(2, 0), nil)
		if c[0] != 0 || c[1] != 0 {
			t.Errorf("%s: inner products of no numbers are %v", s.Name(), c)
		}
	}
}

func TestSiLU(t *testing.T) {
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		x := fenced(t, 4099, off) // a tail of three
		in := make([]float32, len(x))
		for i := range x {
			x[i] = float32(i-2048) / 26 // −79 to 79
		}
		x[100], x[101], x[102] = 1e-40, -1e-40, 0 // denormals
		copy(in, x)
		s.SiLU(x)
		for i, v := range in {
			want := float64(v) / (1 + math.Exp(-float64(v)))
			if diff := math.Abs(float64(x[i]) - want); diff > (5+max(-1.25*float64(v), 0))*0x1p-24*math.Abs(want)+1e-45 {
				t.Fatalf("SiLU(%v) = %v, want %v", v, x[i], want)
			}
		}
	})
}

func TestExps(t *testing.T) {
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		x := fenced(t, 4099, off) // a tail of three
		in := make([]float32, len(x))
		for i := range x {
			x[i] = float32(-i) / 52 // down to −79
		}
		x[100], x[101], x[102], x[103], x[4098] = -1e-40, -1e30, float32(math.Inf(-1)), float32(math.NaN()), -100
		copy(in, x)
		s.Exps(x)
		for i, v := range in {
			want := math.Exp(float64(v))
			diff := math.Abs(float64(x[i]) - want)
			if v <= -80 && !(x[i] >= 0 && x[i] < 2e-35) || v > -80 && diff > (5-1.25*float64(v))*0x1p-24*want || v != v && x[i] == x[i] {
				t.Fatalf("exp(%v) = %v, want %v", v, x[i], want)
			}
		}
	})
}

func TestSiLUOfExtremes(t *testing.T) {
	inf := math.Inf(1)
	for _, s := range kernel.Sets() {
		x := make([]float32, 16)
		for i, v := range []float64{math.NaN(), inf, -inf, 3e38, -3e38, 200, -200} {
			x[i] = float32(v)
		}
		s.SiLU(x)
		for i, want := range map[int]float64{3: 3e38, 5: 200} {
			if !near(x[i], want, want) {
				t.Errorf("%s: element %d is %v, want %v", s.Name(), i, x[i], want)
			}
		}
		for _, i := range []int{0, 1, 2} {
			if !math.IsNaN(float64(x[i])) && !math.IsInf(float64(x[i]), 0) {
				t.Errorf("%s: what was not finite became %v", s.Name(), x[i])
			}
		}
		if !(math.Abs(float64(x[6])) < 1e-30) || !(math.Abs(float64(x[4])) < 10) {
			t.Errorf("%s: far below zero: %v, %v", s.Name(), x[4], x[6])
		}
	}
}

func TestMix(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, s := range kernel.Sets() {
		for _, n := range []int{1, 2, 16, 31, 64} {
			logits, gates := random(r, n, kernel.Lanes), random(r, n, kernel.Lanes)
			for i := range gates.Data {
				gates.Data[i] *= 30 // nearly one-hot in some lanes
			}
			var out [kernel.Lanes]float32
			s.Mix(&out, logits.Data, gates.Data)
			for l, got := range out {
				var sum, want, top float64
				for i := range n {
					top = max(top, float64(gates.Row(i)[l]))
				}
				for i := range n {
					e := math.Exp(float64(gates.Row(i)[l]) - top)
					sum, want = sum+e, want+e*float64(logits.Row(i)[l])
				}
				if !near(out[l], want/sum, 4) {
					t.Fatalf("%s, %d values, lane %d: %v, want %v", s.Name(), n, l, got, want/sum)
				}
			}
		}
	}
}

// A number that is not finite stays in its lane and never gives a finite result.
func TestMixOfExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, s := range kernel.Sets() {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, inGates := range []bool{true, false} {
				logits, gates := random(r, 5, kernel.Lanes), random(r, 5, kernel.Lanes)
				if inGates {
					gates.Row(3)[6] = float32(bad)
				} else {
					logits.Row(3)[6] = float32(bad)
				}
				var out [kernel.Lanes]float32
				s.Mix(&out, logits.Data, gates.Data)
				for l, v := range out {
					finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
					if finite == (l == 6) {
						t.Errorf("%s: %v in the gates: %v, lane %d is %v", s.Name(), bad, inGates, l, v)
					}
				}
			}
		}
	}
}

func TestMulAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{0, 1, 5} {
			a, b, c := random(r, n, kernel.Lanes), random(r, n, kernel.Lanes), fenced(t, n*kernel.Lanes, off)
			clear(c)
			s.MulAdd(c, a.Data, b.Data)
			for i, got := range c {
				if want := float64(a.Data[i]) * float64(b.Data[i]); !near(got, want, 1) {
					t.Fatalf("%d values: c[%d] = %v, want %v", n, i, got, want)
				}
			}
		}
	})
}

// TestAddScaled: products of float32 and of int8 are added to scores, times a factor and, of int8, the scale of
// the lane. What is not finite makes its lane NaN, and no other.
func TestAddScaled(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	const step, scaleStep, factor = 3 * kernel.Lanes, 2 * kernel.Lanes, -1.5
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, tiles := range []int{0, 1, 5} {
			c, ints, scales := random(r, tiles, step), make([]int32, tiles*step), make([]uint32, tiles*scaleStep)
			for i := range ints {
				ints[i] = r.Int32N(1<<20) - 1<<19
			}
			for i := range scales {
				scales[i] = math.Float32bits(r.Float32())
			}
			if tiles > 1 {
				c.Data[step+3], scales[scaleStep+4] = float32(math.Inf(-1)), math.Float32bits(float32(math.Inf(1)))
			}
			sums, int8s := fenced(t, tiles*kernel.Lanes, off), fenced(t, tiles*kernel.Lanes, off)
			for i := range sums {
				sums[i], int8s[i] = 2, 2
			}
			s.AddScaled(sums, c.Data, step, factor)
			s.AddInt8(int8s, ints, step, scales, scaleStep, factor)
			for i := range sums {
				tile, lane := i/kernel.Lanes, i%kernel.Lanes
				x, scale := float64(c.Data[tile*step+lane]), float64(math.Float32frombits(scales[tile*scaleStep+lane]))
				wantAdded(t, sums[i], 2, factor*x)
				wantAdded(t, int8s[i], 2, factor*float64(ints[tile*step+lane])*scale)
			}
		}
	})
}

// TestLargestInt8 wants off and the largest scaled product of all rows and blocks, and NaN in lanes with a
// scale that is not finite.
func TestLargestInt8(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 7))
	const factor, off = 0.75, 3
	each(t, func(t *testing.T, s *kernel.Set, _ int) {
		for _, shape := range [][2]int{{1, 1}, {8, 4}, {3, 5}} {
			rows, blocks := shape[0], shape[1]
			step := (rows + 2) * kernel.Lanes
			c, scales := make([]int32, blocks*step), make([]uint32, blocks*kernel.Lanes)
			for i := range c {
				if i%step < rows*kernel.Lanes {
					c[i] = r.Int32N(1<<20) - 1<<19 - int32(i%2)<<20 // odd lanes have none above zero
				} else {
					c[i] = math.MaxInt32 // rows of another query
				}
			}
			for i := range scales {
				scales[i] = math.Float32bits(r.Float32())
			}
			scales[5] = math.Float32bits(float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]))
			var out [kernel.Lanes]float32
			s.LargestInt8(&out, c, step, rows, scales, blocks, factor, off)
			for l, got := range out {
				want := math.Inf(-1)
				for b := range blocks {
					for row := range rows {
						want = max(want, factor*float64(c[b*step+row*kernel.Lanes+l])*float64(math.Float32frombits(scales[b*kernel.Lanes+l])))
					}
				}
				if l == 5 {
					if got == got {
						t.Fatalf("%v: %v of a scale that is not finite, want NaN", shape, got)
					}
					continue
				}
				if !(math.Abs(float64(got)-want-off) <= 4*0x1p-24*(off+math.Abs(want))) {
					t.Fatalf("%v, lane %d: %v, want %v", shape, l, got, want+off)
				}
			}
		}
	})
}

func wantAdded(t *testing.T, got float32, before, added float64) {
	t.Helper()
	if math.IsInf(added, 0) {
		if got == got {
			t.Fatalf("%v after %v was added, want NaN", got, added)
		}
		return
	}
	if want := before + added; !(math.Abs(float64(got)-want) <= 4*0x1p-24*(before+math.Abs(added))) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func TestTile(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{1, 7, 8, 9, 40, 291} {
			m := random(r, kernel.Lanes, n+off)
			var rows [kernel.Lanes][]float32
			for l := range rows {
				rows[l] = m.Row(l)[off:]
			}
			dst := fenced(t, n*kernel.Lanes, off)
			s.Tile(dst, &rows)
			for i, got := range dst {
				if want := rows[i%kernel.Lanes][i/kernel.Lanes]; got != want {
					t.Fatalf("%d columns: dst[%d] = %v, want %v", n, i, got, want)
				}
			}
		}
	})
}

func TestSetRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{1, 2, 15, 16, 17, 31, 33, 64, 384, 777} {
			for _, count := range []int{1, 3, 4, 6} {
				m, v := random(r, 9, n), random(r, 1, n)
				rows := []int32{8, 0, 3, 3, 1, 7}[:count]
				dst := fenced(t, count, off)
				s.Rows(dst, v.Data, m, rows)
				for i, got := range dst {
					var want, scale float64
					for q, x := range m.Row(int(rows[i])) {
						want += float64(x) * float64(v.Data[q])
						scale += math.Abs(float64(x) * float64(v.Data[q]))
					}
					if !near(got, want, scale) {
						t.Fatalf("%d numbers: row %d gives %v, want %v", n, rows[i], got, want)
					}
				}
				alone := make([]float32, 1)
				s.Rows(alone, v.Data, m, rows[count-1:])
				if alone[0] != dst[count-1] {
					t.Fatalf("a row alone gives %v, among others %v", alone[0], dst[count-1])
				}
			}
		}
	})
}

// Rows that lie in a row have the products that they have by their numbers, to the bit.
func TestSetRowsInARow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 100, 384, 777} {
			m, v := random(r, 16<<10/n, n), random(r, 1, n) // more than a first cache holds
			numbers := make([]int32, m.Rows)
			for i := range numbers {
				numbers[i] = int32(i)
			}
			for _, count := range []int{0, 1, 2, 3, 4, 5, 11, 12, m.Rows - 1, m.Rows} {
				dst, want := fenced(t, count, off), make([]float32, count)
				s.Rows(dst, v.Data, m, nil)
				s.Rows(want, v.Data, m, numbers[:count])
				if !slices.Equal(dst, want) {
					t.Fatalf("%d rows of %d numbers give other products by their numbers", count, n)
				}
			}
		}
	})
}

func TestNamed(t *testing.T) {
	for _, s := range kernel.Sets() {
		if got, err := kernel.Named(s.Name()); err != nil || got.Name() != s.Name() {
			t.Errorf("Named(%q) = %v, %v", s.Name(), got, err)
		}
	}
	if _, err := kernel.Named("sse9"); err == nil {
		t.Error("a kernel that does not exist was found")
	}
	if best, err := kernel.Named(""); err != nil || best.Name() != kernel.Best().Name() {
		t.Errorf("no name gives %v, %v", best, err)
	}
}

func TestNormalise(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{0, 1, 15, 16, 17, 100} {
			for _, scale := range []float32{0, 1e-42, 1, 3e38} {
				got, want := fenced(t, n, off), make([]float32, n)
				for i := range want {
					want[i] = scale * (r.Float32() - 0.5)
				}
				copy(got, want)
				s.Normalise(got)
				rerank.Normalise(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%d numbers of about %v: %v, want %v", n, scale, got, want)
				}
			}
		}
	})
}
