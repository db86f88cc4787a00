package main

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/qdrant/go-client/qdrant"
)

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{
		{"-questions", "0", "-data", "../../examples/data/banking77"}, {"-data", "/does/not/exist"}, {"-nonsense"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if err := run(t.Context(), []string{"-help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("-help: %v", err)
	}
}

// TestRandomRotation: the rows are orthogonal and of length 1.
func TestRandomRotation(t *testing.T) {
	rows := randomRotation(40)
	for i, a := range rows {
		for j, b := range rows {
			want := 0.0
			if i == j {
				want = 1
			}
			if got := inner(a, b); !(math.Abs(got-want) <= 1e-12) {
				t.Fatalf("rows %d and %d have the product %v, want %v", i, j, got, want)
			}
		}
	}
}

// TestRecallOf: the index is compared with an exhaustive search of the vectors themselves.
func TestRecallOf(t *testing.T) {
	widest := widths()[3].params
	search := func(v []float32, params *qdrant.SearchParams) ([]uint64, error) {
		switch {
		case params.GetExact() && params.GetQuantization().GetIgnore():
			return []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, nil
		case params == widest:
			return []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, uint64(10 + v[0])}, nil
		}
		return nil, errors.New("searched otherwise")
	}
	if got, err := recallOf(search, [][]float32{{0}, {1}}, widest); got != 0.95 || err != nil {
		t.Errorf("recall %v, %v; want .95", got, err)
	}
	if _, err := recallOf(search, [][]float32{{0}}, nil); err == nil {
		t.Error("a search that fails has a recall")
	}
}
