package mol

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TestRefusals: every error says which tensor or word, and what was expected.
func TestRefusals(t *testing.T) {
	shape := fullGate(2, 3, 4, 5)
	shape.queryDim, shape.itemDim, shape.users, shape.queryHidden = 6, 7, []int{9}, 8
	yes, no := true, false
	for want, change := range map[string]func(*Config, tensor.Set){
		"temperature is 0":                 func(c *Config, _ tensor.Set) { c.Temperature = 0 },
		"query_embedding_dim is -1":        func(c *Config, _ tensor.Set) { c.QueryDim = -1 },
		"item_dot_product_groups is 5000":  func(c *Config, _ tensor.Set) { c.PairsItem = 5000 },
		"hold":                             func(c *Config, _ tensor.Set) { c.Dim = 1 << 20 },
		`gating_combination_type is "sum"`: func(c *Config, _ tensor.Set) { c.Combination = "sum" },
		`query_nonlinearity is "relu"`:     func(c *Config, _ tensor.Set) { c.QueryNonlinearity = "relu" },
		"eps is 1e-60":                     func(c *Config, _ tensor.Set) { c.Eps = 1e-60 },
		"eps is -1":                        func(c *Config, _ tensor.Set) { c.Eps = -1 },
		"softmax_dropout_rate is 1":        func(c *Config, _ tensor.Set) { c.SoftmaxDropout = 1 },
		"uid_embedding_hash_sizes[0] is 0": func(c *Config, _ tensor.Set) { c.UserTables = []int{0} },
		"fewer than query_dot":             func(c *Config, _ tensor.Set) { c.UserTables = []int{9, 9} },
		"gating_query_fn is false":         func(c *Config, _ tensor.Set) { c.GatingQuery = &no },
		"needs all parts":                  func(_ *Config, t tensor.Set) { delete(t, gatePair+".1.weight") },
		"has shape [4 8], want [8 8]":      func(c *Config, _ tensor.Set) { c.UserTables = nil },
		"has shape [8 18], want [16 18]":   func(c *Config, t tensor.Set) { widen(c, t) },
		"want shape [6 16]":                func(_ *Config, t tensor.Set) { delete(t, querySide+".1._w") },
		"gating_item_hidden_dim is -1":     func(c *Config, _ tensor.Set) { c.GatingItemHidden = -1 },
		"is NaN, want a finite number":     func(_ *Config, t tensor.Set) { t[itemSide+".1.bias"].Data[1] = float32(math.NaN()) },
		"cannot be computed":               func(c *Config, _ tensor.Set) { c.ComponentsGiven, c.UserTables = true, nil },
		"the components hold no user":      func(c *Config, _ tensor.Set) { c.ComponentsGiven = true },
		`"foreign" of shape [1]`:           func(_ *Config, t tensor.Set) { t["foreign"] = tensor.Tensor{Shape: []int{1}, Data: []float32{1}} },
		"has 2 numbers, want 7": func(_ *Config, t tensor.Set) {
			t["probe.mean_item"] = tensor.Tensor{Shape: []int{7}, Data: []float32{1, 2}}
		},
		"": func(c *Config, _ tensor.Set) { c.GatingQuery = &yes },
	} {
		c, set := shape.random(rand.New(rand.NewPCG(1, 1)))
		change(&c, set)
		_, err := New(c, set)
		switch {
		case want == "" && err != nil:
			t.Errorf("a valid model: %v", err)
		case want != "" && (!errors.Is(err, rerank.ErrModel) || !strings.Contains(err.Error(), want)):
			t.Errorf("want ErrModel with %q, have: %v", want, err)
		}
	}
}

// widen makes a table of users that is smaller than the configuration says.
func widen(c *Config, t tensor.Set) {
	c.UserTables = []int{15}
	c.Dim, c.PairsItem = 18, 3
	name := fmt.Sprintf(userTable, 0)
	t[name] = tensor.Tensor{Shape: []int{8, 18}, Data: make([]float32, 8*18)}
	t[querySide+".2.weight"] = tensor.Tensor{Shape: []int{18, 8}, Data: make([]float32, 144)}
	t[querySide+".2.bias"] = tensor.Tensor{Shape: []int{18}, Data: make([]float32, 18)}
	t[itemSide+".1.weight"] = tensor.Tensor{Shape: []int{54, 7}, Data: make([]float32, 54*7)}
	t[itemSide+".1.bias"] = tensor.Tensor{Shape: []int{54}, Data: make([]float32, 54)}
}

func TestErrors(t *testing.T) {
	shape := fullGate(2, 3, 4, 5)
	shape.queryDim, shape.itemDim, shape.users, shape.itemHidden = 6, 7, []int{9}, 3
	s := shape.build(t, rand.New(rand.NewPCG(1, 1)))
	good := rerank.Query{Vector: []float32{1, 0, 0, 0, 0, 0}, HasUserID: true}
	for want, q := range map[string]rerank.Query{
		"5 elements and the model takes 6": {Vector: make([]float32, 5), HasUserID: true},
		"user_id is missing":               {Vector: make([]float32, 6)},
		"zero in all of its 6 elements":    {Vector: make([]float32, 6), HasUserID: true},
		"vector[1] is NaN":                 {Vector: []float32{0, float32(math.NaN()), 0, 0, 0, 0}, HasUserID: true},
	} {
		if _, err := s.Encode(q); !errors.Is(err, rerank.ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrQuery with %q, have: %v", want, err)
		}
	}
	over := make([]float32, 6)
	for i := range over {
		over[i] = math.MaxFloat32
	}
	if _, err := s.Encode(rerank.Query{Vector: over, HasUserID: true}); err != nil {
		t.Errorf("a long query of a model that normalises: %v", err)
	}
	e := encode(t, s, good)
	for want, plan := range map[string]rerank.Plan{
		"write a companion":   {Strategy: rerank.PerEmbedding},
		"index`, or use":      {Strategy: rerank.Average},
		"item side":           {Strategy: rerank.Combined},
		"needs a learned":     {Strategy: rerank.Distilled},
		"is none of":          {Strategy: "best"},
		"probe.mean_item":     {Strategy: rerank.Average, Weights: rerank.GateWeights, Derived: true},
		`weights "equal" are`: {Strategy: rerank.Average, Weights: "equal", Derived: true},
	} {
		if _, err := e.Probes(plan); !errors.Is(err, rerank.ErrStrategy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: want ErrStrategy with %q, have: %v", plan, want, err)
		}
	}
	if p, err := e.Probes(rerank.Plan{Strategy: rerank.Scan}); err != nil || len(p) > 0 {
		t.Errorf("scan: %d probes, %v", len(p), err)
	}
	x := rerank.NewMatrix(2, s.spec.Features)
	for i, items := range []rerank.Items{
		{Features: x, Rows: []int32{2}}, {Features: x, Rows: []int32{-1}}, {Features: rerank.NewMatrix(1, 3)},
		{Features: x, Starts: []int32{0, 1}}, {Features: x},
		{Features: rerank.Matrix{Rows: 1, Cols: s.spec.Features}},
	} {
		if err := e.Score(make([]float32, 1), items); !errors.Is(err, rerank.ErrItems) {
			t.Errorf("items %d: %v, want ErrItems", i, err)
		}
	}
	if err := s.EncodeItems(x, rerank.NewMatrix(2, 6)); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("base vectors of another dimension: %v", err)
	}
}
