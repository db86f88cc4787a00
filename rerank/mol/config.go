package mol

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// Config describes a Mixture-of-Logits. The JSON names are the hyper-parameter names of
// RAILS. Hyper-parameters that only training needs are ignored.
type Config struct {
	QueryDim int `json:"query_embedding_dim"`
	ItemDim  int `json:"item_embedding_dim"`
	// Dim is D, the length of a component. PairsQuery is P_Q and counts the components of
	// user ids too. PairsItem is P_X.
	Dim        int `json:"dot_product_dimension"`
	PairsQuery int `json:"query_dot_product_groups"`
	PairsItem  int `json:"item_dot_product_groups"`
	// Temperature is τ, by which the logits are divided before the gates.
	Temperature float64 `json:"temperature"`
	// L2Norm divides every component by max(‖·‖, Eps); Eps is 1e-6 where not given.
	L2Norm bool    `json:"dot_product_l2_norm"`
	Eps    float64 `json:"eps"`
	// A side whose hidden width is below one is linear. Otherwise it is a gated linear
	// unit, swiglu or geglu.
	QueryHidden       int        `json:"query_hidden_dim"`
	QueryNonlinearity Activation `json:"query_nonlinearity"`
	ItemHidden        int        `json:"item_hidden_dim"`
	ItemNonlinearity  Activation `json:"item_nonlinearity"`
	// The parts of the gates. If a flag is absent, the tensors decide whether the part
	// exists; a flag that contradicts the tensors is refused. A width is only checked if
	// its part exists. A logit part of width below one is linear.
	GatingQuery       *bool       `json:"gating_query_fn,omitempty"`
	GatingItem        *bool       `json:"gating_item_fn,omitempty"`
	GatingQueryHidden int         `json:"gating_query_hidden_dim"`
	GatingItemHidden  int         `json:"gating_item_hidden_dim"`
	GatingPairHidden  int         `json:"gating_qi_hidden_dim"`
	Combination       Combination `json:"gating_combination_type"`
	// SoftmaxDropout changes the formula only by being above 0 or not (golden/README.md,
	// formula 7).
	SoftmaxDropout float64 `json:"softmax_dropout_rate"`
	// UserTables holds the sizes of the user-id embedding tables. Each table adds one query
	// component.
	UserTables []int `json:"uid_embedding_hash_sizes"`
	// Normalise: the model was fitted on unit vectors, so both sides are normalised first.
	// With ComponentsGiven, each component is normalised instead.
	Normalise bool `json:"normalise"`
	// ComponentsGiven: Query.Vector consists of the P_Q components, a base vector of the
	// P_X components. They are used as they are, without projections.
	ComponentsGiven bool `json:"components_given,omitempty"`
}

// Activation is the nonlinearity of a gated linear unit.
type Activation string

// The activations; GeGLU is the exact (erf) form.
const (
	SwiGLU Activation = "swiglu"
	GeGLU  Activation = "geglu"
)

// Combination says how the parts of the gates are combined.
type Combination string

const (
	// GLUSiLU: z = query ⊙ item + pair, gate = z·sigmoid(z).
	GLUSiLU Combination = "glu_silu"
	// None: gate = sum of the parts that exist.
	None Combination = "none"
)

// Limits on what a configuration may declare, checked before anything is allocated.
const (
	maxDim    = 1 << 20
	maxGroups = 1 << 10
)

// pairs returns L = P_Q·P_X.
func (c *Config) pairs() int { return c.PairsQuery * c.PairsItem }

// projectedComponents returns the number of query components that come from the query
// vector, not from user tables.
func (c *Config) projectedComponents() int { return c.PairsQuery - len(c.UserTables) }

// hasUnitComponents reports whether components are normalised to norm 1.
func (c *Config) hasUnitComponents() bool {
	if c.ComponentsGiven {
		return c.Normalise
	}
	return c.L2Norm
}

func (c *Config) check() error {
	if c.Eps == 0 {
		c.Eps = 1e-6
	}
	for _, f := range []struct {
		name            string
		value, from, to int
	}{
		{"query_embedding_dim", c.QueryDim, 1, maxDim},
		{"item_embedding_dim", c.ItemDim, 1, maxDim},
		{"dot_product_dimension", c.Dim, 1, maxDim},
		{"query_dot_product_groups", c.PairsQuery, 1, maxGroups},
		{"item_dot_product_groups", c.PairsItem, 1, maxGroups},
		{"query_hidden_dim", c.QueryHidden, -maxDim, maxDim},
		{"item_hidden_dim", c.ItemHidden, -maxDim, maxDim},
		{"gating_qi_hidden_dim", c.GatingPairHidden, -maxDim, maxDim},
	} {
		if f.value < f.from || f.value > f.to {
			return fmt.Errorf("%w: %s is %d, want %d to %d", rerank.ErrModel, f.name, f.value, f.from, f.to)
		}
	}
	if c.pairs() > maxDim || c.Dim*c.PairsQuery > maxDim || c.Dim*c.PairsItem+c.pairs() > maxDim {
		return fmt.Errorf("%w: %d by %d components of %d are more than rows of %d hold",
			rerank.ErrModel, c.PairsQuery, c.PairsItem, c.Dim, maxDim)
	}
	return c.checkGates()
}

func (c *Config) checkGates() error {
	inverse := float32(1 / c.Temperature)
	switch {
	case !(c.Temperature > 0) || math.IsInf(float64(inverse), 0) || inverse == 0:
		return fmt.Errorf("%w: temperature is %v, want a positive float32", rerank.ErrModel, c.Temperature)
	case !(float32(c.Eps) > 0) || c.Eps > 1:
		return fmt.Errorf("%w: eps is %v, want above 0 and at most 1", rerank.ErrModel, c.Eps)
	case !(c.SoftmaxDropout >= 0) || c.SoftmaxDropout >= 1:
		return fmt.Errorf("%w: softmax_dropout_rate is %v, want 0 up to 1", rerank.ErrModel, c.SoftmaxDropout)
	case c.Combination != GLUSiLU && c.Combination != None:
		return fmt.Errorf("%w: gating_combination_type is %q, want %q or %q", rerank.ErrModel, c.Combination, GLUSiLU, None)
	case c.projectedComponents() < 1:
		return fmt.Errorf("%w: uid_embedding_hash_sizes has %d tables, want fewer than query_dot_product_groups, %d",
			rerank.ErrModel, len(c.UserTables), c.PairsQuery)
	case c.ComponentsGiven && len(c.UserTables) > 0:
		return fmt.Errorf("%w: uid_embedding_hash_sizes with components_given: the components hold no user", rerank.ErrModel)
	}
	for i, size := range c.UserTables {
		if size < 1 || size >= math.MaxInt32 {
			return fmt.Errorf("%w: uid_embedding_hash_sizes[%d] is %d, want 1 to %d", rerank.ErrModel, i, size, math.MaxInt32-1)
		}
	}
	if err := c.QueryNonlinearity.check("query_nonlinearity", c.QueryHidden); err != nil {
		return err
	}
	return c.ItemNonlinearity.check("item_nonlinearity", c.ItemHidden)
}

// checkWidths verifies the hidden widths of the query and item parts of the gates, where
// they exist.
func (c *Config) checkWidths(query, item bool) error {
	for _, f := range []struct {
		name   string
		width  int
		exists bool
	}{{"gating_query_hidden_dim", c.GatingQueryHidden, query}, {"gating_item_hidden_dim", c.GatingItemHidden, item}} {
		if f.exists && (f.width < 1 || f.width > maxDim) {
			return fmt.Errorf("%w: %s is %d, want 1 to %d", rerank.ErrModel, f.name, f.width, maxDim)
		}
	}
	return nil
}

func (a Activation) check(name string, hidden int) error {
	if hidden > 0 && a != SwiGLU && a != GeGLU {
		return fmt.Errorf("%w: %s is %q, want %q or %q", rerank.ErrModel, name, a, SwiGLU, GeGLU)
	}
	return nil
}
