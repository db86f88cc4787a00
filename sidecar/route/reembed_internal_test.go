package route

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/config"
)

// oneLogit is a Mixture-of-Logits of one logit that multiplies a query by a matrix before it compares it
// with what it makes of an item. With the identity it is a bridge.
func oneLogit(t *testing.T, query []float32) rerank.Similarity {
	t.Helper()
	const queryName, itemName, gate = "_query_embeddings_fn._query_emb_proj_module.1", "_item_embeddings_fn._item_emb_proj_module.1", "_gating_fn._query_only_partial_module"
	features := len(query) / 3
	settings, err := json.Marshal(mol.Config{
		QueryDim: 3, ItemDim: 2, Dim: features, PairsQuery: 1, PairsItem: 1, Temperature: 1, L2Norm: true, Normalise: true, GatingQueryHidden: 1, Combination: mol.None,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindMoL, Name: "m", Config: settings, Tensors: tensor.Set{
		queryName + ".weight": {Shape: []int{features, 3}, Data: query}, queryName + ".bias": {Shape: []int{features}, Data: make([]float32, features)},
		itemName + ".weight": {Shape: []int{features, 2}, Data: []float32{1, 0, 0, 1, 1, 1}[:2*features]}, itemName + ".bias": {Shape: []int{features}, Data: make([]float32, features)},
		gate + ".0.weight": {Shape: []int{1, 3}, Data: make([]float32, 3)}, gate + ".0.bias": {Shape: []int{1}, Data: make([]float32, 1)},
		gate + ".2.weight": {Shape: []int{1, 1}, Data: make([]float32, 1)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m.Similarity
}

// TestReembedWantsABridge: a model that maps queries, or weighs several logits, does not compare a query's
// vector with a new vector of an item.
func TestReembedWantsABridge(t *testing.T) {
	models := map[string]rerank.Similarity{
		"a bridge":                    oneLogit(t, []float32{1, 0, 0, 0, 1, 0, 0, 0, 1}),
		"a query that is turned":      oneLogit(t, []float32{0, 1, 0, 0, 0, 1, 1, 0, 0}),
		"a query that is turned away": oneLogit(t, []float32{-1, 0, 0, 0, -1, 0, 0, 0, -1}),
		"a query that is cut short":   oneLogit(t, []float32{1, 0, 0, 0, 1, 0}),
	}
	rows, err := maxsim.New(maxsim.Config{Dim: 3, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	models["the best of several rows"] = rows
	for _, name := range []string{"banking77-questions-mol", "banking77-questions-bilinear", "banking77-mol"} {
		m, err := model.Open("../../examples/models/" + name)
		if err != nil {
			t.Fatal(err)
		}
		models[name] = m.Similarity
	}
	for name, s := range models {
		c := &checking{Checked: Checked{Route: Route{Policy: config.DefaultPolicy(), Parts: Parts{Model: Model{Name: name, Similarity: s}}}}}
		c.Name, c.Placement, c.Reembed.Text, c.Spec, c.ModelCan = "r", PlacementDerived, "text", s.Spec(), rerank.AbilitiesOf(s)
		err := c.checkReembedding()
		if name == "a bridge" && err != nil || name != "a bridge" && (!errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), "reembed is for a bridge")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
