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

// inferred are hyper-parameters of a MoL that its weights tell, by name: an int, a
// bool, or the sizes of the user-id tables.
type inferred map[string]any

// The modules of RAILS, as the weights name them.
const (
	queryModule = "_query_embeddings_fn._query_emb_proj_module"
	itemModule  = "_item_embeddings_fn._item_emb_proj_module"
	userModule  = "_query_embeddings_fn._uid_embeddings_%d.weight"
	gateQuery   = "_gating_fn._query_only_partial_module"
	gateItem    = "_gating_fn._item_only_partial_module"
	gatePair    = "_gating_fn._qi_partial_module"
)

// Complete adds to a RAILS config what the weights tell and it does not say, and
// refuses one that they contradict. Temperature, normalisation, combination and
// nonlinearities the weights cannot tell. It returns ErrFile with the names of
// what contradicts, and both values.
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
			if !agree(given, t[key]) {
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

// Override returns a config with other values of some hyper-parameters. It
// returns ErrFile, for a name that decides no score as well: it may be a slip.
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

// flatConfig reads a config, with the members of hyper_parameters beside the others.
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
	if err := decodeStrict(nested, &c); err != nil { // they join, and win over, what is around them
		return nil, fmt.Errorf("%w: hyper_parameters: %w", ErrFile, err)
	}
	if _, ok := c["model_type"]; !ok {
		c["model_type"] = json.RawMessage(`"mol"`) // hyper_parameters alone are a MoL's
	}
	return c, nil
}

// agree compares a value of the config with one of the weights. Widths below one
// all mean that there is no hidden layer.
func agree(given json.RawMessage, implied any) bool {
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

// infer reads what the shapes say.
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
		_ = json.Unmarshal(c["dot_product_dimension"], &dim) // not told by a table: as given, or as the gates say
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

// componentLength finds D: the gates have (queryOut/D + tables)·(itemOut/D) outputs,
// and that falls with D. It returns 0 if none fits.
func componentLength(queryOut, itemOut, tables, pairs int) int {
	for dim := 1; dim <= min(queryOut, itemOut); dim++ {
		if queryOut%dim == 0 && itemOut%dim == 0 && (queryOut/dim+tables)*(itemOut/dim) == pairs {
			return dim
		}
	}
	return 0
}

// side tells of a projection, and returns the length of what it gives.
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

// gates tells of the parts of the gates, and returns L.
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

// tables tells of the user-id embeddings, and returns their number and D.
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

func matrixShape(w tensor.Set, name string) (shape [2]int, ok bool) {
	t, ok := w[name]
	if !ok || len(t.Shape) != 2 {
		return shape, false
	}
	return [2]int(t.Shape), true
}

func sortedNames(t tensor.Set) []string { return slices.Sorted(maps.Keys(t)) }
