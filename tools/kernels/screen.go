package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// extent: the greatest and the least value of each lane, and its sum of squares.
func (s isa) extent() {
	TEXT("extent"+s.name, NOSPLIT, "func(out, x *float32, n int)")
	Pragma("noescape")
	Doc("extent" + s.name + " writes the maximum, the minimum and the sum of squares of each of 16 lanes of x, n×16, to out; n > 0.")
	out, x, n := Load(Param("out"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	for i := range s.parts {
		const ways = 4 // that do not wait for each other
		top, low, sum := make([]reg.Register, ways), make([]reg.Register, ways), s.zeros(ways)
		for k := range ways {
			top[k], low[k] = s.vec(), s.vec()
			VMOVUPS(Mem{Base: x, Disp: i * s.bytes}, top[k])
			VMOVUPS(Mem{Base: x, Disp: i * s.bytes}, low[k])
		}
		s.inSteps("extent"+s.name+string(rune('a'+i)), ways, n, i*s.bytes, []reg.Register{x}, func(at []reg.Register, ways int) {
			for k := range ways {
				v := s.vec()
				VMOVUPS(Mem{Base: at[0], Disp: k * lanes * 4}, v)
				VMAXPS(v, top[k], top[k])
				VMINPS(v, low[k], low[k])
				VFMADD231PS(v, v, sum[k])
			}
		})
		for _, k := range [][2]int{{0, 1}, {2, 3}, {0, 2}} {
			VMAXPS(top[k[1]], top[k[0]], top[k[0]])
			VMINPS(low[k[1]], low[k[0]], low[k[0]])
			VADDPS(sum[k[1]], sum[k[0]], sum[k[0]])
		}
		for j, r := range []reg.Register{top[0], low[0], sum[0]} {
			VMOVUPS(r, Mem{Base: out, Disp: j*lanes*4 + i*s.bytes})
		}
	}
	VZEROUPPER()
	RET()
}

// weigh works like mix and also measures how far the gates lie apart. It replaces the
// gates by exp(gate − max gate), and sums them with the logits and then their squares,
// whose root it takes.
func (s isa) weigh() {
	TEXT("weigh"+s.name, NOSPLIT, "func(out, logits, gates *float32, n int)")
	Pragma("noescape")
	Doc("weigh" + s.name + " writes the mean φ = Σ_l π_l · logits_l, π = softmax(gates), and the root of Σ_l (π_l · (logits_l − φ))² of each of 16 lanes to out; it overwrites the gates. n > 0.")
	out, logits, gates := Load(Param("out"), GP64()), Load(Param("logits"), GP64()), Load(Param("gates"), GP64())
	n := Load(Param("n"), GP64())
	for i := range s.parts {
		s.weighPart("weigh"+s.name+string(rune('a'+i)), out, logits, gates, n, i*s.bytes)
	}
	VZEROUPPER()
	RET()
}

func (s isa) weighPart(label string, out, logits, gates, n reg.Register, disp int) {
	mean, total := s.mean(label, out, logits, gates, n, disp, true)
	squares := s.zeros(s.ways())
	s.inSteps(label+"squares", len(squares), n, disp, []reg.Register{gates, logits}, func(at []reg.Register, ways int) {
		for i := range ways {
			d := s.vec()
			VMOVUPS(Mem{Base: at[1], Disp: i * lanes * 4}, d)
			VSUBPS(mean, d, d)
			VMULPS(Mem{Base: at[0], Disp: i * lanes * 4}, d, d)
			VFMADD231PS(d, d, squares[i])
		}
	})
	for _, v := range squares[1:] {
		VADDPS(v, squares[0], squares[0])
	}
	VSQRTPS(squares[0], squares[0])
	VDIVPS(total, squares[0], squares[0])
	VMOVUPS(squares[0], Mem{Base: out, Disp: lanes*4 + disp})
}

// bound: what weigh makes of a tile, and how far that can be off.
func (s isa) bound() {
	const four, room = 10, 11 // behind the errors
	TEXT("bound"+s.name, NOSPLIT, "func(out, weighed, s0, s1, s2, s3, errors *float32)")
	Pragma("noescape")
	Doc("bound"+s.name+" writes mean + room·all·(4 + each)²/(4 − each)⁴·spread of each of 16 lanes to out: weighed has mean and spread; all is",
		"errors₀ + Σ errors₁₊ᵢ·√sᵢ, each so of errors₅ to errors₉; errors₁₀ is 4, errors₁₁ room. Of each ≥ 4 it is infinite, or NaN.")
	out, weighed, errors := Load(Param("out"), GP64()), Load(Param("weighed"), GP64()), Load(Param("errors"), GP64())
	for part := range s.parts {
		disp := part * s.bytes
		number := func(i int) reg.Register { return s.broadcast(Mem{Base: errors, Disp: i * 4}) }
		all, each := number(0), number(5)
		for i, name := range []string{"s0", "s1", "s2", "s3"} {
			root := s.vec()
			VSQRTPS(Mem{Base: Load(Param(name), GP64()), Disp: disp}, root)
			VFMADD231PS(number(1+i), root, all)
			VFMADD231PS(number(6+i), root, each)
		}
		up, down := number(four), number(four)
		VADDPS(each, up, up)
		VSUBPS(each, down, down)
		VMAXPS(down, s.zeros(1)[0], down) // NaN stays
		for _, v := range []reg.Register{up, down, down} {
			VMULPS(v, v, v)
		}
		VMULPS(up, all, all)
		VMULPS(number(room), all, all)
		VDIVPS(down, all, all)
		VMOVUPS(Mem{Base: weighed, Disp: disp}, up)
		VFMADD231PS(Mem{Base: weighed, Disp: lanes*4 + disp}, all, up)
		VMOVUPS(up, Mem{Base: out, Disp: disp})
	}
	VZEROUPPER()
	RET()
}
