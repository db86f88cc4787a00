package main

import (
	"io"
	"os"
	"syscall"
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

// TestBatches: every item of the step is written once, in calls of at most a batch.
func TestBatches(t *testing.T) {
	for _, c := range []struct{ end, step, calls uint64 }{{2500, 1, 3}, {2500, 3, 1}, {3001, 3, 2}, {1, 1, 1}, {0, 1, 0}} {
		next, calls := uint64(0), uint64(0)
		for ids := range batches(c.end, c.step) {
			if calls++; len(ids) > batch {
				t.Errorf("%+v: a call of %d items", c, len(ids))
			}
			for _, id := range ids {
				if id != next {
					t.Fatalf("%+v: item %d follows where %d is due", c, id, next)
				}
				next += c.step
			}
		}
		if next < c.end || calls != c.calls {
			t.Errorf("%+v: ends before item %d, after %d calls", c, next, calls)
		}
	}
	for share, want := range map[float64]int{0: 0, 0.1: 10, 0.3: 3, 1: 1} {
		if got := (settings{items: 1000, changed: share}).changedStep(); got != want {
			t.Errorf("a share of %v: every %d. item, want every %d.", share, got, want)
		}
	}
}

// TestResidentBytes: the memory of this process is as large as the system says elsewhere.
func TestResidentBytes(t *testing.T) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	now, err := held(os.Getpid())
	if got := residentBytes(&usage); err != nil || got < int64(now.Own) || got > 100*int64(now.Own) {
		t.Errorf("%d bytes at most, and %d of its own now, %v", got, now.Own, err)
	}
}
