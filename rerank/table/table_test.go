package table_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

var meta = table.Meta{
	Model: "m", ModelVersion: "0123456789abcdef", Collection: "shop", Kind: "mol", Features: 3, Created: "2026-01-01T00:00:00Z",
	Format: rerank.FormatFloat32, Layout: table.LayoutRows,
}

func features(rows int) rerank.Matrix {
	m := rerank.NewMatrix(rows, meta.Features)
	for i := range m.Data {
		m.Data[i] = float32(i) / 4
	}
	return m
}

// idCases are all the forms in which ids are stored.
func idCases() map[string][]rerank.ID {
	return map[string][]rerank.ID{
		"empty":              {},
		"dense":              {rerank.UintID(0), rerank.UintID(1), rerank.UintID(2)},
		"unsigned":           {rerank.UintID(7), rerank.UintID(math.MaxUint64), rerank.UintID(0)},
		"signed":             {rerank.IntID(0), rerank.IntID(-5), rerank.IntID(math.MaxInt64), rerank.IntID(math.MinInt64)},
		"text":               {rerank.TextID("a"), rerank.TextID(""), rerank.TextID("7"), rerank.TextID("日本\x00")},
		"uuid":               {rerank.TextID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), rerank.TextID("00000000-0000-0000-0000-00000000000f")},
		"uuids, then a text": {rerank.TextID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), rerank.TextID("6BA7B810-9dad-11d1-80b4-00c04fd430c8"), rerank.UintID(1)},
		"mixed":              {rerank.UintID(0), rerank.UintID(math.MaxUint64), rerank.IntID(-1), rerank.TextID("0")},
	}
}

// build writes a table of one row an item and returns its path.
func build(t testing.TB, ids []rerank.ID) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.table")
	w, err := table.NewWriter(path, meta)
	if err != nil {
		t.Fatal(err)
	}
	all := features(len(ids))
	half := len(ids) / 2
	for _, part := range [][2]int{{0, half}, {half, len(ids)}} {
		if err := w.Append(ids[part[0]:part[1]], all.Slice(part[0], part[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string) *table.Table {
	t.Helper()
	tab, err := table.Open(path, table.Expect{ModelVersion: meta.ModelVersion, Collection: meta.Collection})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	return tab
}

func checkIDs(t *testing.T, tab *table.Table, ids []rerank.ID) {
	t.Helper()
	if tab.Len() != len(ids) {
		t.Fatalf("table has %d items, want %d", tab.Len(), len(ids))
	}
	for i, id := range ids {
		if got := tab.ID(i); got != id {
			t.Errorf("ID(%d) = %v, want %v", i, got, id)
		}
		if got, ok := tab.Find(id); !ok || got != i {
			t.Errorf("Find(%v) = %d, %v, want %d", id, got, ok, i)
		}
	}
	for _, id := range []rerank.ID{{}, rerank.UintID(99), rerank.IntID(-99), rerank.TextID("absent")} {
		if got, ok := tab.Find(id); ok {
			t.Errorf("Find(%v) = %d, want nothing", id, got)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for name, ids := range idCases() {
		t.Run(name, func(t *testing.T) {
			tab := open(t, build(t, ids))
			checkIDs(t, tab, ids)
			want := features(len(ids))
			if got := tab.Features(); !slices.Equal(got.Data, want.Data) || got.Rows != want.Rows || got.Cols != want.Cols {
				t.Errorf("features = %v, want %v", got, want)
			}
			wantMeta := meta
			wantMeta.Rows, wantMeta.Items = len(ids), len(ids)
			if tab.Meta() != wantMeta {
				t.Errorf("meta = %+v, want %+v", tab.Meta(), wantMeta)
			}
			memory, err := table.FromMemory(meta, ids, want, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkIDs(t, memory, ids)
		})
	}
}

func TestManyIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]rerank.ID, 0, 20_000)
	for i := range cap(ids) {
		if i%3 == 0 {
			ids = append(ids, rerank.TextID(fmt.Sprint("item-", i)))
		} else {
			ids = append(ids, rerank.UintID(rng.Uint64()))
		}
	}
	checkIDs(t, open(t, build(t, ids)), ids)
}

func TestGroups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.table")
	w, err := table.NewWriter(path, meta)
	if err != nil {
		t.Fatal(err)
	}
	all, ids, counts := features(6), []rerank.ID{rerank.TextID("a"), rerank.TextID("b"), rerank.TextID("c")}, []int{2, 1, 3}
	at := 0
	for i, n := range counts {
		if err := w.AppendGroup(ids[i], all.Slice(at, at+n)); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	memory, err := table.FromMemory(meta, ids, all, []int32{0, 2, 3, 6})
	if err != nil {
		t.Fatal(err)
	}
	for _, tab := range []*table.Table{open(t, path), memory} {
		checkIDs(t, tab, ids)
		if !tab.Grouped() || !slices.Equal(tab.All().Starts, []int32{0, 2, 3, 6}) {
			t.Errorf("starts = %v", tab.All().Starts)
		}
		if from, to := tab.Rows(2); from != 3 || to != 6 {
			t.Errorf("Rows(2) = %d, %d", from, to)
		}
		var scratch rerank.Items
		got := tab.Items([]int32{2, 0}, &scratch)
		if !slices.Equal(got.Rows, []int32{3, 4, 5, 0, 1}) || !slices.Equal(got.Starts, []int32{0, 3, 5}) {
			t.Errorf("Items = rows %v, starts %v", got.Rows, got.Starts)
		}
		if part := tab.Slice(1, 3); part.Len() != 2 || !slices.Equal(part.Starts, []int32{2, 3, 6}) {
			t.Errorf("Slice = %v", part.Starts)
		}
	}
}

func TestLookupAndItems(t *testing.T) {
	ids := idCases()["mixed"]
	tab := open(t, build(t, ids))
	items, missing := tab.Lookup([]rerank.ID{ids[3], rerank.UintID(5), ids[0], rerank.TextID("x")}, nil, nil)
	if !slices.Equal(items, []int32{3, 0}) || !slices.Equal(missing, []int{1, 3}) {
		t.Errorf("Lookup = %v, missing %v", items, missing)
	}
	if got := tab.Items(items, new(rerank.Items)); !slices.Equal(got.Rows, []int32{3, 0}) || got.Starts != nil {
		t.Errorf("Items = %+v", got)
	}
	if part := tab.Slice(1, 3); part.Len() != 2 || part.Features.Row(0)[0] != tab.Features().Row(1)[0] {
		t.Errorf("Slice = %+v", part)
	}
}

func TestOtherModelOrCollection(t *testing.T) {
	path := build(t, idCases()["dense"])
	for name, expect := range map[string]table.Expect{
		"version":    {ModelVersion: "feedfeedfeedfeed", Collection: meta.Collection},
		"collection": {ModelVersion: meta.ModelVersion, Collection: "warehouse"},
	} {
		_, err := table.Open(path, expect)
		if !errors.Is(err, table.ErrTable) {
			t.Errorf("%s: err = %v, want ErrTable", name, err)
		}
		t.Log(err)
	}
	if _, err := table.Open(path+".none", table.Expect{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want os.ErrNotExist", err)
	}
}

func TestWriterRefuses(t *testing.T) {
	dense := idCases()["dense"]
	cases := map[string]func(w *table.Writer) error{
		"row length":  func(w *table.Writer) error { return w.Append(dense[:1], rerank.NewMatrix(1, 2)) },
		"counts":      func(w *table.Writer) error { return w.Append(dense, features(2)) },
		"zero id":     func(w *table.Writer) error { return w.Append([]rerank.ID{{}}, features(1)) },
		"empty group": func(w *table.Writer) error { return w.AppendGroup(dense[0], features(0)) },
		"same id": func(w *table.Writer) error {
			return errors.Join(w.Append([]rerank.ID{dense[2], dense[2]}, features(2)), w.Close())
		},
	}
	for name, try := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w, err := table.NewWriter(filepath.Join(dir, "t"), meta)
			if err != nil {
				t.Fatal(err)
			}
			if err := try(w); !errors.Is(err, table.ErrTable) {
				t.Errorf("err = %v, want ErrTable", err)
			}
			if err := w.Abort(); err != nil {
				t.Error(err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v stayed", left)
			}
		})
	}
	long := meta
	long.Collection = string(make([]byte, 5000))
	if _, err := table.NewWriter(filepath.Join(t.TempDir(), "t"), long); !errors.Is(err, table.ErrTable) {
		t.Errorf("long name: err = %v", err)
	}
}

func TestFromMemoryRefuses(t *testing.T) {
	ids := []rerank.ID{rerank.TextID("a"), rerank.TextID("b")}
	cases := map[string]struct {
		ids    []rerank.ID
		rows   int
		starts []int32
	}{
		"counts":          {ids, 3, nil},
		"same id":         {[]rerank.ID{ids[0], ids[0]}, 2, nil},
		"zero id":         {[]rerank.ID{ids[0], {}}, 2, nil},
		"starts too few":  {ids, 3, []int32{0, 3}},
		"starts fall":     {ids, 3, []int32{0, 3, 3}},
		"starts beyond":   {ids, 3, []int32{0, 2, 4}},
		"starts negative": {ids, 3, []int32{0, -2, 3}},
	}
	for name, c := range cases {
		if _, err := table.FromMemory(meta, c.ids, features(c.rows), c.starts); !errors.Is(err, table.ErrTable) {
			t.Errorf("%s: err = %v, want ErrTable", name, err)
		}
	}
}

func TestResume(t *testing.T) {
	for name, ids := range idCases() {
		t.Run(name, func(t *testing.T) { resume(t, ids) })
	}
}

// resume interrupts a table behind its checkpoint and wants the same file in the end.
func resume(t *testing.T, ids []rerank.ID) {
	path, all := filepath.Join(t.TempDir(), "t"), features(len(ids))
	if _, _, err := table.Resume(path, meta); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("err = %v, want os.ErrNotExist", err)
	}
	w, err := table.NewWriter(path, meta)
	if err != nil {
		t.Fatal(err)
	}
	half := len(ids) / 2
	lost := rerank.TextID("lost")
	err = errors.Join(w.Append(ids[:half], all.Slice(0, half)), w.Checkpoint("row 1"),
		w.Append([]rerank.ID{lost}, features(1)), w.Abort())
	if err != nil {
		t.Fatal(err)
	}
	other := meta
	other.ModelVersion = "feed"
	if _, _, err := table.Resume(path, other); !errors.Is(err, table.ErrTable) {
		t.Fatalf("another version: err = %v, want ErrTable", err)
	}
	w, cursor, err := table.Resume(path, meta)
	if err != nil || cursor != "row 1" || w.Items() != half {
		t.Fatalf("Resume: %d items, cursor %q, %v", w.Items(), cursor, err)
	}
	if err := errors.Join(w.Append(ids[half:], all.Slice(half, len(ids))), w.Close()); err != nil {
		t.Fatal(err)
	}
	got, want := read(t, path), read(t, build(t, ids))
	if !slices.Equal(got, want) {
		t.Error("the resumed table is not the one built at once")
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("%v stayed", left)
	}
}

func TestResumeDamaged(t *testing.T) {
	for _, suffix := range []string{".part", ".part.ids", ".part.json"} {
		path, ids := filepath.Join(t.TempDir(), "t"), idCases()["text"]
		w, err := table.NewWriter(path, meta)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Append(ids, features(len(ids))), w.Checkpoint(""), w.Abort()); err != nil {
			t.Fatal(err)
		}
		b := read(t, path+suffix)
		b[len(b)-3] ^= 1
		if err := os.WriteFile(path+suffix, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := table.Resume(path, meta); !errors.Is(err, table.ErrTable) {
			t.Errorf("%s: err = %v, want ErrTable", suffix, err)
		}
	}
}

func TestConcurrentReaders(t *testing.T) {
	ids := idCases()["mixed"]
	tab := open(t, build(t, ids))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var scratch rerank.Items
			for range 100 {
				items, _ := tab.Lookup(ids, nil, nil)
				if got := tab.Items(items, &scratch); got.Len() != len(ids) {
					t.Errorf("%d items", got.Len())
				}
			}
		})
	}
	wg.Wait()
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
