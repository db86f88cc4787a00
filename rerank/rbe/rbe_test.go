package rbe_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// parts returns the configuration and the tensors of a model with 3 support items and 5 support
// queries. If neural is set, it has perceptrons with 4 hidden and 2 outer numbers.
func parts(neural bool) (rbe.Config, tensor.Set) {
	rng := rand.New(rand.NewPCG(1, 1))
	random := func(shape ...int) tensor.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := tensor.Tensor{Shape: shape, Data: make([]float32, n)}
		for i := range x.Data {
			x.Data[i] = float32(rng.NormFloat64())
		}
		return x
	}
	c := rbe.Config{}
	for i := range 3 {
		c.SupportItems = append(c.SupportItems, rerank.UintID(uint64(10*i)))
	}
	for i := range 5 {
		c.SupportQueries = append(c.SupportQueries, rerank.UintID(uint64(i)))
	}
	t := tensor.Set{"projection": random(3, 5)}
	if neural {
		c.Hidden, c.Out = 4, 2
		for _, side := range []string{"query", "item"} {
			t[side+".0.weight"], t[side+".0.bias"] = random(4, 3), random(4)
			t[side+".1.weight"], t[side+".1.bias"] = random(2, 4), random(2)
		}
		t["offset.weight"], t["offset.bias"] = random(3), random(1)
	}
	return c, t
}

// naive computes φ by the formula, in float64.
func naive(c rbe.Config, t tensor.Set, base, query []float32) float64 {
	low := make([]float64, 3)
	for i := range low {
		for j, v := range base {
			low[i] += float64(t["projection"].Data[5*i+j]) * float64(v)
		}
	}
	var sum float64
	wide := make([]float64, 3)
	for i, v := range query {
		wide[i] = float64(v)
		sum += low[i] * wide[i]
	}
	if c.Hidden == 0 {
		return sum
	}
	layer := func(name string, x []float64, activate bool) []float64 {
		b := t[name+".bias"].Data
		y := make([]float64, len(b))
		for o := range y {
			y[o] = float64(b[o])
			for i, v := range x {
				y[o] += float64(t[name+".weight"].Data[o*len(x)+i]) * v
			}
			if activate && y[o] < 0 {
				y[o] = math.Expm1(y[o])
			}
		}
		return y
	}
	a, b := layer("query.1", layer("query.0", wide, true), false), layer("item.1", layer("item.0", low, true), false)
	for i := range a {
		sum += a[i] * b[i]
	}
	for i, v := range low {
		sum += float64(t["offset.weight"].Data[i]) * v
	}
	return sum + float64(t["offset.bias"].Data[0])
}

// TestScoresAreTheFormula: scores of feature rows, and inner products of the probe with base
// vectors, equal the formula's φ.
func TestScoresAreTheFormula(t *testing.T) {
	for _, neural := range []bool{false, true} {
		c, tensors := parts(neural)
		s, err := rbe.New(c, tensors)
		if err != nil {
			t.Fatal(err)
		}
		base := rerank.Matrix{Rows: 2, Cols: 5, Data: []float32{1, -2, 3, 0.5, 0, 0, 0, 0, 0, 0}}
		features := rerank.NewMatrix(2, s.Spec().Features)
		if err := s.EncodeItems(features, base); err != nil {
			t.Fatal(err)
		}
		query := []float32{0.3, -1, 2}
		enc, err := s.Encode(rerank.Query{Vector: query})
		if err != nil {
			t.Fatal(err)
		}
		scores := make([]float32, 2)
		if err := enc.Score(scores, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		for i, got := range scores {
			if want := naive(c, tensors, base.Row(i), query); !(math.Abs(float64(got)-want) <= 1e-5*max(1, math.Abs(want))) {
				t.Errorf("neural %t, item %d: %v, want %v", neural, i, got, want)
			}
		}
		probes, err := enc.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
		if neural {
			if !errors.Is(err, rerank.ErrStrategy) {
				t.Errorf("a probe on the stored scores with perceptrons: %v", err)
			}
		} else if got := dot(probes[0].Vector, base.Row(0)); !(math.Abs(got-float64(scores[0])) <= 1e-5) {
			t.Errorf("the stored probe finds %v, φ is %v", got, scores[0])
		}
		probes, err = enc.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1, Derived: true})
		if err != nil || probes[0].Field != rbe.Field || !(math.Abs(dot(probes[0].Vector, features.Row(0))-float64(scores[0])) <= 1e-5) {
			t.Errorf("%+v, %v", probes, err)
		}
		checkDerived(t, s, features)
	}
}

func dot(a, b []float32) (sum float64) {
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

func checkDerived(t *testing.T, s *rbe.Similarity, features rerank.Matrix) {
	t.Helper()
	fields := s.Fields()
	if len(fields) != 1 || fields[0].Dim != s.Spec().Features || !fields[0].Feature {
		t.Fatalf("%+v", fields)
	}
	derived, back := rerank.NewMatrix(features.Rows, features.Cols), rerank.NewMatrix(features.Rows, features.Cols)
	if err := errors.Join(s.Derive(derived, rbe.Field, rerank.Items{Features: features}), s.Features(back, []rerank.Matrix{derived})); err != nil {
		t.Fatal(err)
	}
	if back.Data[1] != features.Data[1] {
		t.Errorf("%v came back as %v", features.Data, back.Data)
	}
	if err := s.Derive(derived, "other", rerank.Items{Features: features}); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("another field: %v", err)
	}
}

// TestAsk: the ranker's scores become the query, and faulty scores are named.
func TestAsk(t *testing.T) {
	c, tensors := parts(false)
	s, err := rbe.New(c, tensors)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("ranker is down")
	for name, tc := range map[string]struct {
		scores []float32
		err    error
		want   error
	}{
		"good":       {[]float32{1, 2, 3}, nil, nil},
		"too few":    {[]float32{1, 2}, nil, rerank.ErrQuery},
		"not finite": {[]float32{1, 2, float32(math.NaN())}, nil, rerank.ErrQuery},
		"down":       {nil, broken, broken},
	} {
		q, err := s.Ask(t.Context(), func(_ context.Context, items []rerank.ID, _ rerank.Query) ([]float32, error) {
			if len(items) != 3 || items[1] != rerank.UintID(10) {
				t.Errorf("asked for %v", items)
			}
			return tc.scores, tc.err
		}, rerank.Query{UserID: 4})
		if !errors.Is(err, tc.want) || tc.want == nil && (len(q.Vector) != 3 || q.UserID != 4) {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(c *rbe.Config, t tensor.Set){
		"no supports":        func(c *rbe.Config, _ tensor.Set) { c.SupportItems = nil },
		"a support more":     func(c *rbe.Config, _ tensor.Set) { c.SupportItems = append(c.SupportItems, rerank.UintID(9)) },
		"a support of no id": func(c *rbe.Config, _ tensor.Set) { c.SupportQueries[2] = rerank.ID{} },
		"hidden without out": func(c *rbe.Config, _ tensor.Set) { c.Out = 0 },
		"too wide":           func(c *rbe.Config, _ tensor.Set) { c.Hidden = 1 << 20 },
		"a tensor missing":   func(_ *rbe.Config, t tensor.Set) { delete(t, "item.1.bias") },
		"a tensor too many":  func(_ *rbe.Config, t tensor.Set) { t["more"] = tensor.Tensor{} },
		"perceptrons unused": func(c *rbe.Config, _ tensor.Set) { c.Hidden, c.Out = 0, 0 },
	} {
		c, tensors := parts(true)
		change(&c, tensors)
		if _, err := rbe.New(c, tensors); !errors.Is(err, rerank.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestQuestions: the contents of the support queries are read back as they were written, and
// contents that fit no model are refused.
func TestQuestions(t *testing.T) {
	asked := []rerank.Query{
		{Text: "where is my card", Vector: []float32{1, 2}, UserID: -7, HasUserID: true, Context: map[string]float32{"hour": 0.1}},
		{Vector: []float32{3, 4}}, {Text: "b", Vector: []float32{5, 6}}, {Vector: []float32{7, 8}}, {Vector: []float32{0.1, 1e-30}},
	}
	c, tensors := parts(false)
	plain, err := rbe.New(c, tensors)
	if err != nil || len(plain.Questions()) != 0 {
		t.Fatalf("a model without questions: %v, %v", plain.Questions(), err)
	}
	if err := c.Ask(tensors, asked); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back rbe.Config
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	s, err := rbe.New(back, tensors)
	if err != nil || !reflect.DeepEqual(s.Questions(), asked) || len(s.SupportQueries()) != 5 {
		t.Errorf("%+v, %v\nwant %+v", s.Questions(), err, asked)
	}
	for name, change := range map[string]func(c *rbe.Config, t tensor.Set){
		"too few":     func(c *rbe.Config, _ tensor.Set) { c.Questions = c.Questions[:4] },
		"a long text": func(c *rbe.Config, _ tensor.Set) { c.Questions[0].Text = strings.Repeat("a", 1<<17) },
		"vectors too few": func(_ *rbe.Config, t tensor.Set) {
			t["questions"] = tensor.Tensor{Shape: []int{1, 2}, Data: []float32{1, 2}}
		},
		"vectors of nothing":    func(_ *rbe.Config, t tensor.Set) { t["questions"] = tensor.Tensor{Shape: []int{5, 0}} },
		"vectors unused":        func(c *rbe.Config, _ tensor.Set) { c.Questions = nil },
		"a vector not a number": func(_ *rbe.Config, t tensor.Set) { t["questions"].Data[3] = float32(math.NaN()) },
	} {
		c, tensors := parts(false)
		copied := slices.Clone(asked)
		if err := c.Ask(tensors, copied); err != nil {
			t.Fatal(err)
		}
		change(&c, tensors)
		if _, err := rbe.New(c, tensors); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	asked[2].Vector = nil
	if err := c.Ask(tensors, asked); !errors.Is(err, rerank.ErrModel) {
		t.Errorf("a vector missing: %v", err)
	}
}

// TestPullBackKeepsEpsilon: a list of the stored vectors without rounding of its own agrees with
// Score within Bound's ε, on rows for which the sums of a feature row, and of the probe, nearly
// cancel.
func TestPullBackKeepsEpsilon(t *testing.T) {
	const m, n = 3, 64
	rng := rand.New(rand.NewPCG(8, 8))
	for range 50 {
		p := tensor.Tensor{Shape: []int{m, n}, Data: adversary.Mix(rng, m, n, adversary.Plain).Data}
		for i := range n { // in the probe, two rows nearly cancel
			p.Data[n+i] = p.Data[i] * (1 + float32(rng.NormFloat64())/1000)
		}
		c := rbe.Config{}
		for i := range max(m, n) {
			if id := rerank.UintID(uint64(i)); i < n {
				c.SupportQueries = append(c.SupportQueries, id)
				if i < m {
					c.SupportItems = append(c.SupportItems, id)
				}
			}
		}
		s, err := rbe.New(c, tensor.Set{"projection": p})
		if err != nil {
			t.Fatal(err)
		}
		// x is nearly orthogonal to every row of the projection.
		x := adversary.Mix(rng, 1, n, adversary.Plain)
		for range 20 {
			for r := range m {
				row := p.Data[r*n : (r+1)*n]
				share := adversary.Dot(row, x.Data) / adversary.Dot(row, row)
				for i := range x.Data {
					x.Data[i] -= float32(share) * row[i]
				}
			}
		}
		e, err := s.Encode(rerank.Query{Vector: []float32{1, -1, 0}})
		if err != nil {
			t.Fatal(err)
		}
		probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		row, score := rerank.NewMatrix(1, s.Spec().Features), make([]float32, 1)
		if err := s.EncodeItems(row, x); err != nil {
			t.Fatal(err)
		}
		if err := e.Score(score, rerank.Items{Features: row}); err != nil {
			t.Fatal(err)
		}
		listed := adversary.Dot(probes[0].Vector, x.Data)
		epsilon := e.Bound(probes, []rerank.List{{Scores: []float32{float32(listed)}, Epsilon: float32(kernel.Gamma(1) * rerank.Norm(probes[0].Vector) * rerank.Norm(x.Data))}}).Epsilon
		if off := math.Abs(float64(score[0]) - listed); off > float64(epsilon) {
			t.Fatalf("the score %v and the list's %v differ by %v, ε is %v", score[0], listed, off, epsilon)
		}
	}
}
