package maxsim_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// written are the files of three items' vectors, and their digest.
func written(t testing.TB) (name, digest string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "m")
	w, err := maxsim.CreateVectors(name, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range []struct {
		id   rerank.ID
		data []float32
	}{{rerank.UintID(1 << 63), []float32{1, 0, 0, 1}}, {rerank.TextID("7"), []float32{0.6, 0.8}}, {rerank.UintID(7), []float32{0, -1}}} {
		if err := w.Append(item.id, rerank.Matrix{Rows: len(item.data) / 2, Cols: 2, Data: item.data}); err != nil {
			t.Fatal(err)
		}
	}
	if digest, err = w.Close(); err != nil {
		t.Fatal(err)
	}
	return name, digest
}

func TestVectorsComeBack(t *testing.T) {
	name, digest := written(t)
	v, err := maxsim.OpenVectors(name, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if got := v.Of(rerank.UintID(1 << 63)); got.Rows != 2 || !slices.Equal(got.Data, []float32{1, 0, 0, 1}) {
		t.Errorf("%v", got)
	}
	if got := v.Of(rerank.TextID("7")); !slices.Equal(got.Data, []float32{0.6, 0.8}) {
		t.Errorf("the text 7 has %v", got)
	}
	if got := v.Of(rerank.UintID(8)); got.Rows != 0 {
		t.Errorf("an item without vectors has %v", got)
	}
	all, starts := v.Behind(rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{5, 5, 6, 6}}, []rerank.ID{rerank.UintID(8), rerank.UintID(7)})
	if !slices.Equal(starts, []int32{0, 1, 3}) || !slices.Equal(all.Data, []float32{5, 5, 6, 6, 0, -1}) {
		t.Errorf("%v, %v", all, starts)
	}
}

func TestNoVectors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "m")
	w, err := maxsim.CreateVectors(name, 3)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	v, err := maxsim.OpenVectors(name, digest)
	if err != nil || v.Rows != 0 {
		t.Fatalf("%v, %v", v, err)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// What is damaged, or of another model, is refused by name.
func TestVectorsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		damage func(owners, vectors []byte) ([]byte, []byte)
		reason string
	}{
		"a line is missing": {func(o, v []byte) ([]byte, []byte) { return o[:bytes.LastIndexByte(o[:len(o)-1], '\n')+1], v }, "lines for"},
		"a line too many":   {func(o, v []byte) ([]byte, []byte) { return append(o, "9\n"...), v }, "more lines than"},
		"another id":        {func(o, v []byte) ([]byte, []byte) { return bytes.Replace(o, []byte(`"7"`), []byte(`"8"`), 1), v }, "belong together"},
		"no id":             {func(o, v []byte) ([]byte, []byte) { return bytes.Replace(o, []byte(`"7"`), []byte(`7.5`), 1), v }, "is no id"},
		"an item comes again": {func(o, v []byte) ([]byte, []byte) {
			return bytes.Replace(o, []byte("\n7\n"), []byte("\n9223372036854775808\n"), 1), v
		}, "comes again after another"},
		"another number": {func(o, v []byte) ([]byte, []byte) { v[len(v)-3]++; return o, v }, "belong together"},
		"not a number":   {func(o, v []byte) ([]byte, []byte) { copy(v[len(v)-4:], "\x00\x00\xc0\x7f"); return o, v }, "NaN"},
	} {
		name, digest := written(t)
		rewrite(t, name, c.damage)
		if _, err := maxsim.OpenVectors(name, digest); !errors.Is(err, maxsim.ErrVectors) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want %q", what, err, c.reason)
		}
	}
	name, _ := written(t)
	if _, err := maxsim.OpenVectors(name, "0"); !errors.Is(err, maxsim.ErrVectors) {
		t.Errorf("another digest: %v", err)
	}
	if _, err := maxsim.OpenVectors(name+"x", "0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func rewrite(t testing.TB, name string, change func(owners, vectors []byte) ([]byte, []byte)) {
	t.Helper()
	owners, err := os.ReadFile(name + ".owners.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := os.ReadFile(name + ".vectors.npy")
	if err != nil {
		t.Fatal(err)
	}
	owners, vectors = change(owners, vectors)
	if err := os.WriteFile(name+".owners.jsonl", owners, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".vectors.npy", vectors, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A writer that gives up leaves nothing behind.
func TestVectorsAbort(t *testing.T) {
	dir := t.TempDir()
	w, err := maxsim.CreateVectors(filepath.Join(dir, "m"), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Abort(), w.Abort()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// FuzzVectors: whatever the owners' file holds, reading it ends with the vectors or
// an error.
func FuzzVectors(f *testing.F) {
	f.Add([]byte("1\n1\n\"7\"\n7\n"))
	f.Add([]byte("null\n\n{}\n1e99\n"))
	f.Add([]byte("9223372036854775808\n-1\n-1\n\"\\u0000\"\n"))
	name, digest := written(f)
	f.Fuzz(func(t *testing.T, owners []byte) {
		if err := os.WriteFile(name+".owners.jsonl", owners, 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := maxsim.OpenVectors(name, digest)
		switch {
		case err == nil:
			_ = v.Close()
		case !errors.Is(err, maxsim.ErrVectors):
			t.Fatal(err)
		}
	})
}
