package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestAverageBound: if items have one component, a list of the averaged probe bounds φ of the
// items that it lacks, alone and beside the lists of the pairs, and the bound is never below
// the best of those items. Items lie where the bound is attained, too.
func TestAverageBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	sh := fullGate(3, 1, 6, 8)
	sh.queryDim, sh.itemDim = 10, 10
	s := sh.build(t, rng)
	tighter := 0
	for range 20 {
		e := encode(t, s, rerank.Query{Vector: normal(rng, 1, 10).Data}).(*encoded)
		features := rerank.NewMatrix(400, s.spec.Features)
		if err := s.EncodeItems(features, normal(rng, 400, 10)); err != nil {
			t.Fatal(err)
		}
		items := rerank.Items{Features: features}
		for _, strategy := range []rerank.Strategy{rerank.Average, rerank.PerEmbedding, rerank.Combined} {
			for _, depth := range []int{3, 40, 200} {
				probes, err := e.Probes(rerank.Plan{Strategy: strategy, Depth: depth, AverageDepth: depth, Derived: true})
				if err != nil {
					t.Fatal(err)
				}
				var lists []rerank.List
				listed := map[int]bool{}
				for _, p := range probes {
					top := rerank.NewTopK(depth)
					for i := range features.Rows {
						top.Push(scored(i, float32(kernel.DotWide(p.Vector, features.Row(i)[:s.c.Dim]))))
					}
					l := rerank.List{Exact: true, Epsilon: 1e-6}
					for _, row := range top.Sorted() {
						l.Scores, listed[row.Index] = append(l.Scores, row.Score), true
					}
					lists = append(lists, l)
				}
				best := math.Inf(-1)
				for i, x := range score(t, e, items) {
					if !listed[i] {
						best = max(best, float64(x))
					}
				}
				bound := e.Bound(probes, lists)
				if float64(bound.Max)+float64(bound.Epsilon) < best {
					t.Errorf("%s %d: an item in no list scores %v, above the bound %v", strategy, depth, best, bound.Max)
				}
				if strategy == rerank.Average && bound.Max < s.c.maxScore() {
					tighter++
				}
				if strategy == rerank.Combined && bound.Max > e.Bound(probes[:3], lists[:3]).Max {
					t.Errorf("depth %d: the averaged list loosens the bound", depth)
				}
			}
		}
		checkOtherLimits(t, rng, e)
	}
	if tighter < 20 {
		t.Errorf("the averaged list tightens the bound in %d of 60 cases", tighter)
	}
}

// checkOtherLimits wants the limits to be the largest inner products at some thresholds, to which the database's
// rounding is added.
func checkOtherLimits(t *testing.T, rng *rand.Rand, e *encoded) {
	t.Helper()
	probe := rerank.Probe{Field: FieldMean, Vector: normal(rng, 1, e.c.Dim).Data}
	length := rerank.Norm(probe.Vector)
	for _, s := range []float64{-1.5, -.9, -.2, 0, .3, .99} {
		const off = 0.1
		limits := e.otherLimits(probe, rerank.List{Scores: []float32{float32((s - off) * length)}, Epsilon: float32(off * length)})
		for i, limit := range limits {
			f := e.components.Row(i)
			c := kernel.DotWide(f, probe.Vector) / length
			g := make([]float64, len(f)) // the best unit vector: f itself, or on the threshold, towards f
			var reached float64
			for k := range g {
				g[k] = float64(f[k])
				if s < c {
					at := max(s, -1)
					g[k] = at*float64(probe.Vector[k])/length + (float64(f[k])-c*float64(probe.Vector[k])/length)*math.Sqrt((1-at*at)/(1-c*c))
				}
				reached += g[k] * float64(f[k])
			}
			if reached > limit || limit > reached+1e-4 {
				t.Errorf("threshold %v, component %d: %v, a unit vector reaches %v", s, i, limit, reached)
			}
		}
	}
}
