package model

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/distilled"
)

// Description describes a model, for people and as JSON.
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
	Probes     []string          `json:"probes"`              // names of the learned probes' heads, the preferred one first
	Companion  int               `json:"companion,omitempty"` // numbers of an item's vector in a learned companion, where the model has one
	Parameters int               `json:"parameters"`          // count of the numbers in all tensors, including the probes'
	Tensors    []TensorShape     `json:"tensors"`
	Config     json.RawMessage   `json:"config"`
	Provenance map[string]string `json:"provenance,omitempty"`
}

// TensorShape is the name and shape of a tensor.
type TensorShape struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// Describe returns the description of the model. Tensors are ordered by name.
func (m *Model) Describe() Description {
	spec := m.Spec()
	d := Description{
		Name: m.Name, Version: m.Version, Kind: spec.Kind,
		QueryDim: spec.QueryDim, ItemDim: spec.ItemDim, Features: spec.Features,
		Normalise: spec.Normalise, UserIDs: spec.UserIDs, OneProbe: spec.SingleInnerProduct,
		Pairs: [2]int{spec.PairsQuery, spec.PairsItem}, Probes: m.heads(),
		Config: m.config, Provenance: m.Provenance,
	}
	if m.tensors.Has(companion.Out) {
		d.Companion = m.tensors[companion.Out].Shape[0]
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

// heads returns the names of the learned probes' heads. The first is the default.
func (m *Model) heads() []string {
	probes, err := distilled.Read(m.tensors, m.Spec().QueryDim, m.Spec().ItemDim)
	if err != nil {
		return nil // cannot happen: the similarity was built from the same tensors
	}
	return append([]string{}, probes.Names()...)
}
