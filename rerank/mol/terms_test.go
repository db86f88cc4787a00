package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// steepest is where x·sigmoid(x) has its greatest slope, 1.0998.
const steepest = 2.3994

// The networks of these tests have inputs, a hidden layer and outputs of these widths.
const (
	inputs, hiddenUnits, outputs = 32, 16, 24
)

// aligned is a matrix of one rank: it passes a vector of equal numbers on by its
// spectral norm, and moves all of its outputs alike. bfloat16 has it without loss.
func aligned(rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = 0.25
	}
	return m
}

// roundedDown returns a matrix from which rounding to bfloat16 subtracts a matrix of rank one, in
// the direction of equal numbers.
func roundedDown(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m, p := rerank.NewMatrix(rows, cols), rerank.Packing{Format: rerank.FormatBFloat16, Cols: cols}
	for r := range rows {
		copy(m.Row(r), adversary.RoundedDown(rng, p, equal(cols, 1), 0.25))
	}
	return m
}

func equal(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

// inBFloat16 is a matrix as screens have it.
func inBFloat16(m rerank.Matrix) rerank.Matrix {
	out := rerank.NewMatrix(m.Rows, m.Cols)
	for i, x := range m.Data {
		out.Data[i] = kernel.WidenBFloat16(kernel.RoundBFloat16(x))
	}
	return out
}

func times64(w rerank.Matrix, x []float64) []float64 {
	out := make([]float64, w.Rows)
	for r := range out {
		for i, v := range w.Row(r) {
			out[r] += float64(v) * x[i]
		}
	}
	return out
}

// gateNetwork is a gates' network in float64, with errors put in where screens
// make them.
type gateNetwork struct {
	first, second   rerank.Matrix
	logit           float64 // every logit
	logitOff        float64 // added to each
	hiddenOff       float64 // added to each unit of the hidden layer
	hiddenAt        float64 // what goes into SiLU without errors
	withoutTheFirst bool    // the hidden layer is given, h = hiddenAt
}

func (n gateNetwork) outputs() []float64 {
	h := make([]float64, n.first.Rows)
	if !n.withoutTheFirst {
		l, clean := make([]float64, n.first.Cols), make([]float64, n.first.Cols)
		for i := range l {
			l[i], clean[i] = n.logit+n.logitOff, n.logit
		}
		h = times64(n.first, l)
	}
	for i := range h {
		if n.withoutTheFirst {
			h[i] = n.hiddenAt
		} else {
			h[i] = silu(h[i] + n.hiddenAt)
		}
		h[i] += n.hiddenOff
	}
	return times64(n.second, h)
}

// apart is how far two outputs are: in norm, and the greatest of one.
func apart(a, b []float64) (all, each float64) {
	for i := range a {
		d := math.Abs(a[i] - b[i])
		all, each = all+d*d, max(each, d)
	}
	return math.Sqrt(all), each
}

func reducedOf(first, second rerank.Matrix) *reduced {
	m := &mlp{first: linear{w: first, bias: make([]float32, first.Rows)}, second: linear{w: second, bias: make([]float32, second.Rows)}}
	return m.reduce()
}

// TestGateErrorTerms compares each of the six numbers that gateError is linear in
// with networks in float64 in which such an error does the worst that it can.
func TestGateErrorTerms(t *testing.T) {
	const off = 1e-4
	rng := rand.New(rand.NewPCG(1, 4))
	first, second := aligned(hiddenUnits, inputs), aligned(outputs, hiddenUnits)
	clean := gateNetwork{first: first, second: second, hiddenAt: steepest}
	exact := reducedOf(first, second)
	rootIn, rootHidden := math.Sqrt(inputs), math.Sqrt(hiddenUnits)
	both := func(what string, allOff, eachOff, all, each float64) {
		t.Helper()
		adversary.Attained(t, what+", all gates", allOff, all)
		adversary.Attained(t, what+", each gate", eachOff, each)
	}

	moved := clean
	moved.logitOff = off / rootIn
	allOff, eachOff := apart(moved.outputs(), clean.outputs())
	all, each := exact.gateError(0, off, 0, 0, 0, 0)
	both("errors of the logits", allOff, eachOff, all, each)
	all, each = exact.gateError(0, 0, 0, 0, off, 0)
	both("rounding of the logits", allOff, eachOff, all, each)

	moved = clean
	moved.hiddenOff = off / rootHidden
	allOff, eachOff = apart(moved.outputs(), clean.outputs())
	all, each = exact.gateError(0, 0, 0, 0, 0, off)
	both("rounding of the hidden layer", allOff, eachOff, all, each)

	moved.hiddenOff = 0.0028 // what kernel.RoughSiLU, 0.003, is above
	allOff, eachOff = apart(moved.outputs(), clean.outputs())
	all, each = exact.gateError(1, 0, 0, 0, 0, 0)
	both("a rough SiLU", allOff, eachOff, all, each)

	lossy := clean
	lossy.first, lossy.logit = roundedDown(rng, hiddenUnits, inputs), 0.01
	sums := times64(lossy.first, times(equal(inputs, 1), lossy.logit))
	// Each unit's own bias puts it where SiLU is steepest.
	steep := func(first rerank.Matrix) []float64 {
		h := times64(first, times(equal(inputs, 1), lossy.logit))
		for i := range h {
			h[i] = silu(h[i] - sums[i] + steepest)
		}
		return times64(second, h)
	}
	allOff, eachOff = apart(steep(lossy.first), steep(inBFloat16(lossy.first)))
	all, each = reducedOf(lossy.first, second).gateError(0, 0, lossy.logit*rootIn, 0, 0, 0)
	both("rounding of the first layer", allOff, eachOff, all, each)

	lossy = gateNetwork{first: first, second: roundedDown(rng, outputs, hiddenUnits), hiddenAt: 2, withoutTheFirst: true}
	rounded := lossy
	rounded.second = inBFloat16(lossy.second)
	allOff, eachOff = apart(rounded.outputs(), lossy.outputs())
	all, each = reducedOf(first, lossy.second).gateError(0, 0, 0, 2*rootHidden, 0, 0)
	both("rounding of the second layer", allOff, eachOff, all, each)
}

func times(v []float32, by float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x) * by
	}
	return out
}

// TestGateErrorBetweenLayers: the bound of an error that both layers pass on holds for every slope of
// SiLU, is attained where the layers cancel each other, and does not depend on how units are scaled.
func TestGateErrorBetweenLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	first, second := normal(rng, hiddenUnits, inputs), normal(rng, outputs, hiddenUnits)
	r := reducedOf(first, second)
	for range 200 {
		product := rerank.NewMatrix(outputs, inputs)
		for h := range hiddenUnits {
			slope := []float32{-0.0998, 0.5, 1.0998}[rng.IntN(3)]
			for o := range outputs {
				for i, w := range first.Row(h) {
					product.Row(o)[i] += second.Row(o)[h] * slope * w
				}
			}
		}
		if norm := kernel.SpectralNorm(product) / 1.04; norm > r.through { // SpectralNorm exceeds the norm by less
			t.Fatalf("the layers amplify %v times, above %v", norm, r.through)
		}
		if norm := longestRow(product); norm > r.throughRow {
			t.Fatalf("an output is amplified %v times, above %v", norm, r.throughRow)
		}
	}

	// Half of the units take away what the other half add, unless their slopes differ.
	first, second = aligned(hiddenUnits, inputs), aligned(outputs, hiddenUnits)
	for o := range outputs {
		for h := range hiddenUnits / 2 {
			second.Row(o)[h] *= -1
		}
	}
	w0, row := 0.25*math.Sqrt(hiddenUnits*inputs), 0.25*math.Sqrt(hiddenUnits)
	r = reducedOf(first, second)
	adversary.Attained(t, "layers that cancel, all gates", (1.0998+0.0998)/2*row*math.Sqrt(outputs)*w0, r.through)
	adversary.Attained(t, "layers that cancel, each gate", (1.0998+0.0998)/2*row*w0, r.throughRow)

	for i := range first.Row(1) {
		first.Row(1)[i] *= 64
	}
	for o := range outputs {
		second.Row(o)[1] /= 64
	}
	uneven := reducedOf(first, second)
	adversary.Exactly(t, "an uneven unit, all gates", uneven.through, r.through)
	adversary.Exactly(t, "an uneven unit, each gate", uneven.throughRow, r.throughRow)
}

// TestGateErrorRoundings: the terms for float32's own roundings follow the package comment, for
// sums as long as the layers are wide.
func TestGateErrorRoundings(t *testing.T) {
	r := reducedOf(aligned(hiddenUnits, inputs), aligned(outputs, hiddenUnits))
	w0, w1 := 0.25*math.Sqrt(hiddenUnits*inputs), 0.25*math.Sqrt(outputs*hiddenUnits)
	inner, hidden := kernel.Gamma(inputs+2)*w0, kernel.Gamma(hiddenUnits+18)*w1 // of one rank, Frobenius norms are spectral ones
	all, _ := r.gateError(0, 0, 0, 1, 0, 0)
	adversary.Exactly(t, "of the second product", all, 2*hidden)
	all, each := r.gateError(0, 0, 1, 0, 0, 0)
	in := siluSlope*inner + 1e-6*(w0+inner)
	adversary.Exactly(t, "of the first product and of SiLU", all, w1*in+2*hidden*in)
	adversary.Exactly(t, "of the first product and of SiLU, each", each, 0.25*math.Sqrt(hiddenUnits)*in+2*hidden*in)
	r.rough, r.bias = 0, 100
	all, _ = r.gateError(1, 0, 0, 0, 0, 0)
	in = siluSlope*1e-6*100 + 1e-6*(100+1e-6*100)
	adversary.Exactly(t, "of the bias", all, w1*in+2*hidden*in)
}

// TestGateErrors: what items and the outer SiLU add to the errors of the gates'
// network, and the room for roots of computed squares.
func TestGateErrors(t *testing.T) {
	r := reducedOf(aligned(hiddenUnits, inputs), aligned(outputs, hiddenUnits))
	for _, combination := range []Combination{None, GLUSiLU} {
		e := encodedBy(&Similarity{c: Config{PairsQuery: 4, PairsItem: 6, Combination: combination}, reduced: r}, rerank.Matrix{})
		const logits, item, summand = 0.01, 0.5, 1000
		slope, rough := 1.0, 0.0
		rounding := 2 * (kernel.Gamma(6)*summand + 8*0x1p-24*(summand+1))
		if combination == GLUSiLU {
			slope, rough = 1.1, 0.003*(1+1e-3)
			rounding = slope*rounding + 0x1p-24*(8*summand+1)
		}
		got := e.gateErrors(logits, item, summand)
		all, each := r.gateError(1, logits, 0, 0, 0, 0)
		adversary.Exactly(t, "all", got.all[0], slope*(all+item)+(rough+rounding)*math.Sqrt(24))
		adversary.Exactly(t, "each", got.each[0], slope*(each+item)+rough+rounding)
		for i, of := range [][4]float64{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}} {
			all, each = r.gateError(0, 0, of[0], of[1], of[2], of[3])
			adversary.Exactly(t, "slope of all", got.all[i+1], slope*all)
			adversary.Exactly(t, "slope of each", got.each[i+1], slope*each)
		}
		squares := got.forKernel()
		for i := range got.all {
			room := 1.0
			if i > 0 {
				room = 1 + normError
			}
			adversary.Exactly(t, "all, of squares", float64(squares.All[i]), got.all[i]*room)
			adversary.Exactly(t, "each, of squares", float64(squares.Each[i]), got.each[i]*room)
		}
	}
}

// given is a MoL whose components are given, without projections.
func given(pairsQuery, pairsItem, dim int, temperature float64) *Similarity {
	s := &Similarity{c: Config{PairsQuery: pairsQuery, PairsItem: pairsItem, Dim: dim, Temperature: temperature, Combination: None}}
	s.spec = rerank.Spec{Kind: rerank.KindMoL, Features: pairsItem * dim, Block: dim}
	return s
}

// encodedBy returns a query with the given components.
func encodedBy(s *Similarity, components rerank.Matrix) *encoded {
	return &encoded{s: s, c: &s.c, components: components}
}

// loss packs a row in bfloat16, in blocks.
func lossOf(dim int, rows ...[]float32) (rerank.Matrix, rerank.Loss, *rerank.Packed) {
	p := rerank.Packing{Format: rerank.FormatBFloat16, Cols: len(rows[0]), Block: dim}
	packed, back, loss := &rerank.Packed{Packing: p, Rows: len(rows)}, rerank.NewMatrix(len(rows), p.Cols), rerank.NewLoss(p)
	for i, x := range rows {
		words := make([]uint32, p.RowWords())
		p.Pack(words, x)
		p.Unpack(back.Row(i), words, 1)
		loss.Add(p, x, back.Row(i))
		packed.Words = append(packed.Words, words...)
	}
	return back, loss, packed
}

// TestLogitErrorTerms compares what the logits of packed rows are off, by rounding
// of the components and of the query, with float64 on data that attains it: all
// components of the query are equal, so that their errors add up.
func TestLogitErrorTerms(t *testing.T) {
	const pairsQuery, pairsItem, dim = 3, 2, 32
	rng := rand.New(rand.NewPCG(2, 4))
	packing := rerank.Packing{Format: rerank.FormatBFloat16, Cols: pairsItem * dim, Block: dim}
	for _, temperature := range []float64{1, 0.0625} {
		for _, rough := range []bool{false, true} {
			e := encodedBy(given(pairsQuery, pairsItem, dim, temperature), rerank.NewMatrix(pairsQuery, dim))
			// The query has no rest: the rows decide.
			f := equal(dim, 1)
			for i := range pairsQuery {
				copy(e.components.Row(i), f)
			}
			against := equal(pairsItem*dim, 1)
			x := adversary.RoundedDown(rng, packing, against, 1)
			back, loss, packed := lossOf(dim, x)
			each := (adversary.Dot(f, x[:dim]) - adversary.Dot(f, back.Row(0)[:dim])) / temperature
			greatest, norm := e.logitError(rerank.Items{Packed: packed}, loss, rough)
			adversary.Attained(t, "rows, greatest", each, greatest)
			adversary.Attained(t, "rows, all", each*math.Sqrt(pairsQuery*pairsItem), norm)

			// The rows have no loss, and lie along what is left of the query.
			e = encodedBy(e.s, rerank.NewMatrix(pairsQuery, dim))
			f = adversary.SplitDown(rng, dim)
			rest := make([]float64, dim)
			for i, v := range f {
				high := kernel.WidenBFloat16(kernel.RoundBFloat16(v))
				rest[i] = float64(v - high)
				if !rough {
					rest[i] -= float64(kernel.WidenBFloat16(kernel.RoundBFloat16(v - high)))
				}
			}
			for i := range pairsQuery {
				copy(e.components.Row(i), f)
			}
			along := adversary.Parallel(rerank.Packing{Format: packing.Format, Cols: dim}, rest, 1)
			_, loss, packed = lossOf(dim, append(append([]float32(nil), along...), along...))
			greatest, norm = e.logitError(rerank.Items{Packed: packed}, loss, rough)
			each = 0
			for i, r := range rest {
				each += r * float64(along[i]) / temperature
			}
			roundings := 3 * kernel.Gamma(2*dim+2) * rerank.Norm(f) / temperature * rerank.Norm(along)
			adversary.Attained(t, "query, greatest", each, greatest-roundings)
			adversary.Attained(t, "query, all", each*math.Sqrt(pairsQuery*pairsItem), norm-roundings*math.Sqrt(pairsQuery*pairsItem))
		}
	}
	// Neither rows nor query lose anything: the roundings are left.
	e := encodedBy(given(1, 1, dim, 0.5), rerank.Matrix{Rows: 1, Cols: dim, Data: equal(dim, 1)})
	_, loss, packed := lossOf(dim, equal(dim, 2))
	greatest, norm := e.logitError(rerank.Items{Packed: packed}, loss, false)
	want := 3 * kernel.Gamma(2*dim+2) * 2 * math.Sqrt(dim) * 2 * math.Sqrt(dim)
	adversary.Exactly(t, "roundings, greatest", greatest, want)
	adversary.Exactly(t, "roundings, all", norm, want)
}

// TestInt8LogitErrorTerms is TestLogitErrorTerms for rows of int8.
func TestInt8LogitErrorTerms(t *testing.T) {
	const pairsQuery, pairsItem, dim = 3, 2, 32
	rng := rand.New(rand.NewPCG(2, 5))
	packing := rerank.Packing{Format: rerank.FormatInt8, Cols: pairsItem * dim, Block: dim}
	root := math.Sqrt(pairsQuery * pairsItem)
	alike := func(f []float32, temperature float64) *encoded {
		e := encodedBy(given(pairsQuery, pairsItem, dim, temperature), rerank.NewMatrix(pairsQuery, dim))
		for i := range pairsQuery {
			copy(e.components.Row(i), f)
		}
		return e
	}
	for _, temperature := range []float64{1, 0.0625} {
		for _, rough := range []bool{false, true} {
			f := equal(dim, 1) // int8 has it without a rest
			x := adversary.RoundedDown(rng, packing, equal(pairsItem*dim, 1), 1)
			packed, loss := packRows(t, packing, rerank.Matrix{Rows: 1, Cols: len(x), Data: x})
			back := make([]float32, len(x))
			packed.Row32(back, 0)
			each := (adversary.Dot(f, x[:dim]) - adversary.Dot(f, back[:dim])) / temperature
			greatest, norm := alike(f, temperature).logitError(rerank.Items{Packed: packed}, loss, rough)
			adversary.Attained(t, "rows, greatest", each, greatest)
			adversary.Attained(t, "rows, all", each*root, norm)

			for i := range f {
				f[i] = float32(math.Copysign(1+rng.Float64()/8, rng.Float64()-0.5))
			}
			rest := leftByInt8(f)
			if !rough {
				rest = leftByInt8(rest)
			}
			along := adversary.Parallel(rerank.Packing{Format: rerank.FormatInt8, Cols: dim}, times(rest, 1), 1)
			row := append(append([]float32(nil), along...), along...)
			packed, loss = packRows(t, packing, rerank.Matrix{Rows: 1, Cols: len(row), Data: row})
			greatest, norm = alike(f, temperature).logitError(rerank.Items{Packed: packed}, loss, rough)
			each = adversary.Dot(rest, along) / temperature
			lost := float64(loss.Blocks[0].Lost) * rerank.Norm(f) / temperature
			roundings := 3 * kernel.Gamma(2*dim+2) * (rerank.Norm(f) + rerank.Norm(rest)) / temperature * float64(loss.Blocks[0].Norm)
			adversary.Attained(t, "query, greatest", each, greatest-lost-roundings)
			adversary.Attained(t, "query, all", each*root, norm-(lost+roundings)*root)
		}
	}
	// What int8 leaves of the query adds to the roundings.
	e := encodedBy(given(1, 1, 2, 1), rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{127, 0.5}})
	packed, _ := packRows(t, rerank.Packing{Format: rerank.FormatInt8, Cols: 2, Block: 2}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 1}})
	loss := rerank.Loss{Block: 2, Blocks: []rerank.Extent{{Norm: 4}}, Row: rerank.Extent{Norm: 4}}
	greatest, norm := e.logitError(rerank.Items{Packed: packed}, loss, true)
	want := (0.5 + 3*kernel.Gamma(6)*(math.Hypot(127, 0.5)+0.5)) * 4
	adversary.Exactly(t, "roundings, greatest", greatest, want)
	adversary.Exactly(t, "roundings, all", norm, want)
}

// leftByInt8 returns what int8 leaves of a vector.
func leftByInt8(v []float32) []float32 {
	values, left := make([]int8, len(v)), make([]float32, len(v))
	scale := kernel.Quantize(values, v)
	for i, n := range values {
		left[i] = float32(float64(v[i]) - float64(scale)*float64(n))
	}
	return left
}

// TestInt8Parts: queries too small for a scale, or not finite, leave all that they are.
func TestInt8Parts(t *testing.T) {
	for _, c := range []struct{ size, scale, left float64 }{
		{1e-29, 0, 1e-29}, {0, 0, 0}, {127, 1, 0}, {math.Inf(1), math.Inf(1), math.NaN()},
	} {
		e := encodedBy(given(1, 1, 4, 1), rerank.Matrix{Rows: 1, Cols: 4, Data: []float32{float32(c.size), 0, 0, 0}})
		p := e.int8Parts()
		if c.left != c.left {
			if !(p.lost[0][0] != p.lost[0][0]) && !math.IsInf(p.lost[0][0], 1) {
				t.Errorf("of %v it leaves %v", c.size, p.lost[0][0])
			}
			continue
		}
		adversary.Exactly(t, "scale", float64(p.scales[0]), c.scale)
		adversary.Exactly(t, "left", p.lost[0][0], c.left)
		adversary.Exactly(t, "left of both", p.lost[1][0], c.left)
	}
}

// TestLargestLogitError: the errors of a logit, and room for the arithmetic of all; no bound where a
// logit may overflow.
func TestLargestLogitError(t *testing.T) {
	e := encodedBy(given(2, 2, 4, 0.5), rerank.Matrix{Rows: 2, Cols: 4, Data: []float32{3, 0, 0, 0, 0, 4, 0, 0}})
	items := rerank.Items{Packed: &rerank.Packed{Packing: rerank.Packing{Format: rerank.FormatInt8, Cols: 8, Block: 4}}}
	loss := rerank.Loss{Block: 4, Blocks: []rerank.Extent{{Lost: 0.5, Norm: 5}, {Norm: 12}}, Row: rerank.Extent{Lost: 0.5, Norm: 13}}
	greatest, all := e.logitError(items, loss, true)
	want := greatest + (4*kernel.Gamma(4+6)+0x1p-20)*(10*13+all)
	adversary.Exactly(t, "error", float64(e.largestLogitError(items, loss)), want)
	for _, norm := range []float32{1e18, float32(math.Inf(1)), float32(math.NaN())} {
		loss.Blocks[1].Norm, loss.Row.Norm = norm, norm
		if got := e.largestLogitError(items, loss); got <= math.MaxFloat32 {
			t.Errorf("rows of norm %v have an error of %v", norm, got)
		}
	}
}

// TestItemError: the losses of the blocks of the item's gates, times the greatest
// factor that the query has for one, of either sign.
func TestItemError(t *testing.T) {
	e := encodedBy(given(2, 4, 4, 1), rerank.Matrix{})
	e.factor = []float32{0.5, -3, 1}
	loss := rerank.NewLoss(rerank.Packing{Format: rerank.FormatBFloat16, Cols: 24, Block: 4})
	loss.Blocks[0].Lost, loss.Blocks[4].Lost, loss.Blocks[5].Lost = 100, 3, 4
	loss.Row.Lost = 100
	items := rerank.Items{Packed: &rerank.Packed{}}
	adversary.Exactly(t, "of a model without such gates", e.itemError(items, loss), 0)
	e.s.byItem.second.w = aligned(8, 4)
	adversary.Exactly(t, "of packed rows", e.itemError(items, loss), 3*5)
	adversary.Exactly(t, "of rows in float32", e.itemError(rerank.Items{}, loss), 0)
	loss.Block = 5 // blocks of another model say nothing of these
	adversary.Exactly(t, "of other blocks", e.itemError(items, loss), 3*math.Sqrt(2)*100)
}

// TestScreenByLogits: the bound by the largest logit is that logit, what it is off,
// and room for the arithmetic; what is not finite is bounded by nothing.
func TestScreenByLogits(t *testing.T) {
	const logit = 0.25
	var extent [3][kernel.Lanes]float32
	dst, off := make([]float32, kernel.Lanes), float32(0)
	for l := range kernel.Lanes {
		extent[0][l], extent[2][l] = float32(l), float32(l*l)
	}
	b := bounds{logit: logit, mix: 1e-5, reach: 15.2}
	if !b.byLogits(dst, &extent, &off) {
		t.Error("a bound that reaches is taken for one that does not")
	}
	want := logit + (1e-5+0x1p-20)*(15*(1+normError)+logit)
	adversary.Exactly(t, "room", float64(off), want)
	for l := range dst {
		adversary.Exactly(t, "bound", float64(dst[l]), float64(l)+want)
	}
	if b.reach = dst[15] + 1e-4; b.byLogits(dst, &extent, &off) {
		t.Error("a bound below what matters is taken for one that reaches")
	}
	b.reach = dst[15]
	if !b.byLogits(dst, &extent, &off) {
		t.Error("a bound that ties is taken for one that does not reach")
	}
	for _, odd := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		extent[0][3], extent[2][3] = float32(odd), float32(math.Abs(odd))
		if b.byLogits(dst, &extent, &off); dst[3] < float32(math.Inf(1)) {
			t.Errorf("a largest logit of %v is bounded by %v", odd, dst[3])
		}
	}
}

// TestScreenByGates: the bound by gates adds what the logits are off, and replaces
// only a bound that is not below it.
func TestScreenByGates(t *testing.T) {
	s := given(1, 2, 4, 1)
	s.kernels = kernel.Best()
	logits, gates := make([]float32, 2*kernel.Lanes), make([]float32, 2*kernel.Lanes)
	for l := range kernel.Lanes {
		logits[l], logits[kernel.Lanes+l] = 1, 3
	}
	var zeros [kernel.Lanes]float32
	b := bounds{e: &encoded{s: s, c: &s.c}, reach: float32(math.Inf(-1))}
	dst := make([]float32, kernel.Lanes)
	for l := range dst {
		dst[l] = 10
	}
	dst[2], dst[3] = 1, float32(math.NaN())
	b.byGates(dst, &[4]*[kernel.Lanes]float32{&zeros, &zeros, &zeros, &zeros}, 0.5, logits, gates)
	adversary.Exactly(t, "mean and logits' error", float64(dst[0]), 2+0.5)
	adversary.Exactly(t, "a lower one before", float64(dst[2]), 1)
}

// TestOddRow: the last logit of an odd number is rounded and its loss counted.
func TestOddRow(t *testing.T) {
	values, dst := make([]float32, kernel.Lanes), make([]uint32, kernel.Lanes)
	var lost [kernel.Lanes]float32
	for l := range values {
		values[l], lost[l] = 1+0x1p-9*float32(l%5), float32(l)
	}
	roundOddRow(dst, &lost, values)
	for l, v := range values {
		h := kernel.RoundBFloat16(v)
		d := float64(v) - float64(kernel.WidenBFloat16(h))
		adversary.Exactly(t, "loss", float64(lost[l]), float64(l)+d*d)
		if dst[l] != uint32(h) {
			t.Errorf("lane %d holds %#x, want %#x", l, dst[l], h)
		}
	}
}
