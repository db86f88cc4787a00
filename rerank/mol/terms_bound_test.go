package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
)

// TestRoundingErrorAttained: |φ̂ − φ| of gates that move, and of logits that do, is
// nearly what RoundingError says where two opposite logits have equal gates.
func TestRoundingErrorAttained(t *testing.T) {
	const dim, temperature = 4, 0.5
	for _, move := range []float64{1e-3, 1e-1} {
		s := given(1, 2, dim, temperature)
		s.byItem.second.w = aligned(2, 2)
		s.spec.Features += 2
		e := &encoded{s: s, c: &s.c, components: rerank.Matrix{Rows: 1, Cols: dim, Data: []float32{1, 0, 0, 0}}, gate: []float32{0, 0}}
		// g_1 = f and g_2 = −f: logits ±2. Their gates move by ±move.
		loss := rerank.NewLoss(rerank.Packing{Format: rerank.FormatFloat16, Cols: 2*dim + 2, Block: dim})
		loss.Row = rerank.Extent{Lost: float32(move), Norm: 2}
		loss.Blocks[0].Norm, loss.Blocks[1].Norm, loss.Blocks[2].Lost = 1, 1, float32(move)
		phi := (math.Exp(move) - math.Exp(-move)) / (math.Exp(move) + math.Exp(-move)) / temperature
		adversary.Attained(t, "gates", phi, float64(e.RoundingError(loss)))

		// The components move along f instead.
		loss.Blocks[0].Lost, loss.Blocks[1].Lost, loss.Blocks[2].Lost = float32(move), float32(move), 0
		adversary.Attained(t, "logits", move/temperature, float64(e.RoundingError(loss)))
		if loss.Block = dim + 1; float64(e.RoundingError(loss)) < phi {
			t.Errorf("with blocks of another model the bound is %v, want %v at least", e.RoundingError(loss), phi)
		}
		// Gates by the logits' network: their slope is attained at one logit.
		s.byItem = mlp{}
		s.slopes = []float64{10, 1}
		loss.Block = dim
		moved := math.Sqrt2 * move / temperature // of both logits
		want := move/temperature + math.Tanh(10*moved/2)*2/temperature*(1+move)
		if have := float64(e.RoundingError(loss)); !(math.Abs(have-min(want, 2/temperature)) <= 0.15*want) {
			t.Errorf("gates by logits: %v, the formula gives %v", have, want)
		}
	}
}

// TestGatesMove: γ by the formula, for both combinations and gates of either sign.
func TestGatesMove(t *testing.T) {
	s := given(1, 2, 4, 1)
	s.byItem.second.w, s.slopes = aligned(2, 2), []float64{0.5, 0.25}
	e := &encoded{s: s, c: &s.c, gate: []float32{-3, 2}}
	loss := rerank.NewLoss(rerank.Packing{Format: rerank.FormatFloat16, Cols: 10, Block: 4})
	loss.Blocks[2].Lost = 0.125
	adversary.Exactly(t, "added", e.gateShift(loss, 0.5), 0.125+0.5*0.5)
	s.c.Combination = GLUSiLU
	adversary.Exactly(t, "multiplied", e.gateShift(loss, 0.5), 1.1*(3*0.125+0.5*0.5))
}

// TestNormOfUnitComponents: rounding can make a component longer than 1, by as much as it loses.
func TestNormOfUnitComponents(t *testing.T) {
	s := given(1, 2, 4, 1)
	loss := rerank.NewLoss(rerank.Packing{Format: rerank.FormatInt8, Cols: 8, Block: 4})
	loss.Row.Norm, loss.Blocks[1] = 5, rerank.Extent{Lost: 0.25, Norm: 3}
	adversary.Exactly(t, "components of any length", s.c.norm(loss, 1), 3)
	s.c.L2Norm = true
	adversary.Exactly(t, "unit components", s.c.norm(loss, 1), 1+1e-5+0.25)

	// Of a component with one large number, int8 rounds all others up, from 4.51 steps to 5.
	const dim, steps = 1024, 4.51
	s = given(1, 1, dim, 1)
	s.c.L2Norm = true
	row := equal(dim, steps)
	row[0] = 127
	rerank.Normalise(row)
	packed, _ := packRows(t, rerank.Packing{Format: rerank.FormatInt8, Cols: dim, Block: dim}, rerank.Matrix{Rows: 1, Cols: dim, Data: row})
	back := make([]float32, dim)
	packed.Row32(back, 0)
	var rounded seen
	rounded.rounded.Store(true)
	if have, bound := rerank.Norm(back), rounded.extents(&s.c).component; have < 1.06 || have > bound {
		t.Errorf("a unit component has norm %v in int8, the bound is %v; want more than 1.06, within the bound", have, bound)
	}
}

// TestSlopes: each output of the gates' network moves by nearly its slope where its
// input moves along the worst direction, whatever the signs of the weights; and no
// more in random directions.
func TestSlopes(t *testing.T) {
	const step = 1e-5
	rng := rand.New(rand.NewPCG(3, 4))
	first, second := aligned(hiddenUnits, inputs), aligned(outputs, hiddenUnits)
	for h := range hiddenUnits { // signs that cancel where they are only added
		for i := range inputs {
			first.Row(h)[i] *= float32(1 - 2*(h%2))
		}
		for o := range outputs {
			second.Row(o)[h] *= float32(1 - 2*(h%2))
		}
	}
	m := &mlp{first: linear{w: first}, second: linear{w: second}}
	output := func(l []float64) []float64 {
		h := times64(first, l)
		for i := range h {
			h[i] = silu(h[i] + steepest)
		}
		return times64(second, h)
	}
	slopes, at := m.outputSlopes(), output(make([]float64, inputs))
	for o, x := range output(times(equal(inputs, 1), step/math.Sqrt(inputs))) {
		adversary.Attained(t, "slope", math.Abs(x-at[o])/step, slopes[o])
	}
	linearOnly := &mlp{second: linear{w: roundedDown(rng, 5, 7)}}
	for o, slope := range linearOnly.outputSlopes() {
		adversary.Exactly(t, "slope of one layer", slope, rerank.Norm(linearOnly.second.w.Row(o)))
	}
}

// TestBoundTerms takes the terms of Bound one at a time.
func TestBoundTerms(t *testing.T) {
	const tau = 0.05
	list := func(epsilon float32, scores ...float32) rerank.List {
		return rerank.List{Scores: scores, Epsilon: epsilon}
	}
	probe := func(pair int, field string, offset float32) rerank.Probe {
		return rerank.Probe{Target: rerank.TargetLogit, Pair: pair, Field: field, Offset: offset, Scale: 1}
	}
	c0, c1, stored := probe(0, "c0", 0), probe(1, "c1", 0), probe(1, "", 0)
	for name, c := range map[string]struct {
		unit            bool
		probes          []rerank.Probe
		lists           []rerank.List
		max, listsError float64
	}{
		"every pair has a list":      {probes: []rerank.Probe{c0, c1}, lists: []rerank.List{list(0, 3, 2), list(0, 9, 1)}, max: 2 / tau},
		"the later pair's is higher": {probes: []rerank.Probe{c0, c1}, lists: []rerank.List{list(0, 3, 1), list(0, 9, 2)}, max: 2 / tau},
		"two lists of a pair":        {probes: []rerank.Probe{c0, c1, c1}, lists: []rerank.List{list(0, 1), list(0, 3), list(0, 2)}, max: 2 / tau},
		"a pair without a list":      {probes: []rerank.Probe{c0}, lists: []rerank.List{list(0, 3, 2)}, max: math.Inf(1)},
		"unit components":            {unit: true, probes: []rerank.Probe{c0}, lists: []rerank.List{list(0, 3, 2)}, max: 1 / tau},
		"a list's rounding":          {probes: []rerank.Probe{c0, c1}, lists: []rerank.List{list(0.5, 1), list(0.25, 1)}, max: 1 / tau, listsError: 0.5 / tau},
		"a pull-back's rounding":     {probes: []rerank.Probe{c0, stored}, lists: []rerank.List{list(0.5, 1), list(0.5, 1)}, max: 1 / tau, listsError: 2 * 0.5 / tau},
		"an offset":                  {probes: []rerank.Probe{c0, probe(1, "c1", 4)}, lists: []rerank.List{list(0, 1), list(0, 1)}, max: 5 / tau, listsError: 4 * 0x1p-24 / tau},
		"a negative offset":          {probes: []rerank.Probe{probe(0, "c0", -4), probe(1, "c1", -4)}, lists: []rerank.List{list(0, 1), list(0, 1)}, max: -3 / tau, listsError: 4 * 0x1p-24 / tau},
		"exhausted":                  {probes: []rerank.Probe{c0}, lists: []rerank.List{{Scores: []float32{1}, Exhausted: true}}, max: math.Inf(-1)},
		"exhausted and empty":        {probes: []rerank.Probe{c0}, lists: []rerank.List{{Exhausted: true}}, max: math.Inf(-1)},
		"a list that only suggests":  {probes: []rerank.Probe{c0, {}}, lists: []rerank.List{list(0, 1), list(9, 1)}, max: math.Inf(1)},
	} {
		s := given(1, 2, 4, tau)
		s.c.L2Norm = c.unit
		s.spec.MaxScore = float32(math.Inf(1))
		if c.unit {
			s.spec.MaxScore = s.c.maxScore()
		}
		e := &encoded{s: s, c: &s.c}
		got := e.Bound(c.probes, c.lists)
		adversary.Exactly(t, name+": the bound", float64(got.Max), c.max)
		adversary.Exactly(t, name+": the lists' rounding", float64(got.Lists), c.listsError)
		adversary.Exactly(t, name+": ε", float64(got.Epsilon), c.listsError+e.scoreError())
	}
}
