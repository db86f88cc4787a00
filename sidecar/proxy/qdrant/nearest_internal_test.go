package qdrant

import (
	"slices"
	"testing"

	"github.com/qdrant/go-client/qdrant"
)

// TestNearestOf: a query has the vector that it names. A fusion has one if all its dense prefetches
// search the same field by the same vector.
func TestNearestOf(t *testing.T) {
	one, two := []float32{1, 2}, []float32{2, 1}
	near := func(field string, vector []float32) *qdrant.PrefetchQuery {
		return &qdrant.PrefetchQuery{Using: &field, Query: qdrant.NewQueryDense(vector)}
	}
	sparse := &qdrant.PrefetchQuery{Query: qdrant.NewQuerySparse([]uint32{1}, one)}
	fusion := func(prefetch ...*qdrant.PrefetchQuery) *qdrant.QueryPoints {
		return &qdrant.QueryPoints{Query: qdrant.NewQueryFusion(qdrant.Fusion_RRF), Prefetch: prefetch}
	}
	for name, c := range map[string]struct {
		query *qdrant.QueryPoints
		field string
		want  []float32
	}{
		"nearest":              {&qdrant.QueryPoints{Using: qdrant.PtrOf("v"), Query: qdrant.NewQueryDense(one), Prefetch: []*qdrant.PrefetchQuery{near("w", two)}}, "v", one},
		"by id":                {&qdrant.QueryPoints{Using: qdrant.PtrOf("v"), Query: qdrant.NewQueryID(qdrant.NewIDNum(1))}, "v", nil},
		"a fusion of one":      {fusion(near("v", one), sparse), "v", one},
		"a fusion of the same": {fusion(sparse, near("v", one), near("v", slices.Clone(one))), "v", one},
		"of two vectors":       {fusion(near("v", one), near("v", two)), "", nil},
		"of two fields":        {fusion(near("v", one), near("w", one)), "", nil},
		"of sparse ones":       {fusion(sparse), "", nil},
		"the order of a key":   {&qdrant.QueryPoints{Query: qdrant.NewQueryOrderBy(&qdrant.OrderBy{Key: "k"}), Prefetch: []*qdrant.PrefetchQuery{near("v", one)}}, "", nil},
	} {
		if field, vector := nearestOf(c.query); field != c.field || !slices.Equal(vector, c.want) {
			t.Errorf("%s: %q, %v", name, field, vector)
		}
	}
}
