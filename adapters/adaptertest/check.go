package adaptertest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// expectedScores holds the expected scores of a list: the score of every row that may be in
// it.
type expectedScores struct {
	scores map[rerank.ID]float64
	sorted []float64 // scores in descending order
}

func want(f Fixture, field int, probe []float32, keep func(row int) bool) expectedScores {
	w := expectedScores{scores: map[rerank.ID]float64{}}
	for r, s := range exactScores(f, field, probe) {
		if keep == nil || keep(r) {
			w.scores[f.Rows.IDs[r]] = s
			w.sorted = append(w.sorted, s)
		}
	}
	slices.Sort(w.sorted)
	slices.Reverse(w.sorted)
	return w
}

// checkList compares a list with a brute-force search in float64. Every score must be
// within the list's epsilon, rows must be in order and without duplicates, and an
// exact list must not lack a better row. Rows whose scores differ by less than twice
// epsilon may be in either order.
func (w expectedScores) checkList(t testing.TB, l rerank.List, depth int) {
	t.Helper()
	if len(l.Scores) != len(l.IDs) {
		t.Fatalf("%d scores for %d ids", len(l.Scores), len(l.IDs))
	}
	if n := len(w.sorted); n > 0 {
		size := max(1, math.Abs(w.sorted[0]), math.Abs(w.sorted[n-1]))
		if e := float64(l.Epsilon); !(e >= 0 && e < size/1000) {
			t.Errorf("epsilon is %v for scores of %.3g", l.Epsilon, size)
		}
	}
	w.checkRows(t, l)
	if !l.Exact {
		return
	}
	if n := min(depth, len(w.sorted)); len(l.IDs) != n {
		t.Fatalf("an exact list of depth %d has %d rows of %d", depth, len(l.IDs), len(w.sorted))
	}
	if l.Exhausted && len(l.IDs) != len(w.sorted) {
		t.Errorf("the list of %d rows says that it is exhausted; there are %d", len(l.IDs), len(w.sorted))
	}
	for i, s := range l.Scores {
		if d := math.Abs(float64(s) - w.sorted[i]); d > 2*float64(l.Epsilon) {
			t.Errorf("row %d scores %v, brute force %v, more than 2·%v apart", i, s, w.sorted[i], l.Epsilon)
		}
	}
}

func (w expectedScores) checkRows(t testing.TB, l rerank.List) {
	t.Helper()
	seen := map[rerank.ID]bool{}
	for i, id := range l.IDs {
		s, ok := w.scores[id]
		if !ok {
			t.Errorf("row %d, id %v, should not be there", i, id)
			continue
		}
		if seen[id] {
			t.Errorf("id %v occurs twice", id)
		}
		seen[id] = true
		if d := math.Abs(float64(l.Scores[i]) - s); d > float64(l.Epsilon) {
			t.Errorf("row %d, id %v: score %v, in float64 %v, more than %v apart", i, id, l.Scores[i], s, l.Epsilon)
		}
		if i == 0 {
			continue
		}
		a, b := rerank.Scored{ID: l.IDs[i-1], Score: l.Scores[i-1]}, rerank.Scored{ID: id, Score: l.Scores[i]}
		if !rerank.Better(a, b) {
			t.Errorf("rows %d and %d are out of order: %v, then %v", i-1, i, a, b)
		}
	}
}

// checkLists checks exact lists of one field of a fixture.
func (e *env) checkLists(t *testing.T, f Fixture, field int, probes []rerank.Probe, lists []rerank.List, keep func(int) bool) {
	t.Helper()
	for i, p := range probes {
		if !e.lacks(Exact) && !lists[i].Exact {
			t.Errorf("list %d: exact search was asked and the list does not say that it is exact", i)
		}
		want(f, field, p.Vector, keep).checkList(t, lists[i], p.Depth)
		if t.Failed() {
			t.Fatalf("probe %d, field %q", i, f.Fields[field].Name)
		}
	}
}

func sameIDs(got, want []rerank.ID) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("ids are %v, want %v", got, want)
	}
	return nil
}

// sameVectors compares rows bit for bit. order gives the expected rows.
func sameVectors(got, from rerank.Matrix, order []int) error {
	if got.Rows != len(order) || got.Cols != from.Cols {
		return fmt.Errorf("the vectors are %d×%d, want %d×%d", got.Rows, got.Cols, len(order), from.Cols)
	}
	for i, r := range order {
		if !slices.Equal(got.Row(i), from.Row(r)) {
			return fmt.Errorf("vector %d is %v…, want %v…", i, got.Row(i)[0], from.Row(r)[0])
		}
	}
	return nil
}
