package late

import (
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestScratchForgetsQueries: buffers that wait for the next call keep no query of the last one alive.
func TestScratchForgetsQueries(t *testing.T) {
	s, err := New(Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	one := rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}
	e, err := s.Encode(rerank.Query{Vectors: one})
	if err != nil {
		t.Fatal(err)
	}
	w := &scratch{}
	if err := w.score(make([]float32, 1), []*encoded{e.(*encoded)}, rerank.Items{Features: one}); err != nil {
		t.Fatal(err)
	}
	if len(w.products) != 1 || w.products[0] != nil {
		t.Errorf("kept: %v", w.products)
	}
}
