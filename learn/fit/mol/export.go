package mol

import (
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// tensors returns the parameters under their RAILS names (testdata/golden/README.md).
// The net has learned from vectors divided by these scales; the weights of the tensors
// are divided instead, so that they take the vectors as they are stored.
func (n *net) tensors(queryScale, itemScale float32) tensor.Set {
	t := tensor.Set{}
	const query, item = "_query_embeddings_fn._query_emb_proj_module", "_item_embeddings_fn._item_emb_proj_module"
	if n.query.gated == nil {
		putAffine(t, query+".1", n.query.out, queryScale)
	} else {
		g := n.query.gated
		w := rerank.NewMatrix(g.w.Cols, g.w.Rows) // (in, out), unlike a linear layer's
		for r := range g.w.Rows {
			for c, v := range g.w.Row(r) {
				w.Row(c)[r] = v / queryScale
			}
		}
		t[query+".1._w"] = tensor.Tensor{Shape: []int{w.Rows, w.Cols}, Data: w.Data}
		t[query+".1._b"] = tensor.Tensor{Shape: []int{1, g.w.Rows}, Data: slices.Clone(g.bias.Data)}
		putAffine(t, query+".2", n.query.out, 1)
	}
	putAffine(t, item+".1", n.item, itemScale)
	for i, table := range n.users {
		t[fmt.Sprintf("_query_embeddings_fn._uid_embeddings_%d.weight", i)] = tensor.Tensor{
			Shape: []int{table.Rows, table.Cols}, Data: slices.Clone(table.Data),
		}
	}
	putPerceptron(t, "_gating_fn._query_only_partial_module", 0, 2, n.gate, queryScale)
	if n.hasFullGates() {
		putPerceptron(t, "_gating_fn._item_only_partial_module", 1, 3, n.byItem, itemScale)
		putPerceptron(t, "_gating_fn._qi_partial_module", 1, 3, n.byPair, 1)
	}
	return t
}

// putPerceptron writes the layers under their places in a RAILS module. A single
// layer takes the first place.
func putPerceptron(t tensor.Set, name string, first, second int, p perceptron, scale float32) {
	if p.first == nil {
		putAffine(t, fmt.Sprintf("%s.%d", name, first), p.second, scale)
		return
	}
	putAffine(t, fmt.Sprintf("%s.%d", name, first), p.first, scale)
	putAffine(t, fmt.Sprintf("%s.%d", name, second), p.second, 1)
}

// putAffine writes a layer, with the weights divided by scale.
func putAffine(t tensor.Set, name string, a *affine, scale float32) {
	w := slices.Clone(a.w.Data)
	for i := range w {
		w[i] /= scale
	}
	t[name+".weight"] = tensor.Tensor{Shape: []int{a.w.Rows, a.w.Cols}, Data: w}
	if a.bias != nil {
		t[name+".bias"] = tensor.Tensor{Shape: []int{a.bias.Cols}, Data: slices.Clone(a.bias.Data)}
	}
}

// tensors returns the tensors of the net. For gates that depend on the item it adds the
// mean item, whose gates can weigh the averaged probe.
func (f *fitter) tensors(n *net, queryScale, itemScale float32) tensor.Set {
	t := n.tensors(queryScale, itemScale)
	if !n.hasFullGates() {
		return t
	}
	items := f.log.Items
	sum := make([]float64, items.Cols)
	for r := range items.Rows {
		for i, v := range items.Row(r) {
			sum[i] += float64(v)
		}
	}
	average := make([]float32, items.Cols)
	for i, v := range sum {
		average[i] = float32(v/float64(items.Rows)) * itemScale
	}
	t[distilled.Prefix+"mean_item"] = tensor.Tensor{Shape: []int{items.Cols}, Data: average}
	return t
}
