package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Every way that a product can start and end, over several tiles, against float64;
// and each tile gives the same bits alone.
func TestMultiply(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, shape := range [][3]int{{1, 1, 1}, {8, 64, 2}, {6, 5, 3}, {32, 128, 5}, {20, 33, 2}, {4, 0, 2}} {
			for variant := range 8 {
				checkProduct(t, r, s, off, shape, variant)
			}
		}
	})
}

func checkProduct(t *testing.T, r *rand.Rand, s *kernel.Set, off int, shape [3]int, variant int) {
	t.Helper()
	m, k, tiles := shape[0], shape[1], shape[2]
	w, rows, row := random(r, m, k), kernel.Padded(shape[0]), kernel.Lanes+variant%3*kernel.Lanes
	cTile, bTile := rows*row+5, k*kernel.Lanes+3
	b, before := random(r, 1, tiles*bTile+1).Data, random(r, 1, tiles*cTile).Data
	p := kernel.Product{
		Tiles: tiles, C: fenced(t, len(before), off), CTile: cTile, CRow: row, BTile: bTile, Add: variant&1 != 0, SiLU: variant&2 != 0,
	}
	var ahead kernel.Ahead
	ahead.Rows(s, random(r, 3, 100), []int32{2, 0, 1}, 300)
	p.Ahead = &ahead
	if variant != 1 {
		p.Bias = random(r, 1, rows).Data
	}
	if variant&4 != 0 {
		p.Factor, p.PlusTile = random(r, 1, rows).Data, rows*kernel.Lanes+7
		p.Plus = random(r, 1, tiles*p.PlusTile).Data
	}
	copy(p.C, before)
	s.Multiply(kernel.Pack(w), b, &p)
	for tile := range tiles {
		for i := range rows {
			for l := range kernel.Lanes {
				at := tile*cTile + i*row + l
				want, scale := 0., 1.
				if p.Add {
					want = float64(before[at])
				} else if p.Bias != nil {
					want = float64(p.Bias[i])
				}
				for q := range k {
					if i < m {
						v := float64(w.Row(i)[q]) * float64(b[tile*bTile+q*kernel.Lanes+l])
						want, scale = want+v, scale+math.Abs(v)
					}
				}
				if p.Plus != nil {
					want += float64(p.Factor[i]) * float64(p.Plus[tile*p.PlusTile+i*kernel.Lanes+l])
				}
				if p.SiLU {
					want /= 1 + math.Exp(-want)
				}
				if !near(p.C[at], want, 3*scale) {
					t.Fatalf("%v, variant %d: tile %d, row %d, lane %d is %v, want %v", shape, variant, tile, i, l, p.C[at], want)
				}
			}
		}
	}
	alone := p
	alone.Tiles, alone.C, alone.Ahead = 1, append([]float32(nil), before[:cTile]...), nil
	s.Multiply(kernel.Pack(w), b, &alone)
	for i, v := range alone.C {
		if v != p.C[i] {
			t.Fatalf("%v: element %d is %v alone and %v among others", shape, i, v, p.C[i])
		}
	}
}

// A number that is not finite stays in its lane.
func TestMultiplyOfExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, s := range kernel.Sets() {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			b := random(r, 2*8, kernel.Lanes)
			b.Row(8 + 3)[6] = bad
			p := kernel.Product{Tiles: 2, C: make([]float32, 2*8*kernel.Lanes), CTile: 8 * kernel.Lanes, BTile: 8 * kernel.Lanes, SiLU: true}
			s.Multiply(kernel.Pack(random(r, 8, 8)), b.Data, &p)
			for i, v := range p.C {
				if in := i >= 8*kernel.Lanes && i%kernel.Lanes == 6; !in && notFinite(v) {
					t.Fatalf("%s: %v reached element %d: %v", s.Name(), bad, i, v)
				}
			}
		}
	}
}

func TestMultiplyRefusesShortSlices(t *testing.T) {
	w := kernel.Pack(rerank.NewMatrix(8, 4))
	for name, p := range map[string]*kernel.Product{
		"result": {Tiles: 2, C: make([]float32, 8*kernel.Lanes+9), CTile: 8 * kernel.Lanes},
		"tiles":  {Tiles: 3, C: make([]float32, 999), BTile: 4 * kernel.Lanes},
		"bias":   {Tiles: 1, C: make([]float32, 999), Bias: make([]float32, 7)},
		"plus":   {Tiles: 1, C: make([]float32, 999), Factor: make([]float32, 8), Plus: make([]float32, 99)},
	} {
		for _, s := range kernel.Sets() {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: a short %s was taken", s.Name(), name)
					}
				}()
				s.Multiply(w, make([]float32, 2*4*kernel.Lanes), p)
			}()
		}
	}
}

func TestGatherColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		m := random(r, 40, 53)
		for _, c := range [][2]int{{0, 53}, {3, 4}, {5, 21}, {0, 16}, {50, 53}, {7, 7}} {
			var rows [kernel.Lanes]int32
			for l := range rows {
				rows[l] = r.Int32N(40)
			}
			dst := fenced(t, (c[1]-c[0])*kernel.Lanes, off)
			s.GatherColumns(dst, m, &rows, c[0], c[1])
			for i, got := range dst {
				if want := m.Row(int(rows[i%kernel.Lanes]))[c[0]+i/kernel.Lanes]; got != want {
					t.Fatalf("columns %v: dst[%d] = %v, want %v", c, i, got, want)
				}
			}
		}
	})
}

func TestCross(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, shape := range [][3]int{{1, 1, 1}, {12, 16, 64}, {13, 17, 40}, {31, 33, 7}, {48, 32, 128}, {5, 3, 384}, {1, 64, 384}, {9, 77, 20}, {32, 112, 33}} {
			m := random(r, shape[0], shape[2])
			m.Data = append(make([]float32, off), m.Data...)[off:]
			var vectors [][]float32
			for range shape[1] {
				vectors = append(vectors, random(r, 1, shape[2]).Data)
			}
			var v kernel.Vectors
			s.PackVectors(&v, vectors)
			c := fenced(t, m.Rows*v.Width(), off)
			s.Cross(c, v, m)
			dst := fenced(t, len(vectors)*(m.Rows+3), off)
			clear(dst)
			s.Spread(dst, m.Rows+3, c, v.Width(), m.Rows, len(vectors))
			for i, x := range vectors {
				for row := range m.Rows {
					var want, scale float64
					for k, y := range m.Row(row) {
						want, scale = want+float64(x[k])*float64(y), scale+math.Abs(float64(x[k])*float64(y))
					}
					got := c[row*v.Width()+i]
					if !near(got, want, scale) || dst[i*(m.Rows+3)+row] != got {
						t.Fatalf("%v: row %d, vector %d: %v, spread %v, want %v", shape, row, i, got, dst[i*(m.Rows+3)+row], want)
					}
				}
			}
			alone := make([]float32, kernel.Lanes)
			var first kernel.Vectors
			s.PackVectors(&first, vectors[:1])
			s.Cross(alone, first, m.Slice(m.Rows-1, m.Rows))
			if alone[0] != c[(m.Rows-1)*v.Width()] {
				t.Fatalf("%v: alone %v, among others %v", shape, alone[0], c[(m.Rows-1)*v.Width()])
			}
		}
	})
}

func TestFold(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		const width, rows = 2 * kernel.Lanes, 5
		c := fenced(t, width*rows, off)
		copy(c, random(r, rows, width).Data)
		for i, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			c[i*width+3+i] = float32(bad)
		}
		var want [width]float32
		for i := range want {
			want[i] = c[i]
			for row := range rows {
				want[i] = max(want[i], c[row*width+i])
			}
		}
		dst := fenced(t, width, off)
		s.Fold(dst, c, width, rows)
		for i, w := range want {
			if bad := i >= 3 && i < 6; bad != notFinite(dst[i]) || !bad && dst[i] != w {
				t.Errorf("column %d: %v, want %v", i, dst[i], w)
			}
		}
	})
}

func TestAdd(t *testing.T) {
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{0, 1, 16, 1023, 1024, 1040, 3000} {
			dst, a := fenced(t, n, off), make([]float32, n)
			for i := range a {
				dst[i], a[i] = 1, float32(i)
			}
			s.Add(dst, a)
			for i, v := range dst {
				if v != float32(i)+1 {
					t.Fatalf("%d numbers: %d is %v", n, i, v)
				}
			}
		}
	})
}

// The activations of every set hold their bound over the whole range of float32,
// by a sample of its bit patterns.
func TestActivationsOverTheRange(t *testing.T) {
	const step = 4999
	x := make([]float32, 0, 1<<20)
	for bits := uint64(0); bits < 1<<32; bits += step {
		x = append(x, math.Float32frombits(uint32(bits)))
	}
	got := make([]float32, len(x))
	for _, s := range kernel.Sets() {
		copy(got, x)
		s.SiLU(got)
		for i, v := range x {
			wide := float64(v)
			switch want := wide / (1 + math.Exp(-wide)); {
			case notFinite(v):
				if !notFinite(got[i]) {
					t.Fatalf("%s: SiLU(%v) = %v", s.Name(), v, got[i])
				}
			case wide <= -80:
				if !(math.Abs(float64(got[i])-want) <= 1e-30*-wide) {
					t.Fatalf("%s: SiLU(%v) = %v, want %v", s.Name(), v, got[i], want)
				}
			default:
				if bound := (5 + 1.25*max(-wide, 0)) * 0x1p-24; !(math.Abs(float64(got[i])-want) <= bound*math.Abs(want)+0x1p-126) {
					t.Fatalf("%s: SiLU(%v) = %v, want %v", s.Name(), v, got[i], want)
				}
			}
		}
	}
}

// The exponential inside Mix: two gates d apart and logits 0 and 1 give the
// sigmoid of d, within 4·2⁻²⁴ + |d|·2⁻²³ of itself.
func TestMixHoldsItsBound(t *testing.T) {
	for _, s := range kernel.Sets() {
		for from := float32(0); from < 86; from += 0.01 {
			var gates, logits [2 * kernel.Lanes]float32
			for l := range kernel.Lanes {
				gates[l], logits[kernel.Lanes+l] = from+float32(l)*0.0007, 1
			}
			var out [kernel.Lanes]float32
			s.Mix(&out, logits[:], gates[:])
			for l, got := range out {
				d := float64(gates[l])
				want := 1 / (1 + math.Exp(d))
				if !(math.Abs(float64(got)-want) <= (4*0x1p-24+d*0x1p-23)*want) {
					t.Fatalf("%s: sigmoid(−%v) = %v, want %v", s.Name(), d, got, want)
				}
			}
		}
	}
}

func TestSquares(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	each(t, func(t *testing.T, s *kernel.Set, off int) {
		for _, n := range []int{1, 7, 16, 33, 64, 100} {
			m, rows := random(r, 11, n), []int32{10, 0, 3, 3, 7}
			dst, all := fenced(t, len(rows), off), fenced(t, m.Rows, off)
			s.Squares(dst, m, rows)
			s.Squares(all, m, nil)
			for i, row := range rows {
				var want float64
				for _, v := range m.Row(int(row)) {
					want += float64(v) * float64(v)
				}
				if !near(dst[i], want, want) || all[row] != dst[i] {
					t.Fatalf("%d numbers: row %d has %v, in order %v, want %v", n, row, dst[i], all[row], want)
				}
			}
		}
	})
}

// TestMulTRows: a row gives the same bits alone and among others, also where the second matrix is taken in parts.
func TestMulTRows(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	each(t, func(t *testing.T, s *kernel.Set, _ int) {
		for _, shape := range [][3]int{{5, 50, 384}, {7, 8, 401}, {3, 4, 15}, {6, 12, 16}, {4, 4, 33}, {2, 7, 7000}, {3, 4, 7001}, {3, 1, 1}, {2, 3, 0}} {
			a, b, bias := random(r, shape[0], shape[2]), random(r, shape[1], shape[2]), random(r, 1, shape[1]).Data
			all, alone := make([]float32, a.Rows*b.Rows), make([]float32, b.Rows)
			s.MulT(all, b.Rows, a, b, bias)
			for row := range a.Rows {
				s.MulT(alone, b.Rows, a.Slice(row, row+1), b, bias)
				for i, want := range alone {
					if got := all[row*b.Rows+i]; got != want {
						t.Fatalf("%v: row %d, column %d: %v among others, %v alone", shape, row, i, got, want)
					}
				}
			}
		}
	})
}
