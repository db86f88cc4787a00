package table_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// TestMerge: the table of parts is the one of a single build, in every format.
func TestMerge(t *testing.T) {
	ids := make([]rerank.ID, 100)
	features := rerank.NewMatrix(len(ids), 8)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
		for j := range features.Row(i) {
			features.Row(i)[j] = float32((i*7+j*3)%11) / float32(j+1)
		}
	}
	for _, format := range rerank.Formats() {
		of := table.Meta{Model: "m", ModelVersion: meta.ModelVersion, Collection: meta.Collection, Kind: "mol", Features: 8, Block: 8, Format: format, Full: format == rerank.FormatInt8}
		build := func(from, to int) *table.Table {
			path := filepath.Join(t.TempDir(), "t")
			w, err := table.NewWriter(path, of)
			if err == nil {
				err = errors.Join(w.Append(ids[from:to], features.Slice(from, to)), w.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			return open(t, path)
		}
		path := filepath.Join(t.TempDir(), "merged")
		if _, err := table.Merge(path, []*table.Table{build(0, 30), build(30, 31), build(31, 100)}); err != nil {
			t.Fatal(err)
		}
		whole, merged := build(0, 100), open(t, path)
		if !slices.Equal(whole.Packed().Words, merged.Packed().Words) || merged.Len() != 100 || merged.ID(99) != ids[99] ||
			whole.Loss().Row != merged.Loss().Row || !slices.Equal(whole.Loss().Blocks, merged.Loss().Blocks) {
			t.Errorf("%s: the merged table is another", format)
		}
		if _, err := table.Merge(path, []*table.Table{build(0, 30), build(20, 40)}); !errors.Is(err, table.ErrTable) {
			t.Errorf("%s: items of two parts: %v", format, err)
		}
	}
	of := table.Meta{Model: "m", ModelVersion: meta.ModelVersion, Collection: meta.Collection, Kind: "mol"}
	one, _ := table.FromMemory(of, ids[:1], features.Slice(0, 1), nil)
	of.ModelVersion = "2"
	two, _ := table.FromMemory(of, ids[1:2], features.Slice(1, 2), nil)
	if _, err := table.Merge(filepath.Join(t.TempDir(), "x"), []*table.Table{one, two}); !errors.Is(err, table.ErrTable) {
		t.Errorf("parts of two versions: %v", err)
	}
	if _, err := table.Merge(filepath.Join(t.TempDir(), "x"), nil); !errors.Is(err, table.ErrTable) {
		t.Errorf("no parts: %v", err)
	}
}

// TestAgeOfAMergedTable: it is as old as its oldest part, whose collection may have changed since.
func TestAgeOfAMergedTable(t *testing.T) {
	part := func(id uint64, created string) *table.Table {
		of := table.Meta{Model: "m", ModelVersion: meta.ModelVersion, Collection: meta.Collection, Kind: "mol", Created: created}
		made, err := table.FromMemory(of, []rerank.ID{rerank.UintID(id)}, features(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	path := filepath.Join(t.TempDir(), "merged")
	const oldest = "2026-01-01T00:00:00Z"
	m, err := table.Merge(path, []*table.Table{part(1, "2026-03-01T00:00:00Z"), part(2, oldest), part(3, "2026-02-01T00:00:00Z")})
	if err != nil || m.Created != oldest || open(t, path).Meta().Created != oldest || m.Items != 3 || m.Rows != 3 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestABuildThatIsGivenUp leaves no file, unless it has a checkpoint to go on from.
func TestABuildThatIsGivenUp(t *testing.T) {
	for kept, want := range map[bool]int{false: 0, true: 4} {
		dir := t.TempDir()
		w, err := table.NewWriter(filepath.Join(dir, "t"), table.Meta{Features: 3, Format: rerank.FormatInt8, Full: true})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Append([]rerank.ID{rerank.UintID(1)}, rerank.NewMatrix(1, 3))
		if kept {
			err = errors.Join(err, w.Checkpoint("here"))
		}
		if err := errors.Join(err, w.Abort(), w.Abort()); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != want {
			t.Errorf("with a checkpoint %t: %q are left, %v", kept, left, err)
		}
	}
}
