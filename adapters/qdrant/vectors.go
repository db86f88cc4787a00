package qdrant

import (
	"math"

	"github.com/qdrant/go-client/qdrant"
)

// vectorsSelector requests the vectors of the fields.
func vectorsSelector(fields []*field) *qdrant.WithVectorsSelector {
	if len(fields) == 0 {
		return qdrant.NewWithVectors(false)
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return qdrant.NewWithVectorsInclude(names...)
}

// vectorOf returns a point's vector, or nil if the point lacks it.
func vectorOf(v *qdrant.VectorsOutput, name string) []float32 {
	one := v.GetVectors().GetVectors()[name]
	if one == nil && name == "" {
		one = v.GetVector()
	}
	if data := one.GetDenseVector().GetData(); data != nil {
		return data
	}
	return one.GetData() //nolint:staticcheck // servers before 1.16 fill it
}

// multiVectors returns the vectors of a point in a field with several a row, in pieces of whole vectors.
func multiVectors(v *qdrant.VectorsOutput, name string) (pieces [][]float32) {
	all := v.GetVectors().GetVectors()[name]
	if all == nil && name == "" {
		all = v.GetVector()
	}
	for _, one := range all.GetMultiDense().GetVectors() {
		pieces = append(pieces, one.GetData())
	}
	if pieces == nil {
		pieces = append(pieces, all.GetData()) //nolint:staticcheck // servers before 1.16 fill it
	}
	return pieces
}

// copyVector copies a point's vector. A missing vector becomes NaNs, so that the point
// ranks last and is counted wherever it is scored.
func copyVector(dst []float32, v *qdrant.VectorsOutput, name string) {
	if copy(dst, vectorOf(v, name)) == len(dst) {
		return
	}
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
}
