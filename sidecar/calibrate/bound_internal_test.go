package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestLeastShare holds the bound to values in closed form and to the binomial
// tail, summed term by term.
func TestLeastShare(t *testing.T) {
	for _, c := range []struct {
		kept, n     int
		alpha, want float64
	}{
		{59, 59, .05, math.Pow(.05, 1./59)}, // α^(1/n) without a failure
		{1, 1, .05, .05},
		{1, 10, .05, 1 - math.Pow(.95, .1)}, // 1 − (1−α)^(1/n) with one success
		{0, 10, .05, 0},
	} {
		if got := LeastShare(c.kept, c.n, c.alpha); !(math.Abs(got-c.want) <= 1e-9) {
			t.Errorf("%d of %d at %v: %v, want %v", c.kept, c.n, c.alpha, got, c.want)
		}
	}
	for _, n := range []int{1, 7, 59, 400, 3000} {
		for kept := 1; kept <= n; kept += max(1, n/17) {
			for _, alpha := range []float64{.05, .001} {
				least := LeastShare(kept, n, alpha)
				if tail := binomialTail(kept, n, least); !(math.Abs(tail-alpha) <= 1e-6) {
					t.Fatalf("%d of %d: P(X ≥ kept) is %v at the bound %v, want %v", kept, n, tail, least, alpha)
				}
				for _, share := range []float64{least - 1e-6, least + 1e-6} {
					if share <= 0 || share >= 1 {
						continue
					}
					if got := (Promise{Share: share, Alpha: alpha}).isShownBy(kept, n); got != (share < least) {
						t.Fatalf("%d of %d, bound %v: share %v is shown: %t", kept, n, least, share, got)
					}
				}
			}
		}
	}
}

// binomialTail returns P(X ≥ k) for n draws with probability p.
func binomialTail(k, n int, p float64) float64 {
	var sum float64
	for i := k; i <= n; i++ {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(i + 1))
		c, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(a - b - c + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

// TestNothingShowsNoPromise: where no query reached the recall, there is no bound to compute.
func TestNothingShowsNoPromise(t *testing.T) {
	if (Promise{Share: 0.9, Alpha: 0.05}).isShownBy(0, 100) {
		t.Error("a promise that no query kept is shown")
	}
}

func TestLeastQueries(t *testing.T) {
	for _, c := range []struct {
		share, alpha float64
		want         int
	}{{.95, .05, 59}, {.9, .05, 29}, {.99, .01, 459}, {.5, .5, 1}} {
		if got := (Promise{Share: c.share, Alpha: c.alpha}).LeastQueries(); got != c.want {
			t.Errorf("share %v, α %v: %d queries, want %d", c.share, c.alpha, got, c.want)
		}
	}
}

// TestLeastMean: the bound exceeds the mean in at most a share α of cases, and is not trivially
// low.
func TestLeastMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	above := 0
	for range 2000 {
		values := make([]float64, 500)
		for i := range values {
			values[i] = float64(10-min(10, int(rng.ExpFloat64()))) / 10
		}
		least := leastMean(values, .05)
		if least > .9418 { // 1 − Σ P(⌊X⌋ ≥ i)/10 of an exponential X
			above++
		}
		if least < .88 {
			t.Fatalf("bound %v", least)
		}
	}
	if above > 100 {
		t.Errorf("above the mean %d times of 2000", above)
	}
	// By the formula, with l = log(2/α): two values of 0 and 1, and a hundred of 1.
	l := math.Log(40)
	if got, want := leastMean(slices.Repeat([]float64{1}, 100), .05), 1-7*l/(3*99); !(math.Abs(got-want) <= 1e-12) {
		t.Errorf("of a hundred perfect answers the bound is %v, want %v", got, want)
	}
	values := slices.Concat(slices.Repeat([]float64{1}, 500), slices.Repeat([]float64{0}, 500))
	if got, want := leastMean(values, .05), .5-math.Sqrt(2*(250./999)*l/1000)-7*l/(3*999); !(math.Abs(got-want) <= 1e-12) {
		t.Errorf("of a thousand answers, half of them wrong, the bound is %v, want %v", got, want)
	}
}

// TestRecall: an item that ties with the K-th may take the place of another tie, and no other
// place.
func TestRecall(t *testing.T) {
	list := func(scores ...float32) (out []rerank.Scored) {
		for _, s := range scores {
			out = append(out, rerank.Scored{ID: rerank.UintID(uint64(s*100) % 1000), Score: s})
		}
		return out
	}
	exact := exactAnswer{top: []rerank.Scored{
		{ID: rerank.UintID(1), Score: 9}, {ID: rerank.UintID(2), Score: 5}, {ID: rerank.UintID(3), Score: 3}, {ID: rerank.UintID(4), Score: 3},
	}, epsilon: .01}
	hits := func(ids ...uint64) (out []rerank.Scored) {
		scores := map[uint64]float32{1: 9, 2: 5, 3: 3, 4: 3, 5: 2.985, 6: 2.97}
		for _, id := range ids {
			out = append(out, rerank.Scored{ID: rerank.UintID(id), Score: scores[id]})
		}
		return out
	}
	for _, c := range []struct {
		answer []rerank.Scored
		want   float64
	}{
		{hits(1, 2, 3, 4), 1},
		{hits(1, 2, 3, 5), 1},    // 5 is within 2ε of the K-th, not within ε
		{hits(1, 2, 3, 6), .75},  // 6 is not
		{hits(1, 3, 4, 5), .75},  // a third tie takes no place of 2
		{hits(3, 4, 5), .5},      // two places of ties, whoever fills them
		{hits(1), .25}, {nil, 0}, // short answers
	} {
		if got := exact.recall(c.answer); got != c.want {
			t.Errorf("%v: recall %v, want %v", c.answer, got, c.want)
		}
	}
	if got := (exactAnswer{}).recall(list(1)); got != 1 {
		t.Errorf("of nothing to find: %v", got)
	}
}

// depthsNeeded is a population of queries: the depth that each query needs to reach the recall.
type depthsNeeded []int

func (p depthsNeeded) share(depth int) float64 {
	n := 0
	for _, d := range p {
		if d <= depth {
			n++
		}
	}
	return float64(n) / float64(len(p))
}

// TestPromiseIsBroken: of a thousand calibrations with new queries and a rule chosen among twelve,
// at most a share α makes a false promise.
func TestPromiseIsBroken(t *testing.T) {
	const draws, alpha = 1000, .05
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		name string
		need func() int
	}{
		{"steep", func() int { return int(20 * math.Exp(rng.NormFloat64()/2)) }},
		{"long tail", func() int { return int(5 / math.Pow(rng.Float64(), 1.2)) }},
		// At depth 100 a little less than the promised share is reached: the worst case.
		{"just below", func() int {
			if rng.Float64() < .949 {
				return 10
			}
			return 400
		}},
	} {
		population := make(depthsNeeded, 20000)
		for i := range population {
			population[i] = c.need()
		}
		broken, made := 0, 0
		for range draws {
			promise, depths := Promise{K: 10, Recall: .9, Share: .95, Alpha: alpha}, ladder(10, 500)
			drawn := make(depthsNeeded, 400)
			for i := range drawn {
				drawn[i] = population[rng.IntN(len(population))]
			}
			chosen := slices.IndexFunc(depths, func(depth int) bool {
				return promise.spread(len(depths)).isShownBy(int(drawn.share(depth)*float64(len(drawn))+.5), len(drawn))
			})
			if chosen < 0 {
				continue
			}
			made++
			if population.share(depths[chosen]) < promise.Share {
				broken++
			}
		}
		// Only one of a thousand seeds would give more false promises at probability α.
		if tail := binomialTail(broken, draws, alpha); broken > 0 && tail < 1e-3 {
			t.Errorf("%s: broken %d times of %d", c.name, broken, draws)
		}
		if made < draws/2 {
			t.Errorf("%s: made %d times of %d only", c.name, made, draws)
		}
		t.Logf("%s: made %d times of %d, broken %d times", c.name, made, draws, broken)
	}
}

func TestLadder(t *testing.T) {
	if got, want := ladder(10, 200), []int{10, 15, 20, 30, 50, 70, 100, 150, 200}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := ladder(10, 10); !slices.Equal(got, []int{10}) {
		t.Errorf("%v", got)
	}
}

// TestRulesWithoutDepths: without given depths the rules reach from K to ten times the route's
// depth, as far as the route and the collection permit.
func TestRulesWithoutDepths(t *testing.T) {
	for name, c := range map[string]struct {
		depth, maxDepth int
		rows            int64
		most            int
	}{
		"ten times the depth":    {20, 1000, -1, 200},
		"max_depth":              {20, 150, -1, 150},
		"the collection":         {20, 1000, 120, 120},
		"K rows of a small one":  {20, 1000, 5, 10},
		"a depth of less than K": {1, 1000, -1, 10},
	} {
		r := &run{Input: Input{Promise: Promise{K: 10}}, opening: &opening{route: route.Route{Policy: route.Policy{Strategy: rerank.Average, Depth: c.depth, MaxDepth: c.maxDepth}}}, rows: c.rows}
		rules, err := r.ruleList()
		if err != nil || rules[0].Depth != 10 || rules[len(rules)-1].Depth != c.most {
			t.Errorf("%s: %v, %v; want depths from 10 to %d", name, rules, err, c.most)
		}
	}
}

// TestEvidence: while the promise holds, the e-value reaches 1/α in at most a share α of the runs,
// however long they are and whenever it is read. If the promise does not hold, it gets there soon.
func TestEvidence(t *testing.T) {
	const runs, length, alpha, share = 1000, 5000, .05, .95
	rng := rand.New(rand.NewPCG(11, 12))
	rejects := func(keep float64, length int) (found int, at []int) {
		for range runs {
			missed := 0
			for n := 1; n <= length; n++ {
				if rng.Float64() < keep {
					continue // the e-value falls
				}
				missed++
				if evidence(n, missed, share) >= 1/alpha {
					found, at = found+1, append(at, n)
					break
				}
			}
		}
		slices.Sort(at)
		return found, at
	}
	if found, _ := rejects(share, length); found > 0 && binomialTail(found, runs, alpha) < 1e-3 {
		t.Errorf("a promise that just holds is rejected in %d of %d runs", found, runs)
	} else {
		t.Logf("just holds: %d of %d rejected", found, runs)
	}
	if found, _ := rejects(.99, length); found > 5 {
		t.Errorf("a promise that holds well is rejected in %d of %d runs", found, runs)
	} else {
		t.Logf("holds well: %d of %d rejected", found, runs)
	}
	found, at := rejects(.8, length)
	if found < runs || at[runs/2] > 100 {
		t.Errorf("a share of .8 is rejected in %d of %d runs, half of them after %d answers", found, runs, at[len(at)/2])
	}
	t.Logf("share .8: half rejected after %d answers, the last after %d", at[runs/2], at[runs-1])
	for _, share := range []float64{.999, .5, .05, .001} {
		if e := evidence(1000, 0, share); e >= 1 {
			t.Errorf("share %v: e-value %v against a promise that was kept each time", share, e)
		}
	}
	for _, n := range []int{0, 10, 1 << 20} {
		if e := evidence(n, n/2, share); math.IsNaN(e) || math.IsInf(e, 0) || e < 0 {
			t.Errorf("e-value %v of %d answers", e, n)
		}
	}
}
