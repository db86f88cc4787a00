package derive

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
)

// Feature rows do not depend on how the rows were divided among the cores.
func TestEncodeRows(t *testing.T) {
	s, err := dot.New(dot.Config{Dim: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	base := rerank.NewMatrix(101, 3)
	for i := range base.Data {
		base.Data[i] = rng.Float32()
	}
	want := rerank.NewMatrix(base.Rows, s.Spec().Features)
	if err := s.EncodeItems(want, base); err != nil {
		t.Fatal(err)
	}
	if got, err := EncodeRows(s, base); err != nil || !slices.Equal(got.Data, want.Data) {
		t.Errorf("the rows differ from those of one call (%v)", err)
	}
	if empty, err := EncodeRows(s, rerank.Matrix{Cols: 3}); err != nil || empty.Rows != 0 {
		t.Errorf("no rows: %d, %v", empty.Rows, err)
	}
}

func TestFieldsWantADeriver(t *testing.T) {
	if _, err := Fields(nil, nil, rerank.Items{}); !errors.Is(err, ErrNoFields) {
		t.Errorf("got %v, want ErrNoFields", err)
	}
}
