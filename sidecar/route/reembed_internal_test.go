package route

import (
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
)

// TestReembedWantsABridge: a model that maps queries, or weighs several logits, does not compare a query's
// vector with a new vector of an item.
func TestReembedWantsABridge(t *testing.T) {
	for _, name := range []string{"banking77-questions-mol", "banking77-questions-bilinear", "banking77-mol"} {
		m, err := model.Open("../../examples/models/" + name)
		if err != nil {
			t.Fatal(err)
		}
		c := &Checked{Route: Route{Policy: config.DefaultPolicy(), Parts: Parts{Model: Model{Name: name, Similarity: m.Similarity}}}}
		c.Name, c.Placement, c.Reembed.Text, c.Spec, c.ModelCan = "r", PlacementDerived, "text", m.Spec(), rerank.AbilitiesOf(m.Similarity)
		if err := c.checkReembedding(); !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), "reembed is for a bridge") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
