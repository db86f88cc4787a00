package model

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank/tensor"
)

// Difference lists the differences between two models.
type Difference struct {
	A Identity `json:"a"`
	B Identity `json:"b"`
	// SameVersion: the two models give the same scores.
	SameVersion bool               `json:"same_version"`
	Config      []Change           `json:"config"`
	Tensors     []TensorDifference `json:"tensors"`
	Provenance  []Change           `json:"provenance"`
}

// Identity identifies a model.
type Identity struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// Change is a key whose values differ. An empty value means that the model lacks the key.
type Change struct {
	Key string `json:"key"`
	A   string `json:"a,omitempty"`
	B   string `json:"b,omitempty"`
}

// TensorDifference describes a tensor that differs. If the shapes are equal, the numbers
// are compared.
type TensorDifference struct {
	Name   string `json:"name"`
	ShapeA []int  `json:"shape_a,omitempty"`
	ShapeB []int  `json:"shape_b,omitempty"`
	// Changed out of Elements numbers differ, by at most MaxAbs.
	Elements int     `json:"elements,omitempty"`
	Changed  int     `json:"changed,omitempty"`
	MaxAbs   float64 `json:"max_abs_difference,omitempty"`
}

// Diff compares the configuration, tensors and provenance of two models, each in the order
// of its keys.
func Diff(a, b *Model) *Difference {
	d := &Difference{
		A: a.identity(), B: b.identity(), SameVersion: a.Version == b.Version,
		Config:     changes(members(a.config), members(b.config)),
		Tensors:    []TensorDifference{},
		Provenance: changes(a.Provenance, b.Provenance),
	}
	names := slices.AppendSeq(sortedNames(a.tensors), maps.Keys(b.tensors))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if t := diffTensor(name, a.tensors, b.tensors); t != nil {
			d.Tensors = append(d.Tensors, *t)
		}
	}
	return d
}

func (m *Model) identity() Identity {
	return Identity{Name: m.Name, Version: m.Version, Kind: string(m.Spec().Kind)}
}

// members returns the values of a JSON object, as text.
func members(config json.RawMessage) map[string]string {
	var raw map[string]json.RawMessage
	_ = json.Unmarshal(config, &raw) // cannot fail: New has parsed it
	texts := make(map[string]string, len(raw))
	for key, value := range raw {
		texts[key] = string(value)
	}
	return texts
}

func changes(a, b map[string]string) []Change {
	found := []Change{}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if a[key] != b[key] {
			found = append(found, Change{Key: key, A: a[key], B: b[key]})
		}
	}
	return found
}

func diffTensor(name string, a, b tensor.Set) *TensorDifference {
	x, inA := a[name]
	y, inB := b[name]
	t := &TensorDifference{Name: name, ShapeA: x.Shape, ShapeB: y.Shape}
	if !inA || !inB || !slices.Equal(x.Shape, y.Shape) {
		return t
	}
	t.Elements = len(x.Data)
	for i, v := range x.Data {
		if w := y.Data[i]; v != w {
			t.Changed++
			t.MaxAbs = max(t.MaxAbs, math.Abs(float64(v)-float64(w)))
		}
	}
	if t.Changed == 0 {
		return nil
	}
	return t
}
