package dataset_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/internal/residence"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TestForget: forgotten vectors leave the process's memory, and are the same when they are read again.
func TestForget(t *testing.T) {
	m := rerank.NewMatrix(1000, 64)
	for i := range m.Data {
		m.Data[i] = float32(i)
	}
	items, queries := filepath.Join(t.TempDir(), "items.npy"), filepath.Join(t.TempDir(), "queries.safetensors")
	if err := npy.Write(items, m); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, &safetensors.File{Tensors: tensor.Set{"q": {Shape: []int{m.Rows, m.Cols}, Data: m.Data}}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(queries, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(t.Context(), dataset.Sources{Items: items, Queries: queries})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	d.Forget()
	for _, path := range []string{items, queries} {
		if n := residence.OfMapped(t, path); n > 2*os.Getpagesize() {
			t.Errorf("%d bytes of %s are in the process's memory", n, path)
		}
	}
	if !slices.Equal(d.Items.Data, m.Data) || !slices.Equal(d.Queries.Data, m.Data) {
		t.Error("the vectors are others")
	}
}
