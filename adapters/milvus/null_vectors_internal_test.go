package milvus

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/adapters"
)

// TestNullVectors decodes columns of a nullable vector field, whose null rows a server
// leaves out or fills.
func TestNullVectors(t *testing.T) {
	made := func(valid []bool, data ...float32) fieldSet {
		return fieldSet{"v": &schemapb.FieldData{FieldName: "v", ValidData: valid, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: 2, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: data}},
		}}}}
	}
	col := column{vectorColumn: vectorColumn{name: "v"}, dim: 2}
	for name, set := range map[string]fieldSet{
		"left out": made([]bool{false, true, false, true}, 1, 2, 3, 4),
		"filled":   made([]bool{false, true, false, true}, 0, 0, 1, 2, 0, 0, 3, 4),
	} {
		m, err := set.vectors(col, 0, 4)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows := adapters.Rows{Vectors: append(adapters.Rows{}.Vectors, m)}
		for i, want := range []bool{false, true, false, true} {
			if adapters.HasVectors(rows, i) != want || !want && !math.IsNaN(float64(m.Row(i)[1])) {
				t.Errorf("%s: row %d is %v", name, i, m.Row(i))
			}
		}
		if !slices.Equal(m.Row(1), []float32{1, 2}) || !slices.Equal(m.Row(3), []float32{3, 4}) {
			t.Errorf("%s: %v", name, m.Data)
		}
	}
	if _, err := made(nil, 1, 2).vectors(col, 0, 2); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a reply that is too short: %v", err)
	}
	if m, err := made(nil, 1, 2, 3, 4).vectors(col, 1, 1); err != nil || !slices.Equal(m.Data, []float32{3, 4}) {
		t.Errorf("%v, %v", m, err)
	}
}
