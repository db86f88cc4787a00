package main

import (
	"io"
	"math"
	"testing"
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
			if got := inner(a, b); math.Abs(got-want) > 1e-12 {
				t.Fatalf("rows %d and %d have the product %v, want %v", i, j, got, want)
			}
		}
	}
}
