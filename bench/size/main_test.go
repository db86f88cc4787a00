package main

import (
	"io"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{{"-items", "999"}, {"-dim", "0"}, {"-changed", "2"}, {"-binary", "/does/not/exist"}, {"-nonsense"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if err := run(t.Context(), []string{"-help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("-help: %v", err)
	}
}

// An item has one vector in an edition, near its centre, and others in other editions.
func TestItems(t *testing.T) {
	m, err := newMixture("../../examples/data/banking77/test_vectors.npy", 16)
	if err != nil {
		t.Fatal(err)
	}
	first, again, changed := m.item(5, 0), m.item(5, 0), m.item(5, 1)
	if dot(first, again) < 0.999999 || dot(first, changed) > 0.999999 {
		t.Errorf("products %v and %v of the same edition and another", dot(first, again), dot(first, changed))
	}
	if centre := m.centres.Row(5); dot(first, centre) < 0.95 || rerank.Norm(first) < 0.999 {
		t.Errorf("product %v with the centre, norm %v", dot(first, centre), rerank.Norm(first))
	}
}

func dot(a, b []float32) (sum float32) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
