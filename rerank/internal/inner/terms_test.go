package inner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

func productOf(k *kernel.Set, u []float32, scale float32) *Product {
	return &Product{Spec: rerank.Spec{Kind: rerank.KindDot, Features: len(u)}, Kernels: k, U: u, Scale: scale}
}

func normals(rng *rand.Rand, n int) []float32 { return adversary.Mix(rng, 1, n, adversary.Plain).Data }

// evenly are numbers of either sign and of nearly one size.
func evenly(rng *rand.Rand, n int) []float32 {
	u := make([]float32, n)
	for i := range u {
		u[i] = float32(math.Copysign(1+rng.Float64()/8, rng.Float64()-0.5))
	}
	return u
}

func negated(v []float32, by float32) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = x * float32(math.Copysign(1, float64(by)))
	}
	return out
}

func packRows(p rerank.Packing, rows ...[]float32) (*rerank.Packed, rerank.Matrix, rerank.Loss) {
	q, back, loss := &rerank.Packed{Packing: p, Rows: len(rows)}, rerank.NewMatrix(len(rows), p.Cols), rerank.NewLoss(p)
	for i, x := range rows {
		words := make([]uint32, p.RowWords())
		p.Pack(words, x)
		p.Unpack(back.Row(i), words, 1)
		loss.Add(p, x, back.Row(i))
		q.Words = append(q.Words, words...)
	}
	return q, back, loss
}

// reducedFormats are the number formats that are screened.
var reducedFormats = []rerank.Format{rerank.FormatBFloat16, rerank.FormatInt8}

// TestScreenTerms compares each term of the bound with the error that it covers, in float64, on
// rows that attain it: without a term, or with half of it, some row scores more than its bound.
func TestScreenTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, format := range reducedFormats {
		for _, n := range []int{2, 8, 40} {
			for _, size := range []float64{1, 0x1p-20, 0x1p20} {
				for level := range maxParts {
					screenTerms(t, rng, rerank.Packing{Format: format, Cols: n}, level, size)
				}
			}
		}
	}
}

func screenTerms(t *testing.T, rng *rand.Rand, packing rerank.Packing, level int, size float64) {
	t.Helper()
	n := packing.Cols
	u := evenly(rng, n)
	p := productOf(kernel.Best(), u, 1)
	x := adversary.RoundedDown(rng, packing, u, size)
	_, back, loss := packRows(packing, x)
	if rows := p.screenErrors(level, packing, loss).rows; n > 2 || packing.Format != rerank.FormatInt8 { // int8 stores the greatest number exactly
		adversary.Attained(t, "rows", adversary.Dot(u, x)-adversary.Dot(u, back.Row(0)), rows)
	}

	u = splitDown(rng, packing)
	p = productOf(kernel.Best(), u, 1)
	rest := leftOf(u, packing, level)
	x = adversary.Parallel(packing, rest, size)
	_, _, loss = packRows(packing, x)
	off := 0.0
	for i, r := range rest {
		off += r * float64(x[i])
	}
	e := p.screenErrors(level, packing, loss)
	adversary.Attained(t, "query", off, e.query)
	if packing.Format == rerank.FormatBFloat16 && e.rows != 0 {
		t.Errorf("rows that lost nothing add %v", e.rows)
	}
	// Two products of n, of at most (1 + 2⁻⁷)·‖u‖ together; their sum, its scale, the
	// bound; n + 2 of Score. Twice that is for the second order.
	adversary.Exactly(t, "arithmetic", e.arithmetic, 4*kernel.Gamma(2*n+4)*rerank.Norm(u)*float64(loss.Row.Norm))
}

// splitDown is a query of which its parts leave much.
func splitDown(rng *rand.Rand, packing rerank.Packing) []float32 {
	if packing.Format == rerank.FormatBFloat16 {
		return adversary.SplitDown(rng, packing.Cols)
	}
	return evenly(rng, packing.Cols)
}

// TestScreenHolds wants no bound below the score on rows that err against the
// query, tie, or are huge, tiny, denormal or not finite, by every set of kernels and
// for scales of either sign: and a bound within the terms of the score.
func TestScreenHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, k := range kernel.Sets() {
		for _, packing := range []rerank.Packing{
			{Format: rerank.FormatBFloat16, Cols: 2}, {Format: rerank.FormatBFloat16, Cols: 17}, {Format: rerank.FormatBFloat16, Cols: 64, Block: 16},
			{Format: rerank.FormatInt8, Cols: 2}, {Format: rerank.FormatInt8, Cols: 17}, {Format: rerank.FormatInt8, Cols: 67, Block: 17},
		} {
			n := packing.Cols
			for _, scale := range []float32{1, 20, -20, 1e-3} {
				for name, rows := range map[string][][]float32{
					"rounded down": {}, "split": {}, "mixed": {}, "tiny": {}, "tiny query": {}, "odd": {},
				} {
					u, size := evenly(rng, n), 1.0
					kinds := []adversary.Kind{adversary.Plain, adversary.Tie, adversary.NearTie, adversary.Lone, adversary.Huge}
					switch name {
					case "split":
						u = splitDown(rng, packing)
					case "tiny":
						kinds = []adversary.Kind{adversary.Zero, adversary.Denormal, adversary.Tiny}
						for i := range u {
							u[i] *= 1e-25
						}
					case "tiny query":
						for i := range u {
							u[i] *= 1e-29
						}
					case "odd":
						kinds = append(kinds, adversary.Odd)
					}
					mix := adversary.Mix(rng, 40, n, kinds...)
					for i := range mix.Rows {
						switch name {
						case "rounded down":
							rows = append(rows, adversary.RoundedDown(rng, packing, negated(u, scale), size))
						case "split":
							rows = append(rows, adversary.Parallel(packing, leftOf(negated(u, scale), packing, i%maxParts), size))
						default:
							rows = append(rows, mix.Row(i))
						}
					}
					t.Run(fmt.Sprintf("%s %s %d by %v, %s", k.Name(), packing.Format, n, scale, name), func(t *testing.T) {
						for level := range maxParts {
							screenHolds(t, productOf(k, u, scale), packing, level, rows)
						}
					})
				}
			}
		}
	}
}

// leftOf returns the difference between u and the sum of level + 1 vectors of the packing's format.
func leftOf(u []float32, packing rerank.Packing, level int) []float64 {
	rest := make([]float64, len(u))
	for i, v := range u {
		rest[i] = float64(v)
	}
	for range level + 1 {
		for b := range packing.Blocks() {
			from, to := packing.Values(b)
			takeNearest(rest[from:to], packing.Format)
		}
	}
	return rest
}

// takeNearest subtracts from a block the nearest vector of a format.
func takeNearest(rest []float64, format rerank.Format) {
	values, near := make([]float32, len(rest)), make([]int8, len(rest))
	for i, v := range rest {
		values[i] = float32(v)
	}
	if format == rerank.FormatBFloat16 {
		for i, v := range values {
			rest[i] -= float64(kernel.WidenBFloat16(kernel.RoundBFloat16(v)))
		}
		return
	}
	scale := kernel.Quantize(near, values)
	for i, v := range near {
		rest[i] -= float64(scale) * float64(v)
	}
}

func screenHolds(t *testing.T, p *Product, packing rerank.Packing, level int, rows [][]float32) {
	t.Helper()
	packed, _, loss := packRows(packing, rows...)
	full := rerank.NewMatrix(len(rows), packing.Cols)
	for i, x := range rows {
		copy(full.Row(i), x)
	}
	scores, bounds := make([]float32, len(rows)), make([]float32, len(rows))
	if err := p.Score(scores, rerank.Items{Features: full}); err != nil {
		t.Fatal(err)
	}
	if err := p.Screen(level, bounds, rerank.Items{Packed: packed}, loss, 0); err != nil {
		t.Fatal(err)
	}
	e := p.screenErrors(level, packing, loss)
	slack := 2.1 * math.Abs(float64(p.Scale)) * (e.rows + e.query + e.arithmetic + e.underflow)
	for i, b := range bounds {
		switch finite := scores[i]-scores[i] == 0; {
		case !finite && b < float32(math.Inf(1)):
			t.Fatalf("row %d scores %v and is bounded by %v, want no bound", i, scores[i], b)
		case finite && !(b >= scores[i]):
			t.Fatalf("row %d scores %v, above its bound %v (terms %+v)", i, scores[i], b, e)
		case finite && !(float64(b)-float64(scores[i]) <= slack):
			t.Fatalf("row %d scores %v, its bound is %v: further than %v", i, scores[i], b, slack)
		}
	}
}

// TestBoundTerms takes the terms of Bound one at a time.
func TestBoundTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	const n = 24
	u := normals(rng, n)
	none := make([]float32, n)
	target := rerank.Probe{Target: rerank.TargetScore, Scale: -20, Offset: 0.5, Field: "factor"}
	stored := target
	stored.Field = ""
	learned := rerank.Probe{Scale: 1}
	for name, c := range map[string]struct {
		u       []float32
		norm    float64
		rounded bool
		probes  []rerank.Probe
		lists   []rerank.List
		max     float64
		epsilon float64
	}{
		"kernel":              {u: u, norm: 3, max: 20 * rerank.Norm(u) * 3, epsilon: 20 * kernel.Gamma(n+2) * rerank.Norm(u) * 3},
		"a list's own":        {u: none, norm: 1, probes: []rerank.Probe{target}, lists: []rerank.List{{Scores: []float32{2, -1}, Epsilon: 0.25}}, max: 0, epsilon: 20*0.25 + 20*0.5*0x1p-24},
		"the greatest list's": {u: none, norm: 1, probes: []rerank.Probe{target, target}, lists: []rerank.List{{Scores: []float32{2}, Epsilon: 0.25}, {Scores: []float32{2}, Epsilon: 0.125}}, max: -50, epsilon: 20*0.25 + 20*0.5*0x1p-24},
		"the offset's":        {u: none, norm: 1, probes: []rerank.Probe{target}, lists: []rerank.List{{Scores: []float32{2}}}, max: -50, epsilon: 20 * 0.5 * 0x1p-24},
		"moved, rounded":      {u: none, norm: 1, rounded: true, probes: []rerank.Probe{stored}, lists: []rerank.List{{Scores: []float32{2}, Epsilon: 0.25}}, max: -50, epsilon: 2*20*0.25 + 20*0.5*0x1p-24},
		"not moved":           {u: none, norm: 1, rounded: true, probes: []rerank.Probe{target}, lists: []rerank.List{{Scores: []float32{2}, Epsilon: 0.25}}, max: -50, epsilon: 20*0.25 + 20*0.5*0x1p-24},
		"a learned probe":     {u: none, norm: 1, probes: []rerank.Probe{learned}, lists: []rerank.List{{Scores: []float32{-9}, Epsilon: 0.25}}, max: 0, epsilon: 0},
		"unit vectors":        {u: u, norm: 1, probes: []rerank.Probe{target}, lists: []rerank.List{{Scores: []float32{-1e6}}}, max: 20 * rerank.Norm(u), epsilon: 20*kernel.Gamma(n+2)*rerank.Norm(u) + 20*0.5*0x1p-24},
		"exhausted":           {u: u, norm: 1, probes: []rerank.Probe{learned}, lists: []rerank.List{{Exhausted: true}}, max: math.Inf(-1), epsilon: 20 * kernel.Gamma(n+2) * rerank.Norm(u)},
		"nothing known":       {u: none, max: math.Inf(1), epsilon: 0},
	} {
		p := productOf(kernel.Best(), c.u, -20)
		p.Norm, p.Rounded = c.norm, c.rounded
		got := p.Bound(c.probes, c.lists)
		adversary.Exactly(t, name+": the bound", float64(got.Max), c.max)
		if got.Epsilon > 1e-40 || c.epsilon > 0 {
			adversary.Exactly(t, name+": ε", float64(got.Epsilon), c.epsilon)
		}
	}
}

// TestKernelErrorKnowsTheRows: if the kind knows no norm, ε follows the longest row that was
// scored, alone or in a batch, wherever it lay and however small or large the rows are.
func TestKernelErrorKnowsTheRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	const n = 24
	for _, k := range kernel.Sets() {
		for _, kinds := range [][]adversary.Kind{adversary.Finite(), {adversary.Tiny}, {adversary.Plain, adversary.Odd}} {
			m := adversary.Mix(rng, 300, n, kinds...)
			for i := range m.Row(211) {
				m.Row(211)[i] *= 4
			}
			longest := 0.0
			for r := range m.Rows {
				if norm := rerank.Norm(m.Row(r)); norm-norm == 0 {
					longest = max(longest, norm)
				}
			}
			u, v := normals(rng, n), normals(rng, n)
			alone, first, second := productOf(k, u, 3), productOf(k, u, 3), productOf(k, v, 3)
			scores := make([]float32, 2*m.Rows)
			if err := alone.Score(scores[:m.Rows], rerank.Items{Features: m}); err != nil {
				t.Fatal(err)
			}
			if err := ScoreBatch(scores, []*Product{first, second}, rerank.Items{Features: m}); err != nil {
				t.Fatal(err)
			}
			for name, p := range map[string]*Product{"alone": alone, "batch, first": first, "batch, second": second} {
				want := 3 * kernel.Gamma(n+2) * rerank.Norm(p.U) * longest
				if got := float64(p.Bound(nil, nil).Epsilon); !(got >= want && got < want*(1+1e-4)) {
					t.Errorf("%s, %s: ε %v, want %v or a little more", k.Name(), name, got, want)
				}
			}
		}
	}
}

// TestScoresKeepEpsilon: no score is further from the inner product in float64 than
// Bound says, of rows of every kind, below float32's normal numbers too.
func TestScoresKeepEpsilon(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 2))
	for _, k := range kernel.Sets() {
		for _, kinds := range [][]adversary.Kind{adversary.Finite(), {adversary.Denormal, adversary.Zero}, {adversary.Tiny}} {
			for _, n := range []int{1, 24, 130} {
				m, u := adversary.Mix(rng, 100, n, kinds...), normals(rng, n)
				p, scores := productOf(k, u, 3), make([]float32, m.Rows)
				if err := p.Score(scores, rerank.Items{Features: m}); err != nil {
					t.Fatal(err)
				}
				for i, x := range scores {
					if off := math.Abs(float64(x) - 3*adversary.Dot(u, m.Row(i))); off > float64(p.Bound(nil, nil).Epsilon) {
						t.Fatalf("%s, %d columns: row %d is off by %v, ε is %v", k.Name(), n, i, off, p.Bound(nil, nil).Epsilon)
					}
				}
			}
		}
	}
}

// TestRoundingErrorTerms: rows that err against the query attain RoundingError in
// every format, by the whole row and by its blocks, for scales of either sign.
func TestRoundingErrorTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 2))
	const n, block = 64, 16
	for _, f := range rerank.Formats()[1:] {
		for _, scale := range []float32{20, -20} {
			u := evenly(rng, n)
			whole, blocks := rerank.Packing{Format: f, Cols: n}, rerank.Packing{Format: f, Cols: n, Block: block}
			p := productOf(kernel.Best(), u, scale)
			x := adversary.RoundedDown(rng, whole, u, 1)
			_, back, loss := packRows(whole, x)
			off := 20 * (adversary.Dot(u, x) - adversary.Dot(u, back.Row(0)))
			adversary.Attained(t, string(f)+", whole rows", off, float64(p.RoundingError(loss)))

			p.Spec.Block = block
			x = adversary.RoundedDown(rng, blocks, u, 1)
			_, back, loss = packRows(blocks, x)
			off = 20 * (adversary.Dot(u, x) - adversary.Dot(u, back.Row(0)))
			adversary.Attained(t, string(f)+", blocks", off, float64(p.RoundingError(loss)))
			if off := productOf(kernel.Best(), []float32{0.25}, scale/20).RoundingError(rerank.Loss{Row: rerank.Extent{Lost: math.SmallestNonzeroFloat32}}); off == 0 {
				t.Errorf("%s: rows that lost their last bit count as exact", f)
			}

			// The blocks have their greatest losses in different rows. The sum of the losses is a
			// bound, the greatest loss is not.
			for i := range loss.Blocks {
				loss.Blocks[i].Lost = 1
			}
			loss.Row.Lost = 1
			adversary.Exactly(t, string(f)+", a row of loss 1", float64(p.RoundingError(loss)), 20*rerank.Norm(u))
			loss.Row.Lost = 100
			want := 0.0
			for i := 0; i < n; i += block {
				want += 20 * rerank.Norm(u[i:i+block])
			}
			adversary.Exactly(t, string(f)+", blocks of loss 1", float64(p.RoundingError(loss)), want)
			loss.Block = 2 * block // of another model: its blocks say nothing of these
			adversary.Exactly(t, string(f)+", other blocks", float64(p.RoundingError(loss)), 20*rerank.Norm(u)*100)
		}
	}
}

// TestLargestOfTinyRows: the bound of the norms of rows holds where a square has no
// float32.
func TestLargestOfTinyRows(t *testing.T) {
	for _, size := range []float64{0x1p-40, 0x1p-60, 0x1p-70, 0x1p-74, 0x1p-100, 0x1p60, 0x1p64} {
		m := rerank.NewMatrix(3, 5)
		for i := range m.Data {
			m.Data[i] = float32(size) * float32(1+i%4)
		}
		var want float64
		for r := range m.Rows {
			want = max(want, rerank.Norm(m.Row(r)))
		}
		for _, k := range kernel.Sets() {
			if got := float64(largest(k, m, nil, m.Rows)); got < want || got > want*1.0001 {
				t.Errorf("%s: the norms of rows of about %v are at most %v, says the bound, want %v", k.Name(), size, got, want)
			}
		}
	}
}
