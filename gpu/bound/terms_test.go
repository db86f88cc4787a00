package bound

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

const (
	pairsQuery, pairsItem, dim, hiddenUnits = 3, 4, 32, 16
	pairs                                   = pairsQuery * pairsItem
)

func equal(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

func network(c mol.Combination) *Network {
	n := &Network{Network: &mol.Network{PairsQuery: pairsQuery, PairsItem: pairsItem, Dim: dim, Combination: c, Temperature: 1}, finite: true}
	n.First.Rows, n.Second.Rows = hiddenUnits, pairs
	// The layers' norms are different primes, so a product shows which norms it was made of.
	n.first = layer{exists: true, cols: pairs, norm: 3, lost: 5, frobenius: 7, row: 11, lostRow: 13, bias: 17, biasMax: 19}
	n.second = layer{exists: true, cols: hiddenUnits, norm: 23, lost: 29, frobenius: 31, row: 37, lostRow: 41, bias: 43, biasMax: 47}
	return n
}

// packedLoss returns the rounding error of one row in float16, in blocks of components.
func packedLoss(row []float32) ([]float32, rerank.Loss) {
	p := rerank.Packing{Format: rerank.FormatFloat16, Cols: len(row), Block: dim}
	words, back, loss := make([]uint32, p.RowWords()), make([]float32, len(row)), rerank.NewLoss(p)
	p.Pack(words, row)
	p.Unpack(back, words, 1)
	loss.Add(p, row, back)
	return back, loss
}

func queries(f []float32, scale float32) *rerank.Operands {
	o := &rerank.Operands{Vectors: rerank.NewMatrix(pairsQuery, dim), Scale: scale}
	for i := range pairsQuery {
		copy(o.Vectors.Row(i), f)
	}
	return o
}

// TestLogitTerms checks the bound of a logit's error in two parts. The part for rounding
// components and query to float16 is compared with float64 on data that attains it; the part
// for the rounding of sums is compared with the formula. All components of the query are equal,
// so that errors add up.
func TestLogitTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	const root = 3.4641016151377544 // of pairs
	packing := rerank.Packing{Format: rerank.FormatFloat16, Cols: pairsItem * dim, Block: dim}
	for _, scale := range []float32{1, 16, -16} {
		size := math.Abs(float64(scale))
		// A sum on tensor cores rounds dim + 4 times, each time by at most 2⁻²².
		adding := (dim + 4) * 0x1p-22

		f := equal(dim, 1)
		x := adversary.RoundedDown(rng, packing, equal(pairsItem*dim, 1), 1)
		back, loss := packedLoss(x)
		off, longest := 0.0, 0.0
		for j := range pairsItem {
			off = max(off, size*(adversary.Dot(f, x[j*dim:])-adversary.Dot(f, back[j*dim:])))
			longest = max(longest, float64(loss.Blocks[j].Norm))
		}
		l, ok := boundLogits(queries(f, scale), loss.Blocks)
		if !ok {
			t.Fatal("no limits")
		}
		room := adding * size * rerank.Norm(f) * longest
		adversary.Attained(t, "components, greatest", off, l.maxError-room)
		adversary.Exactly(t, "greatest logit", l.greatest, size*rerank.Norm(f)*longest)

		// The query loses as much as float16 can take, and the rows point along that loss.
		f = adversary.RoundedDown(rng, rerank.Packing{Format: rerank.FormatFloat16, Cols: dim}, equal(dim, 1), 1)
		rounded, _ := round16(f)
		lost := make([]float64, dim)
		for i := range f {
			lost[i] = float64(f[i]) - float64(rounded[i])
		}
		along := adversary.Parallel(rerank.Packing{Format: rerank.FormatFloat16, Cols: dim}, lost, 1)
		row := make([]float32, 0, pairsItem*dim)
		for range pairsItem {
			row = append(row, along...)
		}
		_, loss = packedLoss(row)
		off = 0
		for i, r := range lost {
			off += size * r * float64(along[i])
		}
		l, _ = boundLogits(queries(f, scale), loss.Blocks)
		took := make([]float32, dim)
		for i := range took {
			took[i] = f[i] - rounded[i]
		}
		length, lengthOfLost := rerank.Norm(f), rerank.Norm(took)
		room = adding * size * (length + lengthOfLost) * rerank.Norm(along)
		adversary.Attained(t, "query, greatest", off, l.maxError-room)
		adversary.Attained(t, "query, all", off*root, l.errorNorm-room*root)
		adversary.Exactly(t, "greatest logit", l.greatest, size*(length+lengthOfLost)*rerank.Norm(along))
		adversary.Exactly(t, "all logits", l.norm, root*l.greatest)

		// No operand is rounded, so only the sums' rounding remains.
		l, _ = boundLogits(queries(equal(dim, 1), scale), loss.Blocks)
		want := adding * size * math.Sqrt(dim) * rerank.Norm(along)
		adversary.Exactly(t, "sums, greatest", l.maxError, want)
		adversary.Exactly(t, "sums, all", l.errorNorm, root*want)
	}
	// The bound adds up the losses of all components.
	loss := rerank.NewLoss(packing)
	for j := range loss.Blocks {
		loss.Blocks[j] = rerank.Extent{Lost: float32(j + 1)}
	}
	l, _ := boundLogits(queries(equal(dim, 1), 1), loss.Blocks)
	adversary.Exactly(t, "losses of four components, all", l.errorNorm, math.Sqrt(pairsQuery*dim)*math.Sqrt(1+4+9+16))
	adversary.Exactly(t, "losses of four components, greatest", l.maxError, math.Sqrt(dim)*4)
}

// TestLayerTerms checks how much a layer's weights lose in float16, measured by the spectral norm
// and by the greatest row. The test weights lose a matrix of rank one, whose norms are known.
func TestLayerTerms(t *testing.T) {
	const rows, cols = 24, 16
	rng := rand.New(rand.NewPCG(2, 5))
	w := rerank.NewMatrix(rows, cols)
	for r := range rows {
		copy(w.Row(r), adversary.RoundedDown(rng, rerank.Packing{Format: rerank.FormatFloat16, Cols: cols}, equal(cols, 1), 1))
	}
	bias := equal(rows, 2)
	bias[3] = -7
	l, ok := newLayer(w, bias)
	rounded, _ := round16(w.Data)
	moved, row, all := 0.0, 0.0, 0.0
	for r := range rows {
		var sum, squares float64
		for c := range cols {
			d := float64(w.Row(r)[c]) - float64(rounded[r*cols+c])
			sum, squares = sum+d, squares+d*d
		}
		moved, row, all = moved+sum*sum/cols, max(row, math.Sqrt(squares)), all+squares
	}
	if !ok || !l.exists || l.cols != cols {
		t.Errorf("%+v, %t", l, ok)
	}
	adversary.Attained(t, "lost", math.Sqrt(moved), l.lost)
	adversary.Attained(t, "lost of a row", row, l.lostRow)
	adversary.Exactly(t, "all", l.frobenius, rerank.Norm(w.Data)+math.Sqrt(all)+2*0x1p-25*math.Sqrt(rows*cols))
	adversary.Exactly(t, "bias", l.bias, rerank.Norm(bias))
	adversary.Exactly(t, "greatest bias", l.biasMax, 7)

	// Weights below float16's normal numbers are rounded to multiples of 2⁻²⁴.
	for i := range w.Data {
		w.Data[i] = 0x1p-24
	}
	l, _ = newLayer(w, bias)
	adversary.Attained(t, "tiny weights", 0x1p-24*math.Sqrt(rows*cols), l.lost)
	adversary.Attained(t, "tiny weights of a row", 0x1p-24*math.Sqrt(rows*cols), l.lostRow)
}

// TestHiddenTerms compares the bounds of the hidden layer and of its error with the formulae of
// doc.go, written out for layers whose norms are primes.
func TestHiddenTerms(t *testing.T) {
	n := network(mol.None)
	const (
		u, tiny, w, lost, all, b = 0x1p-11, 0x1p-25, 3, 5, 7, 17
		adds                     = (pairs + 2) * 0x1p-22
		he                       = kernels.SiLUError
		off                      = 0.75
	)
	roots, rootHidden := math.Sqrt(pairs)*tiny, 4*tiny
	sum := w + lost + adds*all
	got := n.hiddenNorm(line{slope: 1})
	adversary.Exactly(t, "hidden", got.at0, (roots*sum+b*(1+adds))*(1+he)*(1+u)+rootHidden)
	adversary.Exactly(t, "hidden, slope", got.slope, (1+u)*sum*(1+he)*(1+u))

	got = n.hiddenError(&logitBounds{errorNorm: off})
	moved := (off+roots)*w + (lost+adds*all)*roots + adds*b
	rounded := (roots*sum + b*(1+adds)) * (he + u*(1+he))
	adversary.Exactly(t, "hidden error", got.at0, 1.1*moved+rounded+rootHidden)
	moved = u*w + (lost+adds*all)*(1+u)
	rounded = (1 + u) * sum * (he + u*(1+he))
	adversary.Exactly(t, "hidden error, slope", got.slope, 1.1*moved+rounded)

	n.first.exists = false
	got = n.hiddenError(&logitBounds{errorNorm: off})
	adversary.Exactly(t, "no hidden layer", got.at0, off+roots)
	adversary.Exactly(t, "no hidden layer, slope", got.slope, u)
}

// TestHiddenErrorAttained: through a layer of rank one, at the steepest point of SiLU, a logit's
// error grows as much as the bound allows.
func TestHiddenErrorAttained(t *testing.T) {
	const off, steepest = 1e-5, 2.3994
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	n := network(mol.None)
	n.first.norm = 0.25 * math.Sqrt(hiddenUnits*pairs) // of a layer of quarters
	each := off / math.Sqrt(pairs) * 0.25 * pairs
	moved := (silu(steepest+each) - silu(steepest)) * math.Sqrt(hiddenUnits)
	adversary.Attained(t, "hidden", moved, n.hiddenError(&logitBounds{errorNorm: off}).at0-n.hiddenError(&logitBounds{}).at0)
}

// TestGateTerms compares the bounds of the errors of the softmax's inputs with the formulae, for both
// combinations of gates, with parts of the query and of the item.
func TestGateTerms(t *testing.T) {
	const adds, off = (hiddenUnits + 2) * 0x1p-22, 0.75
	loss := rerank.NewLoss(rerank.Packing{Format: rerank.FormatFloat16, Cols: pairsItem*dim + pairs, Block: dim})
	loss.Blocks[0].Norm, loss.Blocks[pairsItem].Norm = 1000, 53
	o := &rerank.Operands{Gates: equal(pairs, 2), Scale: 1}
	o.Gates[5] = -59
	query, queryEach := rerank.Norm(o.Gates), 59.0
	item := 53.0
	root := math.Sqrt(pairs)
	for _, combination := range []mol.Combination{mol.None, mol.GLUSiLU} {
		n := network(combination)
		n.ItemGates, n.QueryGates = true, true
		h, e := n.hiddenNorm(line{slope: 1}), n.hiddenError(&logitBounds{errorNorm: off})
		size, sizeEach := 43+query+item, 47+queryEach+item
		if combination == mol.GLUSiLU {
			size, sizeEach = 43+queryEach*item, 47+queryEach*item
		}
		for _, part := range []struct {
			name              string
			h, e              float64
			constant          float64 // 1 for what does not grow with the logits
			gotAll, gotEach   func(all, each line) float64
			special, exponent float64
		}{
			{"at 0", h.at0, e.at0, 1, func(all, _ line) float64 { return all.at0 }, func(_, each line) float64 { return each.at0 }, 2 * 0x1p-16, 0x1p-20},
			{"slope", h.slope, e.slope, 0, func(all, _ line) float64 { return all.slope }, func(_, each line) float64 { return each.slope }, 0, 0x1p-20},
		} {
			whole := size*part.constant + part.h*(23+29)
			wholeEach := sizeEach*part.constant + part.h*(37+41)
			all := part.e*23 + part.h*(29+adds*31) + adds*43*part.constant + whole*0x1p-21
			each := part.e*37 + part.h*(41+adds*(37+41)) + adds*47*part.constant + wholeEach*0x1p-21
			if combination == mol.GLUSiLU {
				all, each = 1.1*all+kernels.SiLUError*whole, 1.1*each+kernels.SiLUError*wholeEach
			}
			exponentials := wholeEach*part.exponent + part.special
			gotAll, gotEach := n.gateErrors(&logitBounds{errorNorm: off}, o, &loss)
			adversary.Exactly(t, string(combination)+" all, "+part.name, part.gotAll(gotAll, gotEach), all+root*exponentials)
			adversary.Exactly(t, string(combination)+" each, "+part.name, part.gotEach(gotAll, gotEach), each+exponentials)
		}
	}
}

// TestItemGates: the loss of the item's gates is the norm over all their blocks, and the greatest
// norm of a single block.
func TestItemGates(t *testing.T) {
	n := network(mol.GLUSiLU)
	loss := rerank.Loss{Blocks: []rerank.Extent{{Norm: 9}, {Norm: 9}, {Norm: 9}, {Norm: 9}, {Norm: 4}, {Norm: 3}}}
	if norm, each := n.itemGates(&loss); norm != 0 || each != 0 {
		t.Errorf("without such gates %v and %v", norm, each)
	}
	n.ItemGates = true
	norm, each := n.itemGates(&loss)
	adversary.Exactly(t, "norm", norm, 5)
	adversary.Exactly(t, "each", each, 4)
}

// TestLimitsFormula compares Limits with the formula of its terms. It returns no limits where a logit
// may become infinite in float16, even if the layer behind it is small.
func TestLimitsFormula(t *testing.T) {
	n := network(mol.None)
	_, loss := packedLoss(equal(pairsItem*dim, 1))
	o := queries(equal(dim, 1), 2)
	got, ok := n.Limits(o, &loss)
	q, _ := boundLogits(o, loss.Blocks)
	all, each := n.gateErrors(&q, o, &loss)
	if !ok {
		t.Fatal("no limits")
	}
	adversary.Exactly(t, "base", float64(got.Base)/1.001, q.maxError+(pairs+8)*0x1p-23*q.greatest+0x1p-22*q.norm+1e-12)
	adversary.Exactly(t, "all", float64(got.All)/1.001, all.at0)
	adversary.Exactly(t, "all, by norm", float64(got.AllNorm)/1.001, all.slope)
	adversary.Exactly(t, "each", float64(got.Each)/1.001, each.at0)
	adversary.Exactly(t, "each, by norm", float64(got.EachNorm)/1.001, each.slope)

	n.first = layer{exists: true, cols: pairs, norm: 1e-9}
	if got, ok := n.Limits(queries(equal(dim, 1), 60000), &loss); ok {
		t.Errorf("for logits that become infinite in float16: %+v", got)
	}
}

// TestInnerProductLimits: a φ that is one inner product is bounded by Base alone. Rows attain
// it up to the room for sums, which is compared with the formula.
func TestInnerProductLimits(t *testing.T) {
	const cols = 200
	rng := rand.New(rand.NewPCG(4, 5))
	packing := Packing(nil, cols)
	u := equal(cols, 1)
	row, back, loss := adversary.RoundedDown(rng, packing, u, 1), make([]float32, cols), rerank.NewLoss(packing)
	words := make([]uint32, packing.RowWords())
	packing.Pack(words, row)
	packing.Unpack(back, words, 1)
	loss.Add(packing, row, back)
	for _, n := range []*Network{New(nil), New(&mol.Network{Fixed: true, PairsQuery: 4, PairsItem: 2, Dim: cols / 2})} {
		for _, tau := range []float32{1, -16} {
			o := &rerank.Operands{Vectors: rerank.Matrix{Rows: 1, Cols: cols, Data: u}, Scale: tau}
			l, ok := n.Limits(o, &loss)
			if !ok || l != (kernels.Limits{Base: l.Base}) {
				t.Fatalf("limits %+v, %t", l, ok)
			}
			size := math.Abs(float64(tau))
			greatest := size * math.Sqrt(cols) * float64(loss.Row.Norm)
			room := (cols+4)*0x1p-22*greatest + 9*0x1p-23*greatest + 0x1p-22*greatest + 1e-12
			off := size * (adversary.Dot(u, row) - adversary.Dot(u, back))
			adversary.Attained(t, "rows", math.Abs(off), float64(l.Base)/1.001-room)
		}
	}
	for name, o := range map[string]*rerank.Operands{
		"a vector beyond float16": {Vectors: rerank.Matrix{Rows: 1, Cols: cols, Data: equal(cols, 70000)}, Scale: 1},
		"a vector over τ":         {Vectors: rerank.Matrix{Rows: 1, Cols: cols, Data: equal(cols, 7)}, Scale: 1e4},
		"not a number":            {Vectors: rerank.Matrix{Rows: 1, Cols: cols, Data: equal(cols, float32(math.NaN()))}, Scale: 1},
	} {
		if l, ok := New(nil).Limits(o, &loss); ok {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if l, ok := New(nil).Limits(queries(equal(dim, 1), 1), &rerank.Loss{Row: rerank.Extent{Lost: float32(math.Inf(1)), Norm: 1}}); ok {
		t.Errorf("rows with an unknown loss: %+v", l)
	}
}

// TestUpper: an upper bound exceeds the score by at least e^δ·(e^δ − 1)/δ times the spread of the
// logits, which includes their norm's rounding, and never exceeds the greatest logit.
func TestUpper(t *testing.T) {
	const norm, spread, score = 1e6, 1e3, 7
	for _, delta := range []float64{1e-4, 0.01, 0.1, 0.5, 1, 2} {
		l := kernels.Limits{Base: 5, All: 1e-3, Each: float32(delta)}
		growth := math.Exp(delta) * math.Expm1(delta) / delta
		least := score + 5 + 1e-3*growth*(spread+0x1p-16*norm)
		if got := float64(l.Upper(score, norm, spread)); !(got >= least*(1-1e-7)) || delta <= 0.5 && got > least*1.05 {
			t.Errorf("δ %v: %v, want %v or a little more", delta, got, least)
		}
		l = kernels.Limits{AllNorm: 1e-9, EachNorm: float32(delta / norm)} // the same, by the norm
		least = score + 1e-3*growth*(spread+0x1p-16*norm)
		if got := float64(l.Upper(score, norm, spread)); !(got >= least*(1-1e-6)) || delta <= 0.5 && got > least*1.05 {
			t.Errorf("δ %v by the norm: %v, want %v or a little more", delta, got, least)
		}
	}
	far := kernels.Limits{Base: 5, All: 1e9, Each: 1}
	adversary.Exactly(t, "the greatest logit", float64(far.Upper(score, norm, spread)), 1.0001*norm+5)
	if got := far.Upper(math.Inf(-1), norm, spread); !math.IsInf(float64(got), -1) {
		t.Errorf("of a score that is not finite: %v", got)
	}
}

// TestExactFormula compares ε of the float32 kernels with its formula, for a negative scale and
// rows of several norms.
func TestExactFormula(t *testing.T) {
	u := equal(dim, 2)
	o := &rerank.Operands{Vectors: rerank.Matrix{Rows: 1, Cols: dim, Data: u}, Scale: -20}
	loss := rerank.Loss{Row: rerank.Extent{Norm: 3}, Blocks: []rerank.Extent{{Norm: 7}, {Norm: 5}, {Norm: 2}, {Norm: 1}}}
	adversary.Exactly(t, "one inner product", New(nil).Exact(o, &loss), 20*kernel.Gamma(dim+2)*rerank.Norm(u)*3)
	q := queries(equal(dim, 1), -20)
	q.Vectors.Row(1)[0] = 9
	adversary.Exactly(t, "gates", network(mol.None).Exact(q, &loss), 2e-5*20*rerank.Norm(q.Vectors.Row(1))*7)
}
