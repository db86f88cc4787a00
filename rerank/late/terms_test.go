package late_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/late"
)

// unitNorm is the greatest norm of a normalised row in float32.
const unitNorm = 1 + 1e-6

// startsOf returns the starts of items with the given numbers of rows.
func startsOf(sizes ...int32) []int32 {
	starts := []int32{0}
	for i, n := range sizes {
		starts = append(starts, starts[i]+n)
	}
	return starts
}

// TestScoresKeepEpsilon: on every set of kernels, no score is further from its definition than Bound
// says: rows tie, differ in the last bit, are huge, tiny or subnormal. The item in the middle has more
// rows than one block of the kernel.
func TestScoresKeepEpsilon(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 2))
	starts := startsOf(1, 2, 0, 300, 7, 40)
	for _, k := range kernel.Sets() {
		for _, kinds := range [][]adversary.Kind{adversary.Finite(), {adversary.Denormal, adversary.Zero}, {adversary.Tiny}, {adversary.Huge, adversary.Plain}} {
			for _, n := range []int{1, 24, 130} {
				s := build(t, late.Config{Dim: n}).WithKernels(k)
				m, queries := adversary.Mix(rng, 350, n, kinds...), random(rng, 9, n)
				for i := range queries.Row(0) { // one vector far longer than the others
					queries.Row(0)[i] *= 1e4
				}
				e, items := encode(t, s, queries), rerank.Items{Features: m, Starts: starts}
				scores := make([]float32, len(starts)-1)
				if err := e.Score(scores, items); err != nil {
					t.Fatal(err)
				}
				epsilon := float64(e.Bound(nil, nil).Epsilon)
				for i, x := range scores {
					want, _ := maxSim(wide(queries, false), wide(m.Slice(int(starts[i]), int(starts[i+1])), false))
					if off := math.Abs(float64(x) - want); !(off <= epsilon) && float64(x) != want {
						t.Errorf("%s, %v, %d columns: item %d scores %v, want %v within %v", k.Name(), kinds, n, i, x, want, epsilon)
					}
				}
			}
		}
	}
}

// TestBoundTerms compares each term of Bound with its formula: random data never attain γ, so half of
// a term would pass every other test.
func TestBoundTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 2))
	const n, count, sum = 24, 7, 0x1.01p-24 // sum: one rounding of the sum to float32
	queries := random(rng, count, n)
	b := encode(t, build(t, late.Config{Dim: n, Normalise: true}), queries).Bound(nil, nil)
	adversary.Exactly(t, "unit vectors: ε", float64(b.Epsilon), count*unitNorm*(kernel.Gamma(n+2)+sum))
	adversary.Exactly(t, "unit vectors: the bound", float64(b.Max), count*unitNorm)

	var norms float64
	for i := range count {
		norms += rerank.Norm(queries.Row(i))
	}
	rows := random(rng, 300, n)
	for i := range rows.Row(211) {
		rows.Row(211)[i] *= 100
	}
	items := rerank.Items{Features: rows, Starts: startsOf(1, 150, 100, 49)}
	s := build(t, late.Config{Dim: n})
	alone, first, second := encode(t, s, queries), encode(t, s, queries), encode(t, s, queries)
	scores := make([]float32, 2*items.Len())
	if err := alone.Score(scores[:items.Len()], items); err != nil {
		t.Fatal(err)
	}
	if err := s.ScoreBatch(scores, []rerank.Encoded{first, second}, items); err != nil {
		t.Fatal(err)
	}
	want := norms * rerank.Norm(rows.Row(211)) * (kernel.Gamma(n+2) + sum)
	for name, e := range map[string]rerank.Encoded{"alone": alone, "batch, first": first, "batch, second": second} {
		if got := float64(e.Bound(nil, nil).Epsilon); !(got >= want && got < want*(1+1e-4)) {
			t.Errorf("%s: ε %v, want %v or a little more", name, got, want)
		}
	}
}

// TestRoundingErrorTerms: rows that err against every query vector attain RoundingError in every
// format.
func TestRoundingErrorTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 2))
	const n = 64
	for _, f := range rerank.Formats()[1:] {
		u, queries := rerank.NewMatrix(1, n).Data, rerank.NewMatrix(5, n)
		for i := range u {
			u[i] = float32(math.Copysign(1+rng.Float64()/8, rng.Float64()-0.5))
		}
		for i := range queries.Rows { // parallel, of unequal lengths
			for c, v := range u {
				queries.Row(i)[c] = v * float32(i+1)
			}
		}
		packing := rerank.Packing{Format: f, Cols: n}
		row, back, words := adversary.RoundedDown(rng, packing, u, 1), make([]float32, n), make([]uint32, packing.RowWords())
		packing.Pack(words, row)
		packing.Unpack(back, words, 1)
		loss := rerank.NewLoss(packing)
		loss.Add(packing, row, back)
		e := encode(t, build(t, late.Config{Dim: n}), queries)
		off := (1 + 2 + 3 + 4 + 5) * (adversary.Dot(u, row) - adversary.Dot(u, back))
		adversary.Attained(t, string(f), off, float64(rerank.EncodedAbilitiesOf(e).Round.RoundingError(loss)))
	}
}

// TestMeetsTheBest: among rows that float32 cannot tell apart, ScoreWide and Explain find the row that
// is the best in float64.
func TestMeetsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(24, 2))
	for _, n := range []int{24, 130} {
		s := build(t, late.Config{Dim: n})
		rows, queries := rerank.NewMatrix(200, n), random(rng, 16, n)
		first := random(rng, 1, n).Data
		for r := range rows.Rows {
			copy(rows.Row(r), first)
			for range 3 {
				at := rng.IntN(n)
				rows.Row(r)[at] = math.Nextafter32(rows.Row(r)[at], float32(math.Inf(1-2*rng.IntN(2))))
			}
		}
		for c, v := range first { // the longest row is not the last one
			rows.Row(100)[c] = -1.01 * v
		}
		e, items := encode(t, s, queries), rerank.Items{Features: rows, Starts: startsOf(200)}
		want, met := maxSim(wide(queries, false), wide(rows, false))
		got, err := rerank.EncodedAbilitiesOf(e).Explain.Explain(items)
		if err != nil {
			t.Fatal(err)
		}
		for q, term := range got[0].Terms {
			if term.ItemComponent != met[q] {
				t.Errorf("%d columns: vector %d of the query met %d, want %d", n, q, term.ItemComponent, met[q])
			}
		}
		score := make([]float64, 1)
		epsilon, err := e.ScoreWide(score, items)
		if err != nil {
			t.Fatal(err)
		}
		if !(math.Abs(score[0]-want) <= 1e-12*math.Abs(want)) {
			t.Errorf("%d columns: %v in float64, want %v", n, score[0], want)
		}
		var norms, longest float64
		for i := range queries.Rows {
			norms += rerank.Norm(queries.Row(i))
		}
		for r := range rows.Rows {
			longest = max(longest, rerank.Norm(rows.Row(r)))
		}
		const encoding = 4 * 0x1p-24 // four roundings of each element
		adversary.Exactly(t, "ε in float64", epsilon, encoding*norms*longest)
	}
}
