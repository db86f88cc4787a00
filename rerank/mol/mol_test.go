package mol

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// randomShape picks any form that a MoL can have, odd sizes included.
func randomShape(rng *rand.Rand) shape {
	s := shape{
		queryDim: 1 + rng.IntN(20), itemDim: 1 + rng.IntN(20), dim: 1 + rng.IntN(9), pq: 1 + rng.IntN(5), px: 1 + rng.IntN(5),
		queryHidden: rng.IntN(3) * 7, itemHidden: rng.IntN(2) * 5, gateHidden: 1 + rng.IntN(9), combination: GLUSiLU,
		byQuery: true, byItem: true, byPair: true, l2: rng.IntN(3) > 0, normalise: rng.IntN(2) == 0,
		temperature: []float64{0.02, 0.05, 1, 2}[rng.IntN(4)], activation: []Activation{SwiGLU, GeGLU}[rng.IntN(2)],
	}
	if rng.IntN(2) == 0 {
		parts := 1 + rng.IntN(7)
		s.combination, s.byQuery, s.byItem, s.byPair = None, parts&1 > 0, parts&2 > 0, parts&4 > 0
	}
	if s.pq > 1 && rng.IntN(2) == 0 {
		s.users = []int{1 + rng.IntN(10)}
	}
	if rng.IntN(2) == 0 {
		s.dropout = 0.1
	}
	return s
}

func randomQuery(rng *rand.Rand, s *Similarity) rerank.Query {
	return rerank.Query{Vector: normal(rng, 1, s.spec.QueryDim).Data, UserID: int64(rng.Uint64()), HasUserID: true}
}

// tolerance returns the error of the kernels on models of random weights, including encoders: 10⁻⁵
// of the query's largest |logit| over τ.
func tolerance(logits []float64) float64 {
	top := 0.0
	for _, l := range logits {
		top = math.Max(top, math.Abs(l))
	}
	return 1e-5 * top
}

// TestAgainstNaive compares Score, on every set of kernels, with float64 on
// random models.
func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c, set := randomShape(rng).random(rng)
		s, err := New(c, set)
		if err != nil {
			t.Fatal(err)
		}
		base := normal(rng, 1+rng.IntN(40), s.spec.ItemDim)
		q := randomQuery(rng, s)
		q.UserID %= 1 << 50 // math.Mod of the naive code is exact there
		n := naive{c: c, t: set}
		want := make([]float64, base.Rows)
		var logits []float64
		for i := range want {
			terms, _ := n.terms(q, base.Row(i))
			logits, want[i] = append(logits, terms...), n.score(q, base.Row(i))
		}
		for _, k := range kernel.Sets() {
			s := s.WithKernels(k).(*Similarity)
			have := score(t, encode(t, s, q), rerank.Items{Features: features(t, s, base)})
			for i, h := range have {
				if d := math.Abs(float64(h) - want[i]); !(d <= tolerance(logits)) {
					t.Fatalf("%s, seed %d, item %d: score %v, want %v: off by %g, allowed %g; %+v",
						k.Name(), seed, i, h, want[i], d, tolerance(logits), c)
				}
			}
		}
	}
}

// TestRows wants the same bits of an item in any order, place and number, and
// no write outside dst.
func TestRows(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := randomShape(rng).build(t, rng)
		x := features(t, s, normal(rng, 50, s.spec.ItemDim))
		e := encode(t, s, randomQuery(rng, s))
		all := score(t, e, rerank.Items{Features: x})
		rows := make([]int32, rng.IntN(40))
		for i := range rows {
			rows[i] = rng.Int32N(50)
		}
		const guard = 12345
		dst := slices.Repeat([]float32{guard}, len(rows)+8)
		if err := e.Score(dst[4:len(dst)-4], rerank.Items{Features: x, Rows: rows}); err != nil {
			t.Fatal(err)
		}
		for i, v := range dst {
			want := float32(guard)
			if i >= 4 && i < len(dst)-4 {
				want = all[rows[i-4]]
			}
			if v != want {
				t.Fatalf("seed %d: place %d has %v, want %v", seed, i-4, v, want)
			}
		}
	}
}

// TestNotFinite puts every kind of bad number into every place of a feature row
// and of a base vector.
func TestNotFinite(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := randomShape(rng).build(t, rng)
		base := normal(rng, 3, s.spec.ItemDim)
		x := features(t, s, base)
		e := encode(t, s, randomQuery(rng, s))
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for k := range x.Cols {
				broken := rerank.Matrix{Rows: 3, Cols: x.Cols, Data: slices.Clone(x.Data)}
				broken.Row(1)[k] = float32(bad)
				scores := score(t, e, rerank.Items{Features: broken})
				if v := scores[1]; v-v == 0 {
					t.Fatalf("seed %d: feature %d is %v and the score %v", seed, k, bad, v)
				}
				if v := scores[0] + scores[2]; v-v != 0 {
					t.Fatalf("seed %d: feature %d of another item makes the score %v", seed, k, v)
				}
			}
		}
		for k := range base.Cols {
			broken := rerank.Matrix{Rows: 3, Cols: base.Cols, Data: slices.Clone(base.Data)}
			broken.Row(1)[k] = float32(math.NaN())
			if v := score(t, e, rerank.Items{Features: features(t, s, broken)})[1]; v-v == 0 {
				t.Fatalf("seed %d: base vector %d is NaN and the score %v", seed, k, v)
			}
		}
	}
}

func strategyPlans() []rerank.Plan {
	var plans []rerank.Plan
	for _, derived := range []bool{false, true} {
		for _, strategy := range []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined} {
			for _, weights := range []rerank.Weights{"", rerank.UniformWeights, rerank.GateWeights} {
				plans = append(plans, rerank.Plan{Strategy: strategy, AverageDepth: 7, Weights: weights, Derived: derived})
			}
		}
	}
	return plans
}

// TestBound searches random collections exactly with the probes of every
// strategy: no item in none of the lists may score above U by more than ε, and a
// list of φ itself must have φ's order.
func TestBound(t *testing.T) {
	closed := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 4))
		c, set := randomShape(rng).random(rng)
		mean := normal(rng, 1, c.ItemDim).Data
		set["probe.mean_item"] = tensor.Tensor{Shape: []int{c.ItemDim}, Data: mean}
		s, err := New(c, set)
		if err != nil {
			t.Fatal(err)
		}
		base := normal(rng, 60, s.spec.ItemDim)
		if c.Normalise {
			base = unitRows(base, make([]float32, len(base.Data)))
		}
		store := newCollection(t, s, base, nil)
		e := encode(t, s, randomQuery(rng, s))
		scores := score(t, e, rerank.Items{Features: store.features})
		for _, plan := range strategyPlans() {
			plan.Depth = []int{1, 5, 30, 61}[rng.IntN(4)]
			probes, err := e.Probes(plan)
			if errors.Is(err, rerank.ErrStrategy) && !plan.Derived && c.ItemHidden > 0 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			lists := store.search(t, probes)
			bound := e.Bound(probes, lists)
			if checkBound(t, seed, bound, scores, union(lists)) {
				closed++
			}
			checkTargets(t, s, e, probes, lists, store, scores)
		}
	}
	if closed == 0 {
		t.Error("no bound was finite: nothing was tested")
	}
}

func checkBound(t *testing.T, seed uint64, bound rerank.Bound, scores []float32, seen []int64) bool {
	t.Helper()
	if math.IsNaN(float64(bound.Max)) || !(bound.Epsilon >= 0) || math.IsInf(float64(bound.Epsilon), 0) {
		t.Fatalf("seed %d: bound %+v", seed, bound)
	}
	for i, v := range scores {
		if !slices.Contains(seen, int64(i)) && v > bound.Max+bound.Epsilon {
			t.Fatalf("seed %d: item %d in no list scores %v, above U = %v by more than %v", seed, i, v, bound.Max, bound.Epsilon)
		}
	}
	return !math.IsInf(float64(bound.Max), 1)
}

// checkTargets wants each list's scores to be what its probe says they are.
func checkTargets(t *testing.T, s *Similarity, e rerank.Encoded, probes []rerank.Probe, lists []rerank.List, store *collection, scores []float32) {
	t.Helper()
	epsilon := float64(e.Bound(probes, lists).Epsilon)
	explained, err := e.(rerank.Explainer).Explain(rerank.Items{Features: store.features})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range probes {
		for r, id := range lists[i].IDs {
			n, _ := id.Uint64()
			listed := float64(lists[i].Scores[r]) + float64(p.Offset)
			switch p.Target {
			case rerank.TargetScore:
				listed *= float64(p.Scale)
				if d := math.Abs(listed - float64(scores[n])); d > epsilon {
					t.Fatalf("item %d scores %v, in the list %v: off by %g, ε is %g", n, scores[n], listed, d, epsilon)
				}
			case rerank.TargetLogit:
				logit := float64(explained[n].Terms[p.Pair].Logit)
				if d := math.Abs(listed/s.c.Temperature - logit); d > epsilon {
					t.Fatalf("item %d has logit %v, in the list %v: off by %g, ε is %g", n, logit, listed/s.c.Temperature, d, epsilon)
				}
			case rerank.TargetNone:
			}
		}
	}
}

// TestQueryOnlyIsOneProbe: gates of the query alone give the exact top K by one list.
func TestQueryOnlyIsOneProbe(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, l2 := range []bool{true, false} {
		shape := queryGate(3, 2, 5, 8)
		shape.queryDim, shape.itemDim, shape.l2 = 11, 12, l2
		s := shape.build(t, rng)
		if !s.Spec().SingleInnerProduct {
			t.Fatal("gates of the query alone are one inner product")
		}
		base := normal(rng, 300, 12)
		base = unitRows(base, make([]float32, len(base.Data)))
		store := newCollection(t, s, base, nil)
		e := encode(t, s, randomQuery(rng, s))
		want, _ := store.rank(t, e, union([]rerank.List{{IDs: allIDs(300)}}), 10)
		for _, derived := range []bool{true, false} {
			probes, err := e.Probes(rerank.Plan{Strategy: rerank.PerEmbedding, Depth: 10, Derived: derived})
			if err != nil || len(probes) != 1 {
				t.Fatalf("%d probes, %v; want one", len(probes), err)
			}
			if exact := derived || !l2; (probes[0].Target == rerank.TargetScore) != exact {
				t.Errorf("l2 %t, derived %t: target is %v", l2, derived, probes[0].Target)
			} else if !exact {
				continue
			}
			lists := store.search(t, probes)
			if have, _ := store.rank(t, e, union(lists), 10); !slices.Equal(have, want) {
				t.Errorf("l2 %t, derived %t: top 10 is %v, want %v", l2, derived, have, want)
			}
		}
	}
}

func allIDs(n int) (ids []rerank.ID) {
	for i := range n {
		ids = append(ids, rerank.UintID(uint64(i)))
	}
	return ids
}

// TestDerivedFeatures puts feature rows together again from their fields.
func TestDerivedFeatures(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := randomShape(rng).build(t, rng)
		store := newCollection(t, s, normal(rng, 7, s.spec.ItemDim), nil)
		var fields []rerank.Matrix
		for _, f := range s.Fields() {
			if f.Feature {
				fields = append(fields, store.derived[f.Name])
			}
		}
		again := rerank.NewMatrix(7, s.spec.Features)
		if err := s.Features(again, fields); err != nil {
			t.Fatal(err)
		}
		near(t, "features", again.Data, store.features.Data, 0)
		if err := s.Features(again, fields[1:]); !errors.Is(err, rerank.ErrItems) {
			t.Errorf("a field too few: %v", err)
		}
		if err := s.Derive(again, "absent", rerank.Items{Features: store.features}); !errors.Is(err, rerank.ErrItems) {
			t.Errorf("an unknown field: %v", err)
		}
	}
}

// TestComponentsGiven: the stored vector is the components, so every probe has
// an exact pull-back.
func TestComponentsGiven(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	shape := fullGate(2, 3, 4, 5)
	shape.combination, shape.byQuery, shape.byItem, shape.normalise = None, false, false, false
	c, set := shape.random(rng)
	c.ComponentsGiven = true
	maps.DeleteFunc(set, func(name string, _ tensor.Tensor) bool { return !strings.HasPrefix(name, gatePair) })
	s, err := New(c, set)
	if err != nil {
		t.Fatal(err)
	}
	store := newCollection(t, s, normal(rng, 40, 12), nil)
	e := encode(t, s, rerank.Query{Vector: normal(rng, 1, 8).Data})
	scores := score(t, e, rerank.Items{Features: store.features})
	for _, derived := range []bool{true, false} {
		probes, err := e.Probes(rerank.Plan{Strategy: rerank.PerEmbedding, Depth: 3, Derived: derived})
		if err != nil {
			t.Fatal(err)
		}
		lists := store.search(t, probes)
		checkBound(t, 0, e.Bound(probes, lists), scores, union(lists))
		checkTargets(t, s, e, probes, lists, store, scores)
	}
}

// FuzzNew builds models of any small shape and scores with them.
func FuzzNew(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(2))
	f.Add(uint64(2), uint8(0), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, rows, damage uint8) {
		rng := rand.New(rand.NewPCG(seed, 6))
		c, set := randomShape(rng).random(rng)
		if damage > 128 { // one tensor of another shape, or a number of the configuration
			names := slices.Sorted(maps.Keys(set))
			name := names[rng.IntN(len(names))]
			v := set[name]
			v.Shape = slices.Clone(v.Shape)
			v.Shape[rng.IntN(len(v.Shape))] = rng.IntN(40) - 1
			set[name] = v
		}
		s, err := New(c, set)
		if err != nil {
			if !errors.Is(err, rerank.ErrModel) {
				t.Fatal(err)
			}
			return
		}
		e := encode(t, s, randomQuery(rng, s))
		x := features(t, s, normal(rng, int(rows), s.spec.ItemDim))
		for i, v := range score(t, e, rerank.Items{Features: x}) {
			if v-v != 0 || c.L2Norm && float64(v) > 1.0001/c.Temperature {
				t.Fatalf("item %d scores %v", i, v)
			}
		}
	})
}
