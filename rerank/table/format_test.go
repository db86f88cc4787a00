package table_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// packed are metas of every format and layout, with and without full precision.
func packed() map[string]table.Meta {
	all := map[string]table.Meta{}
	for _, f := range rerank.Formats() {
		for _, l := range []table.Layout{table.LayoutRows, table.LayoutTiles} {
			for name, full := range map[string]bool{"": false, ", full precision": true} {
				m := meta
				m.Features, m.Block, m.Format, m.Layout = 11, 4, f, l
				m.Full = full && (f != rerank.FormatFloat32 || l != table.LayoutRows)
				all[string(f)+" "+string(l)+name] = m
			}
		}
	}
	return all
}

// TestFormats builds tables of every format at once, with an interruption, and
// in memory, and wants all to hold the same rows, within what they say they lost.
func TestFormats(t *testing.T) {
	const items = 37
	rng := rand.New(rand.NewPCG(1, 2))
	for name, m := range packed() {
		t.Run(name, func(t *testing.T) {
			rows, ids := rerank.NewMatrix(items, m.Features), make([]rerank.ID, items)
			for i := range rows.Data {
				rows.Data[i] = float32(rng.NormFloat64())
			}
			for i := range ids {
				ids[i] = rerank.UintID(uint64(3 * i))
			}
			memory, err := table.FromMemory(m, ids, rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			file := open(t, interrupted(t, m, ids, rows))
			if !slices.Equal(file.Packed().Words, memory.Packed().Words) {
				t.Fatal("the file's rows are not those in memory")
			}
			for _, tab := range []*table.Table{file, memory} {
				checkRows(t, tab, rows)
			}
		})
	}
}

// interrupted writes a table with a checkpoint within it, and what follows twice.
func interrupted(t *testing.T, m table.Meta, ids []rerank.ID, rows rerank.Matrix) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t")
	w, err := table.NewWriter(path, m)
	if err != nil {
		t.Fatal(err)
	}
	half := len(ids) / 2
	err = errors.Join(w.Append(ids[:half], rows.Slice(0, half)), w.Checkpoint("half"), w.Append(ids[half:], rows.Slice(half, rows.Rows)), w.Abort())
	if err != nil {
		t.Fatal(err)
	}
	w, cursor, err := table.Resume(path, m)
	if err != nil || cursor != "half" {
		t.Fatalf("Resume: cursor %q, %v", cursor, err)
	}
	if err := errors.Join(w.Append(ids[half:], rows.Slice(half, rows.Rows)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func checkRows(t *testing.T, tab *table.Table, want rerank.Matrix) {
	t.Helper()
	m, loss, row := tab.Meta(), tab.Loss(), make([]float32, want.Cols)
	if tab.Rounded() != (m.Format != rerank.FormatFloat32) {
		t.Errorf("it is rounded: %t", tab.Rounded())
	}
	for r := range want.Rows {
		x := want.Row(r)
		tab.Row32(row, r)
		if d := distance(x, row); d > float64(loss.Row.Lost) || rerank.Norm(x) > float64(loss.Row.Norm) {
			t.Fatalf("row %d lost %v, the table says %+v", r, d, loss.Row)
		}
		for b, e := range loss.Blocks {
			from, to := tab.Packed().Values(b)
			if distance(x[from:to], row[from:to]) > float64(e.Lost) {
				t.Fatalf("block %d of row %d lost more than %v", b, r, e.Lost)
			}
		}
	}
	full, ok := tab.Full()
	if ok != (m.Full || tab.Features().Rows > 0) || ok && !slices.Equal(full.Data, want.Data) {
		t.Errorf("full precision: %t, %d numbers", ok, len(full.Data))
	}
	for _, from := range []int{3, 16} { // within a tile, and where one begins
		part := tab.Slice(from, from+4)
		for i := range part.Len() {
			r := i
			if part.Rows != nil {
				r = int(part.Rows[i])
			}
			tab.Row32(row, from+i)
			if got := part.Row(r, make([]float32, want.Cols)); !slices.Equal(got, row) {
				t.Fatalf("Slice from %d has %v, want %v", from, got, row)
			}
		}
	}
}

// TestVersion1 reads a table that was written before there were formats.
func TestVersion1(t *testing.T) {
	tab := open(t, filepath.Join("testdata", "version1.table"))
	ids := idCases()["mixed"]
	checkIDs(t, tab, ids)
	if got := tab.Features(); !slices.Equal(got.Data, features(len(ids)).Data) {
		t.Errorf("features = %v", got)
	}
	if tab.Rounded() || tab.Meta().Format != rerank.FormatFloat32 || !math.IsInf(float64(tab.Loss().Row.Norm), 1) {
		t.Errorf("%+v, %+v", tab.Meta(), tab.Loss())
	}
	path := filepath.Join(t.TempDir(), "t")
	save(t, path, read(t, filepath.Join("testdata", "version1.table")))
	l := openLive(t, path, table.LiveOptions{})
	if err := errors.Join(l.Delete(ids[:1]), l.Compact(), l.Close()); err != nil {
		t.Fatal(err)
	}
	checkIDs(t, open(t, path), ids[1:])
}

// TestDamageOfFormats flips bits of a file that has every section.
func TestDamageOfFormats(t *testing.T) {
	m := meta
	m.Format, m.Layout, m.Full = rerank.FormatInt8, table.LayoutTiles, true
	path := interrupted(t, m, idCases()["text"], features(4))
	good := read(t, path)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		bad := slices.Clone(good)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		save(t, path, bad)
		if _, err := table.Open(path, table.Expect{}); !errors.Is(err, table.ErrTable) {
			t.Fatalf("err = %v, want ErrTable", err)
		}
	}
}

// TestNoAllocation: finding candidates and handing them to Score allocates
// nothing, on a snapshot too.
func TestNoAllocation(t *testing.T) {
	for name, ids := range idCases() {
		path := build(t, ids)
		l := openLive(t, path, table.LiveOptions{})
		items, missing, scratch := make([]int32, 0, 8), make([]int, 0, 8), rerank.Items{}
		if n := testing.AllocsPerRun(100, func() {
			snap := l.Snapshot()
			items, missing = snap.Lookup(ids, items[:0], missing[:0])
			_ = snap.Items(items, &scratch)
			snap.Release()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
