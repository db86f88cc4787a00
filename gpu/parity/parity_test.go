package parity_test

import (
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/gpu/parity"
)

// TestCheck: a machine in plain Go agrees with the CPU.
func TestCheck(t *testing.T) {
	d, err := gpu.New(func() (gpu.Machine, error) { return &hosted.Machine{Memory: 1 << 26}, nil }, gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	n := 0
	err = parity.Check(t.Context(), d, []parity.Shape{{PairsQuery: 2, PairsItem: 3, Dim: 8, Hidden: 4}}, parity.Options{Rows: 200, Queries: 2, K: 10}, func(r parity.Result) {
		n++
		if r.Failed != "" || r.Same != r.Queries {
			t.Errorf("%+v", r)
		}
	})
	if err != nil || n != 2 {
		t.Errorf("%d cases, %v", n, err)
	}
}
