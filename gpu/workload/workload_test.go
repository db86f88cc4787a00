package workload_test

import (
	"errors"
	"math"
	"testing"

	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device/cpu"
)

// TestNumber: bench/gpu/baseline.py makes the same tables. The wants are Python's.
func TestNumber(t *testing.T) {
	wants := []float32{-0.8063452243804932, -0.5713285207748413, 0.5556398630142212, 0.03846597671508789}
	for n, i := range []uint64{0, 1, 5, 1e9} {
		if x := workload.Number(7, i); x != wants[n] {
			t.Errorf("number %d is %v, want %v", i, x, wants[n])
		}
	}
}

// TestCandidates: each row comes once for a query, whatever the number of rows.
func TestCandidates(t *testing.T) {
	for _, rows := range []int{1, 2, 100, 7919, 2 * 7919} {
		for q, ids := range workload.Candidates(&workload.Case{Rows: rows, Candidates: rows, Batch: 3}) {
			seen := map[uint32]bool{}
			for _, id := range ids {
				if int(id) >= rows || seen[id] {
					t.Fatalf("%d rows, query %d: row %d twice, or not there", rows, q, id)
				}
				seen[id] = true
			}
		}
	}
}

// TestCheck: an answer that is not the CPU's is seen.
func TestCheck(t *testing.T) {
	for _, name := range []string{"rescore-8x4x64", "rbe-512"} {
		cases, err := workload.Named([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		w, err := workload.Make(cases[0].AtMost(100), 3)
		if err != nil {
			t.Fatal(err)
		}
		d := cpu.New(cpu.Options{})
		if err := w.Load(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		w.K = 10
		b, err := w.Ask(t.Context(), d, 1)
		if err != nil || w.Check(1, b) != nil {
			t.Fatal(err, w.Check(1, b))
		}
		if w.Check(0, b) == nil {
			t.Errorf("%s: the answer to another query passed", name)
		}
		b.Scores[3] = float32(math.NaN())
		if w.Check(1, b) == nil {
			t.Errorf("%s: a score that is not a number passed", name)
		}
	}
	if _, err := workload.Named([]string{"none"}); !errors.Is(err, workload.ErrCase) {
		t.Error(err)
	}
}
