package model

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// molKeys are the RAILS names of the hyper-parameters that affect a MoL's score.
var molKeys = []string{
	"query_embedding_dim", "item_embedding_dim", "dot_product_dimension",
	"query_dot_product_groups", "item_dot_product_groups", "temperature", "dot_product_l2_norm", "eps",
	"query_hidden_dim", "query_nonlinearity", "item_hidden_dim", "item_nonlinearity",
	"gating_query_fn", "gating_item_fn", "gating_query_hidden_dim", "gating_item_hidden_dim", "gating_qi_hidden_dim",
	"gating_combination_type", "softmax_dropout_rate", "uid_embedding_hash_sizes", "components_given",
}

// requiredKeys are keys that a configuration must contain, because the weights do not
// reveal them and a default would silently change every score. Other missing keys are
// detected by the kind's own check.
var requiredKeys = map[rerank.Kind][]string{
	rerank.KindMoL: {"temperature", "dot_product_l2_norm", "gating_combination_type"},
}

// bilinearKeys are the keys of a bilinear form's configuration.
var bilinearKeys = []string{"query_embedding_dim", "item_embedding_dim", "form"}

// importConfig returns the JSON of the kind's Config.
func importConfig(kind rerank.Kind, c map[string]json.RawMessage, normalise bool) (json.RawMessage, error) {
	keys := molKeys
	if kind == rerank.KindBilinear {
		keys = bilinearKeys
	}
	for _, key := range requiredKeys[kind] {
		if value, ok := c[key]; !ok || string(value) == "null" {
			return nil, fmt.Errorf("%q is missing; the weights do not say it, so the config must", key)
		}
	}
	kept := map[string]any{"normalise": normalise}
	for key, value := range c {
		if slices.Contains(keys, key) {
			kept[key] = value
		}
	}
	return json.Marshal(kept)
}
