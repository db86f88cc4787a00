package model

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
)

// Description is what a model says of itself, for people and for JSON.
type Description struct {
	Name       string            `json:"name"`
	Version    string            `json:"version"`
	Kind       rerank.Kind       `json:"kind"`
	QueryDim   int               `json:"query_dim"`
	ItemDim    int               `json:"item_dim"`
	Features   int               `json:"features"` // length of an item's feature row
	Normalise  bool              `json:"normalise"`
	UserIDs    bool              `json:"user_ids"`
	OneProbe   bool              `json:"single_inner_product"`
	MaxScore   *float32          `json:"max_score,omitempty"` // absent if no bound is known
	Pairs      [2]int            `json:"pairs"`               // P_Q and P_X
	Probes     []string          `json:"probes"`              // heads of the learned probes, the preferred one first
	Parameters int               `json:"parameters"`          // numbers in all tensors, the probes' included
	Tensors    []TensorShape     `json:"tensors"`
	Config     json.RawMessage   `json:"config"`
	Provenance map[string]string `json:"provenance,omitempty"`
}

// TensorShape is a tensor without its numbers.
type TensorShape struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// Describe returns what the model says of itself; tensors come in the order of
// their names.
func (m *Model) Describe() Description {
	spec := m.Spec()
	d := Description{
		Name: m.Name, Version: m.Version, Kind: spec.Kind,
		QueryDim: spec.QueryDim, ItemDim: spec.ItemDim, Features: spec.Features,
		Normalise: spec.Normalise, UserIDs: spec.UserIDs, OneProbe: spec.SingleInnerProduct,
		Pairs: [2]int{spec.PairsQuery, spec.PairsItem}, Probes: m.heads(),
		Config: m.config, Provenance: m.Provenance,
	}
	if !math.IsInf(float64(spec.MaxScore), 0) {
		d.MaxScore = &spec.MaxScore
	}
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		t := m.tensors[name]
		d.Tensors = append(d.Tensors, TensorShape{Name: name, Shape: t.Shape})
		d.Parameters += len(t.Data)
	}
	return d
}

// heads are the learned probes, the one that is used unless another is named first.
func (m *Model) heads() []string {
	probes, err := distilled.Read(m.tensors, m.Spec().QueryDim, m.Spec().ItemDim)
	if err != nil {
		return nil // never: the similarity was built of the same tensors
	}
	return append([]string{}, probes.Names()...)
}
