package adaptertest

import (
	"runtime"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// verdict is a testing.TB that keeps a failure to itself.
type verdict struct {
	testing.TB

	failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) Fatalf(string, ...any) {
	v.failed = true
	runtime.Goexit()
}

// TestKitSeesLies: a true list passes, and each way of being wrong fails.
func TestKitSeesLies(t *testing.T) {
	f := Fixture{Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 1, "vec")}}
	f.Rows.IDs = numberIDs(6)
	// Scores along (1): ids 2 and 3 tie.
	f.Rows.Vectors = []rerank.Matrix{{Rows: 6, Cols: 1, Data: []float32{10, 8, 8, 6, 4, 2}}}
	truthful := func() rerank.List {
		return rerank.List{IDs: numberIDs(4), Scores: []float32{10, 8, 8, 6}, Exact: true, Epsilon: 1e-4}
	}
	for name, c := range map[string]struct {
		lie func(l *rerank.List)
		ok  bool
	}{
		"the truth":                        {func(*rerank.List) {}, true},
		"a rounding error":                 {func(l *rerank.List) { l.Scores[3] += 5e-5 }, true},
		"a short list that is not exact":   {func(l *rerank.List) { l.IDs, l.Scores, l.Exact = l.IDs[:2], l.Scores[:2], false }, true},
		"a score beyond its epsilon":       {func(l *rerank.List) { l.Scores[3] += 5e-4 }, false},
		"rows out of order":                {func(l *rerank.List) { swap(l, 2, 3) }, false},
		"a tie that does not fall by id":   {func(l *rerank.List) { swap(l, 1, 2) }, false},
		"a row twice":                      {func(l *rerank.List) { l.IDs[2] = l.IDs[1] }, false},
		"a row that is not there":          {func(l *rerank.List) { l.IDs[3] = rerank.UintID(77) }, false},
		"a better row missing":             {func(l *rerank.List) { l.IDs[3], l.Scores[3] = rerank.UintID(5), 4 }, false},
		"too few rows":                     {func(l *rerank.List) { l.IDs, l.Scores = l.IDs[:3], l.Scores[:3] }, false},
		"exhausted, and there are more":    {func(l *rerank.List) { l.Exhausted = true }, false},
		"more scores than ids":             {func(l *rerank.List) { l.Scores = append(l.Scores, 4) }, false},
		"an epsilon that covers all sins":  {func(l *rerank.List) { l.Epsilon = 1 }, false},
		"no row, and it says it has all":   {func(l *rerank.List) { *l = rerank.List{Exact: true, Exhausted: true} }, false},
		"a negative epsilon of exact rows": {func(l *rerank.List) { l.Epsilon = -1 }, false},
	} {
		l := truthful()
		c.lie(&l)
		v := &verdict{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			want(f, 0, []float32{1}, nil).checkList(v, l, 4)
		}()
		<-done
		if v.failed == c.ok {
			t.Errorf("%s: failed is %v", name, v.failed)
		}
	}
}

func swap(l *rerank.List, i, j int) {
	l.IDs[i], l.IDs[j] = l.IDs[j], l.IDs[i]
	l.Scores[i], l.Scores[j] = l.Scores[j], l.Scores[i]
}

// TestNamesOfCasesDiffer, so that each has its own row of the table.
func TestNamesOfCasesDiffer(t *testing.T) {
	names := CaseNames()
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("%d names for %d cases", n, len(names))
	}
}
