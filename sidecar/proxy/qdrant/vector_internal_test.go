package qdrant

import (
	"slices"
	"testing"

	"github.com/qdrant/go-client/qdrant"
)

// TestTheVectorOfAPoint: the vector that a route scores is found among those that a point
// came with, whatever their form.
func TestTheVectorOfAPoint(t *testing.T) {
	dense := &qdrant.VectorOutput{Vector: &qdrant.VectorOutput_Dense{Dense: &qdrant.DenseVector{Data: []float32{1, 2}}}}
	sparse := &qdrant.VectorOutput{Vector: &qdrant.VectorOutput_Sparse{Sparse: &qdrant.SparseVector{Values: []float32{1}, Indices: []uint32{3}}}}
	unnamed := &qdrant.ScoredPoint{Vectors: &qdrant.VectorsOutput{VectorsOptions: &qdrant.VectorsOutput_Vector{Vector: dense}}}
	named := &qdrant.ScoredPoint{Vectors: &qdrant.VectorsOutput{VectorsOptions: &qdrant.VectorsOutput_Vectors{
		Vectors: &qdrant.NamedVectorsOutput{Vectors: map[string]*qdrant.VectorOutput{"a": dense, "s": sparse}}}}}
	for _, c := range []struct {
		point *qdrant.ScoredPoint
		text  string
		field string
		found bool
	}{
		{unnamed, `[1,2]`, "", true},
		{unnamed, `[1,2]`, "a", false},
		{named, `{"a":[1,2],"s":{"values":[1],"indices":[3]}}`, "a", true},
		{named, `{"a":[1,2],"s":{"values":[1],"indices":[3]}}`, "s", false},
		{named, `{"a":[1,2],"s":{"values":[1],"indices":[3]}}`, "", false},
		{&qdrant.ScoredPoint{}, `null`, "", false},
		{nil, `[[1,2],[3,4]]`, "", false},
	} {
		var want []float32
		if c.found {
			want = []float32{1, 2}
		}
		if got := pointVector(c.point, c.field); !slices.Equal(got, want) {
			t.Errorf("field %q of %v: %v", c.field, c.point, got)
		}
		if got := vectorIn(object{{"vector", []byte(c.text)}}, c.field); !slices.Equal(got, want) {
			t.Errorf("field %q of %s: %v", c.field, c.text, got)
		}
	}
}
