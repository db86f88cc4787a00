package companion_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func random(rng *rand.Rand, shape ...int) tensor.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	t := tensor.Tensor{Shape: shape, Data: make([]float32, n)}
	for i := range t.Data {
		t.Data[i] = float32(rng.NormFloat64())
	}
	return t
}

// small is a companion of 5 anchors, queries of 3 numbers with 4 features, 2 hidden ones, and vectors of 2.
func small() tensor.Set {
	rng := rand.New(rand.NewPCG(1, 2))
	return tensor.Set{
		companion.Anchors: random(rng, 5, 3), companion.Hidden: random(rng, 2, 3), companion.Out: random(rng, 2, 1+4+2),
		companion.Threshold: random(rng, 5), companion.Mean: random(rng, 5), companion.Leak: {Shape: []int{1}, Data: []float32{0.25}},
		companion.Bias: random(rng, 2),
	}
}

func TestRead(t *testing.T) {
	if c, err := companion.Read(tensor.Set{"W": {}}, 3, 4); c != nil || err != nil {
		t.Errorf("a model without: %v, %v", c, err)
	}
	for name, change := range map[string]func(tensor.Set){
		"no anchors": func(s tensor.Set) { delete(s, companion.Anchors) },
		"other queries": func(s tensor.Set) {
			s[companion.Anchors] = tensor.Tensor{Shape: []int{5, 2}, Data: make([]float32, 10)}
		},
		"no leak":    func(s tensor.Set) { delete(s, companion.Leak) },
		"few means":  func(s tensor.Set) { s[companion.Mean] = tensor.Tensor{Shape: []int{4}, Data: make([]float32, 4)} },
		"few biases": func(s tensor.Set) { s[companion.Bias] = random(rand.New(rand.NewPCG(1, 1)), 1) },
		"another":    func(s tensor.Set) { s[companion.Prefix+"x"] = tensor.Tensor{Shape: []int{1}, Data: []float32{1}} },
	} {
		s := small()
		change(s)
		if _, err := companion.Read(s, 3, 4); !errors.Is(err, rerank.ErrModel) || !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestVectorsHaveNumbers: a companion of vectors without numbers could not be searched.
func TestVectorsHaveNumbers(t *testing.T) {
	s := small()
	s[companion.Out] = tensor.Tensor{Shape: []int{0, 1 + 4 + 2}}
	if _, err := companion.Read(s, 3, 4); !errors.Is(err, rerank.ErrModel) {
		t.Errorf("%v", err)
	}
}

// TestQuery: ψ of a query of several vectors is the sum of ψ of each.
func TestQuery(t *testing.T) {
	c, err := companion.Read(small(), 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	features := rerank.Matrix{Rows: 2, Cols: 4, Data: []float32{1, -2, 3, 4, -5, 6, 7, -8}}
	both, first, second := c.Query(features), c.Query(features.Slice(0, 1)), c.Query(features.Slice(1, 2))
	for i, v := range both {
		if !(math.Abs(float64(v-first[i]-second[i])) <= 1e-5) {
			t.Errorf("%v, of each %v and %v", both, first, second)
		}
	}
}

// TestCounts: an anchor has as many vectors as the counts say.
func TestCounts(t *testing.T) {
	for name, c := range map[string]struct {
		counts []float32
		fits   bool
	}{
		"of five":         {[]float32{3, 1, 1}, true},
		"too few":         {[]float32{3, 1}, false},
		"fewer together":  {[]float32{2, 1, 1}, false},
		"none":            {[]float32{5, 0, 0}, false},
		"a negative one":  {[]float32{5, 1, -1}, false},
		"a half":          {[]float32{3.5, 1, 0.5}, false},
		"a half more":     {[]float32{3.5, 1, 1}, false},
		"beyond a number": {[]float32{3e9, 1, 1}, false},
	} {
		set := small()
		set[companion.Threshold], set[companion.Mean] = tensor.Tensor{Shape: []int{3}, Data: make([]float32, 3)}, tensor.Tensor{Shape: []int{3}, Data: make([]float32, 3)}
		set[companion.Counts] = tensor.Tensor{Shape: []int{len(c.counts)}, Data: c.counts}
		if _, err := companion.Read(set, 3, 4); c.fits != (err == nil) || err != nil && !errors.Is(err, rerank.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// oneRow returns the features of a query of one vector.
func oneRow(features []float32) rerank.Matrix {
	return rerank.Matrix{Rows: 1, Cols: len(features), Data: features}
}

// TestSolve: vectors of items and queries are what the formulae of the package say, in blocks and beyond.
func TestSolve(t *testing.T) {
	set := small()
	c, err := companion.Read(set, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	const items = 131
	scores := random(rng, 5, items) // of anchor a and item x, which is the only feature of the item
	anchorFeatures := func(a int) []float32 {
		return append(append([]float32{}, set[companion.Anchors].Data[3*a:3*a+3]...), float32(a))
	}
	psi := func(features []float32) (out [2]float64) {
		expanded := []float64{1}
		for _, v := range features {
			expanded = append(expanded, float64(v))
		}
		for h := range 2 {
			sum := float64(set[companion.Bias].Data[h])
			for i := range 3 {
				sum += float64(set[companion.Hidden].Data[3*h+i]) * float64(features[i])
			}
			expanded = append(expanded, max(sum, 0))
		}
		for d := range 2 {
			for i, v := range expanded {
				out[d] += float64(set[companion.Out].Data[7*d+i]) * v
			}
		}
		return out
	}
	features, got := rerank.NewMatrix(items, 1), rerank.NewMatrix(items, 2)
	for x := range items {
		features.Data[x] = float32(x)
	}
	encoded := make([]rerank.Encoded, 5)
	for a := range encoded {
		encoded[a] = anchor{number: a, features: oneRow(anchorFeatures(a))}
	}
	solver, err := companion.NewSolver(c, encoded, rerank.Abilities{ScoreBatch: batch{Rows: 5, Cols: items, Data: scores.Data}})
	if err != nil {
		t.Fatal(err)
	}
	if err := solver.Solve(got, rerank.Items{Features: features}); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []rerank.Matrix{rerank.NewMatrix(items, 3), rerank.NewMatrix(items-1, 2)} {
		if err := solver.Solve(wrong, rerank.Items{Features: features}); !errors.Is(err, rerank.ErrItems) {
			t.Errorf("vectors of %d numbers for %d items: %v", wrong.Cols, wrong.Rows, err)
		}
	}
	for x := range items {
		var want [2]float64
		for a := range 5 {
			y := float64(scores.Data[a*items+x] - set[companion.Threshold].Data[a])
			if y < 0 {
				y *= 0.25
			}
			y -= float64(set[companion.Mean].Data[a])
			p := psi(anchorFeatures(a))
			want[0], want[1] = want[0]+y*p[0], want[1]+y*p[1]
		}
		for d, w := range want {
			if v := float64(got.Row(x)[d]); !(math.Abs(v-w) <= 1e-4*(1+math.Abs(w))) {
				t.Fatalf("item %d: %v, want %v", x, got.Row(x), want)
			}
		}
	}
}

// batch has the scores of anchor a as row a, and item x is the only feature of the item.
type batch rerank.Matrix

func (b batch) ScoreBatch(dst []float32, queries []rerank.Encoded, rows rerank.Items) error {
	for q, e := range queries {
		for i := range rows.Len() {
			dst[q*rows.Len()+i] = b.Data[e.(anchor).number*b.Cols+int(rows.Features.Row(i)[0])]
		}
	}
	return nil
}

// anchor is an encoded anchor that knows only its number.
type anchor struct {
	rerank.Encoded
	number   int
	features rerank.Matrix
}

func (a anchor) QueryFeatures() rerank.Matrix { return a.features }

func TestProbe(t *testing.T) {
	c, err := companion.Read(small(), 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	features := oneRow([]float32{1, 2, 3, 4})
	if _, err := (*companion.Companion)(nil).Probe(features, rerank.Plan{Derived: true}); !errors.Is(err, rerank.ErrStrategy) || !strings.Contains(err.Error(), "fit companion") {
		t.Errorf("no companion: %v", err)
	}
	if _, err := c.Probe(features, rerank.Plan{}); !errors.Is(err, rerank.ErrStrategy) {
		t.Errorf("the stored vectors: %v", err)
	}
	if _, err := c.Probe(oneRow([]float32{math.MaxFloat32, math.MaxFloat32, math.MaxFloat32, 0}), rerank.Plan{Derived: true}); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query beyond float32: %v", err)
	}
	p, err := c.Probe(features, rerank.Plan{Derived: true, Depth: 9})
	if err != nil || p.Field != companion.Field || p.Depth != 9 || len(p.Vector) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}
