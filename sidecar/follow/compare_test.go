package follow

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// tableOf creates a table of float16 rows, with full-precision rows if full is set.
func tableOf(t *testing.T, full bool, ids []rerank.ID, features rerank.Matrix) *table.Table {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t")
	w, err := table.NewWriter(path, table.Meta{
		Model: "m", ModelVersion: "v", Collection: "items", Kind: "dot", Features: features.Cols, Format: rerank.FormatFloat16, Full: full,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ids, features); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	open, err := table.Open(path, table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close() })
	return open
}

// TestCompareTable: a row differs from a table if any of its numbers differs in the table's format,
// or in full precision if the table keeps it.
func TestCompareTable(t *testing.T) {
	const cols = 5
	tooLarge := float32(1e6) // too large for float16
	features := rerank.NewMatrix(6, cols)
	for i := range features.Data {
		features.Data[i] = float32(i + 1)
	}
	for _, full := range []bool{false, true} {
		tab := tableOf(t, full, idsOf(0, 1, 2, 3, 4, 5), features)
		r := rows{ids: idsOf(0, 7, 8, 1), features: rerank.NewMatrix(4, cols), underivable: idsOf(2, 9)}
		for i := range r.ids {
			copy(r.features.Row(i), features.Row(i))
		}
		copy(r.features.Row(3), features.Row(1))
		r.features.Row(2)[0] = tooLarge
		r.features.Row(3)[0] = tooLarge
		ids, drift := compareTable(tab, r)
		if want := (Drift{Missing: 1, Surplus: 2, Unfit: 2}); drift != want || !slices.Equal(ids, idsOf(7, 1, 2)) {
			t.Errorf("full %t: %v, %+v, want %+v", full, ids, drift, want)
		}
		for col := range cols {
			r := rows{ids: idsOf(3, 4, 5), features: rerank.NewMatrix(3, cols)}
			copy(r.features.Data, features.Data[3*cols:])
			r.features.Row(0)[col]++                                                        // in any format
			r.features.Row(1)[col] = math.Nextafter32(r.features.Row(1)[col], float32(1e9)) // in full precision alone
			ids, drift := compareTable(tab, r)
			want := idsOf(3)
			if full {
				want = idsOf(3, 4)
			}
			if !slices.Equal(ids, want) || drift.Changed != int64(len(want)) {
				t.Errorf("full %t, number %d: %v differ, want %v", full, col, ids, want)
			}
		}
	}
}

// TestCompareCompanionRows: a row differs from a companion that lacks it, has another vector or
// payload for it, or has it although no data is derived from it. Rows that were counted for the
// table do not count again.
func TestCompareCompanionRows(t *testing.T) {
	vectors := func(rows int) []rerank.Matrix {
		out := []rerank.Matrix{rerank.NewMatrix(rows, 2), rerank.NewMatrix(rows, 3)}
		for f := range out {
			for i := range out[f].Data {
				out[f].Data[i] = float32(f*100 + i)
			}
		}
		return out
	}
	r := rows{ids: idsOf(0, 1, 2, 3), underivable: idsOf(8, 9)}
	for range r.ids {
		r.payloads = append(r.payloads, []byte(`{"n":1}`))
	}
	compare := func(change func(have *adapters.Rows), known ...uint64) ([]rerank.ID, Drift) {
		have := adapters.Rows{IDs: idsOf(0, 1, 2, 3), Vectors: vectors(4)}
		for range have.IDs {
			have.Payloads = append(have.Payloads, []byte(`{"n": 1}`))
		}
		change(&have)
		return compareCompanionRows(r, vectors(4), have, idsOf(known...))
	}
	for name, c := range map[string]struct {
		change func(have *adapters.Rows)
		known  []uint64
		ids    []uint64
		drift  Drift
	}{
		"the same":       {func(*adapters.Rows) {}, nil, nil, Drift{}},
		"a vector":       {func(have *adapters.Rows) { have.Vectors[1].Row(2)[2]++ }, nil, []uint64{2}, Drift{Changed: 1}},
		"a payload":      {func(have *adapters.Rows) { have.Payloads[3] = []byte(`{"n":2}`) }, nil, []uint64{3}, Drift{Changed: 1}},
		"a missing row":  {func(have *adapters.Rows) { have.IDs[1] = rerank.UintID(77) }, nil, []uint64{1}, Drift{Missing: 1}},
		"a surplus row":  {func(have *adapters.Rows) { have.IDs[1] = rerank.UintID(9) }, nil, []uint64{1, 9}, Drift{Missing: 1, Surplus: 1}},
		"rows are known": {func(have *adapters.Rows) { have.IDs[1] = rerank.UintID(9) }, []uint64{1, 9}, nil, Drift{}},
	} {
		ids, drift := compare(c.change, c.known...)
		if !slices.Equal(ids, idsOf(c.ids...)) || drift != c.drift {
			t.Errorf("%s: %v, %+v, want %v, %+v", name, ids, drift, c.ids, c.drift)
		}
	}
}
