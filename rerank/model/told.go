package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank/tensor"
)

// inferred maps names of MoL hyper-parameters to the values that the weights imply: an int,
// a bool, or the sizes of the user-id tables.
type inferred map[string]any

// Names of RAILS modules in the weights.
const (
	queryModule = "_query_embeddings_fn._query_emb_proj_module"
	itemModule  = "_item_embeddings_fn._item_emb_proj_module"
	userModule  = "_query_embeddings_fn._uid_embeddings_%d.weight"
	gateQuery   = "_gating_fn._query_only_partial_module"
	gateItem    = "_gating_fn._item_only_partial_module"
	gatePair    = "_gating_fn._qi_partial_module"
)

// Complete adds hyper-parameters that the weights imply to a RAILS configuration that lacks
// them. The weights do not reveal temperature, normalisation, combination and
// nonlinearities. If the configuration contradicts the weights, Complete returns ErrFile
// with the name and both values.
func Complete(config []byte, weights tensor.Set) ([]byte, error) {
	c, err := flatConfig(config)
	if err != nil {
		return nil, err
	}
	if _, ok := c["model_type"]; !ok {
		c["model_type"] = json.RawMessage(`"mol"`)
	}
	if string(c["model_type"]) != `"mol"` {
		return nil, fmt.Errorf("%w: model_type is %s; the weights are of a MoL", ErrFile, c["model_type"])
	}
	t := infer(weights, c)
	for _, key := range slices.Sorted(maps.Keys(t)) {
		given, ok := c[key]
		if ok && string(given) != "null" {
			if !agreesWithWeights(given, t[key]) {
				return nil, fmt.Errorf("%w: %s is %s in the config, and the weights say %v", ErrFile, key, given, t[key])
			}
			continue
		}
		b, err := json.Marshal(t[key])
		if err != nil {
			return nil, err
		}
		c[key] = b
	}
	return json.Marshal(c)
}

// Override returns a configuration in which some hyper-parameters have other values. It
// returns ErrFile for an invalid configuration, and for a name that affects no score, which
// may be a misspelling.
func Override(config []byte, values map[string]json.RawMessage) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != "model_type" && name != "normalise" && !slices.Contains(molKeys, name) {
			return nil, fmt.Errorf("%w: %q is no hyper-parameter that decides a score; those are normalise, %s",
				ErrFile, name, strings.Join(molKeys, ", "))
		}
	}
	c, err := flatConfig(config)
	if err != nil {
		return nil, err
	}
	maps.Copy(c, values)
	return json.Marshal(c)
}

// flatConfig decodes a configuration and moves the members of hyper_parameters to the top
// level.
func flatConfig(config []byte) (map[string]json.RawMessage, error) {
	var c map[string]json.RawMessage
	if err := decodeStrict(config, &c); err != nil {
		if bytes.Contains(config, []byte("NaN")) || bytes.Contains(config, []byte("Infinity")) {
			err = fmt.Errorf("%w; JSON has no NaN and no Infinity, write null", err)
		}
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	nested, ok := c["hyper_parameters"]
	if !ok {
		return c, nil
	}
	delete(c, "hyper_parameters")
	if err := decodeStrict(nested, &c); err != nil { // adds the nested members; they override the outer ones
		return nil, fmt.Errorf("%w: hyper_parameters: %w", ErrFile, err)
	}
	if _, ok := c["model_type"]; !ok {
		c["model_type"] = json.RawMessage(`"mol"`) // hyper_parameters without model_type belong to a MoL
	}
	return c, nil
}

// agreesWithWeights compares a configured value with the value that the weights imply. All widths below
// one mean the same: no hidden layer.
func agreesWithWeights(given json.RawMessage, implied any) bool {
	switch say := implied.(type) {
	case int:
		var n int
		return json.Unmarshal(given, &n) == nil && (n == say || n < 1 && say < 1)
	case bool:
		var b bool
		return json.Unmarshal(given, &b) == nil && b == say
	case []int:
		var sizes []int
		return json.Unmarshal(given, &sizes) == nil && slices.Equal(sizes, say)
	default:
		return true
	}
}

// infer derives hyper-parameters from the shapes of the weights.
func infer(w tensor.Set, c map[string]json.RawMessage) inferred {
	t := inferred{}
	queryOut := t.side(w, queryModule, "query_embedding_dim", "query_hidden_dim")
	itemOut := t.side(w, itemModule, "item_embedding_dim", "item_hidden_dim")
	if queryOut == 0 && itemOut == 0 {
		t["components_given"] = true
	}
	pairs := t.gates(w)
	tables, dim := t.tables(w)
	if dim == 0 {
		_ = json.Unmarshal(c["dot_product_dimension"], &dim) // no table reveals it: use the configured value, or else what the gates imply
	}
	if dim < 1 || queryOut%dim != 0 || itemOut%dim != 0 || pairs != 0 && (queryOut/dim+tables)*(itemOut/dim) != pairs {
		dim = componentLength(queryOut, itemOut, tables, pairs)
	}
	if queryOut == 0 || itemOut == 0 || dim < 1 {
		return t
	}
	t["dot_product_dimension"] = dim
	t["query_dot_product_groups"] = queryOut/dim + tables
	t["item_dot_product_groups"] = itemOut / dim
	return t
}

// componentLength finds D, the length of a component: the one value for which the gates have
// (queryOut/D + tables)·(itemOut/D) outputs. It returns 0 if no value fits.
func componentLength(queryOut, itemOut, tables, pairs int) int {
	for dim := 1; dim <= min(queryOut, itemOut); dim++ {
		if queryOut%dim == 0 && itemOut%dim == 0 && (queryOut/dim+tables)*(itemOut/dim) == pairs {
			return dim
		}
	}
	return 0
}

// side infers the hyper-parameters of a projection, and returns the length of its output.
func (t inferred) side(w tensor.Set, module, dim, hidden string) int {
	if first, ok := matrixShape(w, module+".1._w"); ok { // (in, 2h)
		t[dim], t[hidden] = first[0], first[1]/2
		out, _ := matrixShape(w, module+".2.weight")
		return out[0]
	}
	if only, ok := matrixShape(w, module+".1.weight"); ok { // (out, in)
		t[dim], t[hidden] = only[1], -1
		return only[0]
	}
	return 0
}

// gates infers the hyper-parameters of the gates, and returns L, the number of their
// outputs.
func (t inferred) gates(w tensor.Set) (pairs int) {
	parts := 0
	for _, g := range []struct{ first, last, in, hidden string }{
		{gateQuery + ".0.weight", gateQuery + ".2.weight", "query_embedding_dim", "gating_query_hidden_dim"},
		{gateItem + ".1.weight", gateItem + ".3.weight", "item_embedding_dim", "gating_item_hidden_dim"},
		{gatePair + ".1.weight", gatePair + ".3.weight", "", "gating_qi_hidden_dim"},
	} {
		first, ok := matrixShape(w, g.first)
		if !ok {
			continue
		}
		parts++
		last, deep := matrixShape(w, g.last)
		if !deep { // linear
			last, t[g.hidden] = first, -1
		} else {
			t[g.hidden] = first[0]
		}
		if g.in != "" {
			t[g.in] = first[1]
		}
		pairs = last[0]
	}
	if parts < 3 {
		t["gating_combination_type"] = "none"
	}
	return pairs
}

// tables infers the sizes of the user-id tables, and returns their number and D.
func (t inferred) tables(w tensor.Set) (n, dim int) {
	var sizes []int
	for {
		table, ok := matrixShape(w, fmt.Sprintf(userModule, len(sizes)))
		if !ok {
			break
		}
		sizes, dim = append(sizes, table[0]-1), table[1]
	}
	if len(sizes) > 0 {
		t["uid_embedding_hash_sizes"] = sizes
	}
	return len(sizes), dim
}

// matrixShape returns the shape of a two-dimensional tensor.
func matrixShape(w tensor.Set, name string) (shape [2]int, ok bool) {
	t, ok := w[name]
	if !ok || len(t.Shape) != 2 {
		return shape, false
	}
	return [2]int(t.Shape), true
}

func sortedNames(t tensor.Set) []string { return slices.Sorted(maps.Keys(t)) }
