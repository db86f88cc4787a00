package kernel_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// reducedSets are all sets, also without the instructions for reduced precision.
func reducedSets() []*kernel.Set {
	var sets []*kernel.Set
	for _, s := range kernel.Sets() {
		sets = append(sets, s, s.Narrowest())
		if w, had := s.WithoutMatrices(); had {
			sets = append(sets, w)
		}
	}
	return sets
}

func TestRoundBFloat16(t *testing.T) {
	for _, c := range []struct {
		x    float32
		want uint16
	}{
		{1, 0x3f80}, {-2, 0xc000}, {0, 0}, {float32(math.Copysign(0, -1)), 0x8000},
		{1 + 0x1p-8, 0x3f80}, {1 + 0x1.8p-7, 0x3f82}, {1 + 0x1.02p-8, 0x3f81}, // ties to even, and above a tie
		{1e-40, 0}, {-1e-40, 0x8000}, {0x1p-126, 0x0080},
		{math.MaxFloat32, 0x7f80}, {float32(math.Inf(-1)), 0xff80},
	} {
		if got := kernel.RoundBFloat16(c.x); got != c.want {
			t.Errorf("RoundBFloat16(%v) = %#04x, want %#04x", c.x, got, c.want)
		}
	}
	if h := kernel.RoundBFloat16(math.Float32frombits(0x7f800001)); kernel.WidenBFloat16(h) == kernel.WidenBFloat16(h) {
		t.Errorf("a NaN became %#04x", h)
	}
	r := rand.New(rand.NewPCG(1, 7))
	for range 100000 {
		x := math.Float32frombits(r.Uint32())
		got := float64(kernel.WidenBFloat16(kernel.RoundBFloat16(x)))
		if math.Abs(float64(x)) > 0x1.fep127 || x != x {
			continue
		}
		if diff := math.Abs(got - float64(x)); diff > kernel.UnitBFloat16*math.Abs(float64(x))+0x1p-126 {
			t.Fatalf("%v becomes %v", x, got)
		}
	}
}

// Tiles of bfloat16 are the same from every set and from rows.
func TestBFloat16Tiles(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 7))
	const n = 38
	m := random(r, kernel.Lanes, n)
	copy(m.Row(3), []float32{float32(math.Inf(1)), 1e-40, -1e-40, math.MaxFloat32, float32(math.NaN()), 0})
	var rows [kernel.Lanes][]float32
	var halves [kernel.Lanes][]uint16
	for l := range rows {
		rows[l] = m.Row(l)
		for _, v := range rows[l] {
			halves[l] = append(halves[l], kernel.RoundBFloat16(v))
		}
	}
	want := make([]uint32, n/2*kernel.Lanes)
	tileBFloat16(want, &halves)
	tile := make([]float32, n*kernel.Lanes)
	kernel.Go().Tile(tile, &rows)
	for _, s := range reducedSets() {
		got := make([]uint32, len(want)+1)
		got[len(want)] = 77
		s.BFloat16(got, tile)
		for i, w := range want {
			if got[i] != w && (i%kernel.Lanes != 3 || i/kernel.Lanes != 2) { // a NaN's other bits may differ
				t.Fatalf("%s: word %d is %#08x, want %#08x", s.Name(), i, got[i], w)
			}
		}
		if got[len(want)] != 77 {
			t.Errorf("%s wrote behind the tile", s.Name())
		}
	}
}

func TestGemmBFloat16(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 7))
	for _, s := range reducedSets() {
		for _, shape := range [][3]int{{1, 2, 1}, {3, 7, 2}, {8, 64, 3}, {12, 33, 5}, {32, 128, 1}, {128, 32, 2}, {7, 768, 4}, {20, 96, 2}, {44, 74, 3}, {64, 130, 1}} {
			m, k, tiles := shape[0], shape[1], shape[2]
			even := (k + 1) &^ 1
			w, b := random(r, m, k), make([]uint32, tiles*even/2*kernel.Lanes)
			for i := range b {
				b[i] = uint32(kernel.RoundBFloat16(float32(r.NormFloat64()))) | uint32(kernel.RoundBFloat16(float32(r.NormFloat64())))<<16
			}
			rows := kernel.Padded(m)
			c := fenced(t, tiles*rows*kernel.Lanes, 3)
			clear(c)
			p := kernel.Product{Tiles: tiles, C: c, CTile: rows * kernel.Lanes, BTile: even / 2 * kernel.Lanes, Add: true}
			s.MultiplyBFloat16(kernel.PackBFloat16(w), b, &p)
			want := make([]float32, len(c))
			p.C = want
			kernel.Go().MultiplyBFloat16(kernel.PackBFloat16(w), b, &p)
			for i, got := range c {
				if got != want[i] && s.Exactly() {
					t.Fatalf("%s, %v: c[%d] = %v, want %v to the bit", s.Name(), shape, i, got, want[i])
				}
				tile, row := i/(rows*kernel.Lanes), i/kernel.Lanes%rows
				if row >= m {
					continue
				}
				var exact, scale float64
				for q, x := range w.Row(row) {
					h := uint16(b[(tile*even/2+q/2)*kernel.Lanes+i%kernel.Lanes] >> (q % 2 * 16))
					v := float64(kernel.WidenBFloat16(kernel.RoundBFloat16(x))) * float64(kernel.WidenBFloat16(h))
					exact, scale = exact+v, scale+math.Abs(v)
				}
				if !(math.Abs(float64(got)-exact) <= kernel.Gamma(even)*scale) {
					t.Fatalf("%s, %v: c[%d] = %v, exactly %v", s.Name(), shape, i, got, exact)
				}
			}
		}
	}
}

// A rough SiLU keeps its word over the whole range of float32.
func TestRoughSiLU(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	for _, s := range reducedSets() {
		w, b := rerank.NewMatrix(8, 2), make([]uint32, 2*kernel.Lanes)
		c := make([]float32, 2*8*kernel.Lanes)
		for round := range 4000 {
			p := kernel.Product{Tiles: 2, C: c, CTile: 8 * kernel.Lanes, BTile: kernel.Lanes, Bias: make([]float32, 8), SiLU: true, Rough: true}
			for i := range p.Bias {
				p.Bias[i] = float32(r.NormFloat64() * math.Exp(r.Float64()*12-6))
				if round%2 == 1 { // every 2⁻¹⁰ from −8 to 8, where the lines begin and end too
					p.Bias[i] = float32(round/2*8+i)/1024 - 8
				}
			}
			if round == 0 {
				p.Bias = []float32{0, -1e-40, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32, 7.96875, -7.96875}
			}
			s.MultiplyBFloat16(kernel.PackBFloat16(w), b, &p)
			for i, got := range c {
				x := float64(p.Bias[i/kernel.Lanes%8])
				want := x / (1 + math.Exp(-x))
				if !(math.Abs(float64(got)-want) <= kernel.RoughSiLU+math.Abs(want)*0x1p-22+math.Abs(x)*0x1p-120) {
					t.Fatalf("%s: SiLU of %v is %v, want %v", s.Name(), x, got, want)
				}
			}
		}
		bad := float32(math.NaN())
		p := kernel.Product{Tiles: 1, C: c, Bias: []float32{bad, float32(math.Inf(1)), float32(math.Inf(-1)), -bad}, SiLU: true, Rough: true}
		s.MultiplyBFloat16(kernel.PackBFloat16(rerank.NewMatrix(4, 2)), b, &p)
		for i, got := range c[:4*kernel.Lanes] {
			if !notFinite(got) {
				t.Errorf("%s: SiLU of %v is %v", s.Name(), p.Bias[i/kernel.Lanes], got)
			}
		}
	}
}

func TestGemmInt8(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 7))
	for _, s := range reducedSets() {
		for _, shape := range [][3]int{{1, 3, 1}, {4, 64, 2}, {9, 30, 3}, {32, 128, 5}, {5, 770, 2}, {4, 0, 1}} {
			m, k, tiles := shape[0], shape[1], shape[2]
			w := make([]int8, m*k)
			for i := range w {
				w[i] = int8(r.IntN(256) - 128)
			}
			cols, padded := (k+3)&^3, kernel.Padded(m)
			values := make([]int8, tiles*kernel.Lanes*k)
			for i := range values {
				values[i] = int8(r.IntN(256) - 128)
			}
			b, c := make([]uint32, tiles*cols/4*kernel.Lanes), make([]int32, tiles*padded*kernel.Lanes)
			for tile := range tiles {
				var rows [kernel.Lanes][]int8
				for l := range rows {
					rows[l] = values[(tile*kernel.Lanes+l)*k:][:k]
				}
				tileInt8(b[tile*cols/4*kernel.Lanes:], &rows)
			}
			for i := range c {
				c[i] = int32(i)
			}
			add := r.IntN(2) == 1
			s.MultiplyInt8(packInt8(t, m, k, w), b, &kernel.ProductInt8{
				Tiles: tiles, C: c, CTile: padded * kernel.Lanes, BTile: cols / 4 * kernel.Lanes, Add: add,
			})
			for i, got := range c {
				want := int32(0)
				if add {
					want = int32(i)
				}
				if row := i / kernel.Lanes % padded; row < m {
					x := values[(i/(padded*kernel.Lanes)*kernel.Lanes+i%kernel.Lanes)*k:]
					for q, y := range w[row*k:][:k] {
						want += int32(x[q]) * int32(y)
					}
				}
				if got != want {
					t.Fatalf("%s, %v: c[%d] = %d, want %d", s.Name(), shape, i, got, want)
				}
			}
		}
	}
}

func packInt8(t *testing.T, rows, cols int, v []int8) kernel.WeightsInt8 {
	t.Helper()
	w, err := kernel.PackInt8(rows, cols, v)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestInt8ProductsHaveALimit(t *testing.T) {
	if _, err := kernel.PackInt8(1, kernel.MaxInt8+1, make([]int8, kernel.MaxInt8+1)); !errors.Is(err, kernel.ErrTooLong) {
		t.Errorf("error %v", err)
	}
}

// The greatest sum that the limit allows does not overflow.
func TestGemmInt8AtItsLimit(t *testing.T) {
	w := make([]int8, kernel.MaxInt8)
	b := make([]uint32, kernel.MaxInt8/4*kernel.Lanes)
	for i := range w {
		w[i] = -128
	}
	for i := range b {
		b[i] = 0x7f7f7f7f
	}
	for _, s := range reducedSets() {
		c := make([]int32, 4*kernel.Lanes)
		s.GemmInt8(c, packInt8(t, 1, len(w), w), b)
		if want := int32(-128 * 127 * kernel.MaxInt8); c[0] != want || c[kernel.Lanes-1] != want || c[kernel.Lanes] != 0 {
			t.Errorf("%s: %d and %d, want %d", s.Name(), c[0], c[kernel.Lanes-1], want)
		}
	}
}

func TestQuantize(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	q := make([]int8, 100)
	for range 100 {
		v := random(r, 1, len(q)).Data
		scale := kernel.Quantize(q, v)
		for i, x := range v {
			if diff := math.Abs(float64(scale)*float64(q[i]) - float64(x)); diff > float64(scale)/2*(1+0x1p-20) {
				t.Fatalf("%v becomes %d steps of %v", x, q[i], scale)
			}
		}
	}
	if scale := kernel.Quantize(q, make([]float32, len(q))); scale != 0 || q[0] != 0 {
		t.Errorf("zeros have scale %v and become %d", scale, q[0])
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		if scale := kernel.Quantize(q, []float32{1, bad}); !notFinite(scale) {
			t.Errorf("a vector with %v has scale %v", bad, scale)
		}
	}
}

// A product that is narrowed is the same product, rounded, with its squares.
func TestNarrow(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for _, s := range reducedSets() {
		for _, shape := range [][3]int{{1, 2, 1}, {8, 64, 3}, {12, 34, 2}, {128, 32, 2}, {4, 0, 2}} {
			m, k, tiles := shape[0], shape[1], shape[2]
			rows := kernel.Padded(m)
			w, b := kernel.PackBFloat16(random(r, m, k)), make([]uint32, tiles*k/2*kernel.Lanes)
			for i := range b {
				b[i] = uint32(kernel.RoundBFloat16(float32(r.NormFloat64()))) | uint32(kernel.RoundBFloat16(float32(r.NormFloat64())))<<16
			}
			c := make([]float32, tiles*rows*kernel.Lanes)
			p := kernel.Product{Tiles: tiles, C: c, CTile: rows * kernel.Lanes, BTile: k / 2 * kernel.Lanes, Bias: fill(r, rows), SiLU: true, Rough: true}
			s.MultiplyBFloat16(w, b, &p)
			size := rows / 2 * kernel.Lanes
			want := make([]uint32, tiles*size)
			s.BFloat16(want, c)
			n := kernel.Narrow{Words: make([]uint32, tiles*size), Tile: size, Squares: make([][2][kernel.Lanes]float32, tiles)}
			n.Squares[0][0][0] = 1000
			p.Narrow = &n
			s.MultiplyBFloat16(w, b, &p)
			for i, got := range n.Words {
				if got != want[i] {
					t.Fatalf("%s, %v: word %d is %#x, want %#x", s.Name(), shape, i, got, want[i])
				}
			}
			for i := range tiles * kernel.Lanes {
				tile, lane := i/kernel.Lanes, i%kernel.Lanes
				sum, lost := 0.0, 0.0
				if i == 0 {
					sum = 1000
				}
				for q := range rows {
					h := uint16(want[tile*size+q/2*kernel.Lanes+lane] >> (q % 2 * 16))
					v := float64(kernel.WidenBFloat16(h))
					d := float64(c[(tile*rows+q)*kernel.Lanes+lane]) - v
					sum, lost = sum+v*v, lost+d*d
				}
				if got := float64(n.Squares[tile][0][lane]); !(math.Abs(got-sum) <= 0x1p-7*sum) {
					t.Fatalf("%s, %v: squares of lane %d are %v, want %v", s.Name(), shape, i, got, sum)
				}
				if got := float64(n.Squares[tile][1][lane]); !(math.Abs(got-lost) <= 1e-4*lost) {
					t.Fatalf("%s, %v: lane %d lost squares of %v, want %v", s.Name(), shape, i, got, lost)
				}
			}
		}
	}
}

func fill(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// tileBFloat16 copies sixteen rows of one length into the lanes of a bfloat16 tile. An odd last
// value is paired with zero.
func tileBFloat16(dst []uint32, rows *[kernel.Lanes][]uint16) {
	n := len(rows[0])
	dst = dst[:(n+1)/2*kernel.Lanes]
	clear(dst)
	for l, row := range rows {
		for c, h := range row[:n] {
			dst[c/2*kernel.Lanes+l] |= uint32(h) << (c % 2 * 16)
		}
	}
}

// tileInt8 copies sixteen rows of one length into the lanes of an int8 tile, and adds zeros up to a
// multiple of four values.
func tileInt8(dst []uint32, rows *[kernel.Lanes][]int8) {
	n := len(rows[0])
	dst = dst[:(n+3)/4*kernel.Lanes]
	clear(dst)
	for l, row := range rows {
		for c, x := range row[:n] {
			dst[c/4*kernel.Lanes+l] |= uint32(uint8(x)) << (c % 4 * 8)
		}
	}
}
