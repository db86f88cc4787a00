package npy_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

func TestWriterWritesWhatOpenReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.npy")
	w, err := npy.Create(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	want := rerank.NewMatrix(1000, 3)
	for i := range want.Data {
		want.Data[i] = float32(i)
	}
	for from := 0; from < want.Rows; from += 300 {
		if err := w.Append(want.Slice(from, min(from+300, want.Rows))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(rerank.NewMatrix(1, 2)); !errors.Is(err, npy.ErrFormat) {
		t.Errorf("a row of another length: got %v, want ErrFormat", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the file is there before Close")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := npy.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Rows != want.Rows || m.Cols != want.Cols || !slices.Equal(m.Data, want.Data) {
		t.Errorf("read %d x %d, wrote %d x %d", m.Rows, m.Cols, want.Rows, want.Cols)
	}
}

func TestWriterAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := npy.Create(filepath.Join(dir, "m.npy"), 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := npy.Create(filepath.Join(dir, "m.npy"), 0); !errors.Is(err, npy.ErrFormat) {
		t.Errorf("rows of no numbers: got %v, want ErrFormat", err)
	}
}

func TestWriteIntsWritesWhatReadIntsReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.npy")
	want := []int64{0, -1, 1 << 62, 7}
	if err := npy.WriteInts(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := npy.ReadInts(path); err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
}
