package dataset_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
)

func TestParquetVectors(t *testing.T) {
	numbers := []rerank.ID{rerank.UintID(7), rerank.UintID(8), rerank.UintID(9)}
	texts := []rerank.ID{rerank.TextID("a"), rerank.TextID("b"), rerank.TextID("c")}
	for spec, ids := range map[string][]rerank.ID{
		"list_float.parquet":        numbers,
		"list_float.parquet#vector": numbers,
		"fixed_double.parquet":      texts,
		"fixed_half.parquet":        {rerank.UintID(7), rerank.UintID(8), rerank.UintID(math.MaxUint64)},
		"plain.parquet#b":           nil,
		"split.parquet":             nil,
	} {
		v, err := dataset.OpenVectors(t.Context(), filepath.Join("testdata", spec))
		if err != nil {
			t.Error(err)
			continue
		}
		if want := []float32{0.5, -2, 3, 4, 5, 6}; !slices.Equal(v.Data, want) || v.Rows != 3 || !slices.Equal(v.IDs, ids) {
			t.Errorf("%s: %v of ids %v, want ids %v", spec, v.Matrix, v.IDs, ids)
		}
		if err := errors.Join(v.Close(), v.Close()); err != nil {
			t.Error(err)
		}
	}
	ids, err := dataset.ReadIDs("testdata/plain.parquet#key")
	if want := rerank.TextID("00000000-0000-0000-0000-000000000002"); err != nil || len(ids) != 3 || ids[2] != want {
		t.Errorf("ids %v, %v", ids, err)
	}
}

func TestParquetVectorsRefused(t *testing.T) {
	for spec, want := range map[string]string{
		"plain.parquet":         `several columns of lists of numbers ("a", "b")`,
		"plain.parquet#c":       `there is no column "c" of lists of floating-point numbers; the columns are "key", "a", "b"`,
		"list_float.parquet#id": `there is no column "id" of lists`,
		"log.parquet":           "there is no column of lists",
		"ragged.parquet":        "row 1 has 1 numbers, the rows before it 2",
		"holes.parquet":         "row 1 is null, empty or holds a null",
		"lz4.parquet":           "row group 0 is packed with LZ4",
		"absent.parquet":        "no such file",
	} {
		_, err := dataset.OpenVectors(t.Context(), filepath.Join("testdata", spec))
		if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "parquet") {
			t.Errorf("%s: want ErrInput with %q, have: %v", spec, want, err)
		}
	}
	for spec, want := range map[string]string{
		"plain.parquet":      `there is no column "id"`,
		"plain.parquet#a":    `column "a" holds a group or a list`,
		"log.parquet#weight": "ids are integers or text",
		"holes.parquet#id":   "row 1 is null",
	} {
		if _, err := dataset.ReadIDs(filepath.Join("testdata", spec)); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("ids of %s: want ErrInput with %q, have: %v", spec, want, err)
		}
	}
}

func TestParquetPairs(t *testing.T) {
	for _, name := range []string{"log", "log_int96", "log_text"} {
		f := newFolder(t)
		d := open(t, dataset.Sources{
			Items: "testdata/list_float.parquet", Queries: f.matrix("queries.npy", 2), QueryIDs: f.file("ids.txt", "x\ny\n"),
			Pairs: filepath.Join("testdata", name+".parquet"),
		})
		if want := [][]int32{{0, 2}, {1}}; !reflect.DeepEqual(d.Relevant, want) {
			t.Errorf("%s: pairs %v, want %v", name, d.Relevant, want)
		}
		if want := [][]float32{{1.5, 2}, {1}}; !reflect.DeepEqual(d.Weights, want) {
			t.Errorf("%s: weights %v, want %v", name, d.Weights, want)
		}
		if want := []int64{1769860805, 1769860800}; !reflect.DeepEqual(d.Times, want) {
			t.Errorf("%s: times %v, want %v", name, d.Times, want)
		}
		if d.Counts.UnknownQueries != 1 || d.Counts.SeveralTimes != 1 || name != "log_text" && !slices.Equal(d.Counts.Ignored, []string{"page"}) {
			t.Errorf("%s: counts %+v", name, d.Counts)
		}
	}
}

func TestParquetPairsRefused(t *testing.T) {
	f := newFolder(t)
	s := f.sources("log.csv", "query,item\n0,1\n")
	for name, want := range map[string]string{
		"list_float.parquet": `there is no column "query"; the columns are "id", "vector"`,
		"log.parquet":        `row 1: query "x" is not a row number; if the file names queries by id, give the ids (--query-ids)`,
	} {
		s.Pairs = filepath.Join("testdata", name)
		if _, err := dataset.Open(t.Context(), s); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want ErrInput with %q, have: %v", name, want, err)
		}
	}
}

// A file that is cut short, or whose bytes are wrong, gives an error or values,
// and never more.
func TestDamagedParquet(t *testing.T) {
	for _, name := range []string{"list_float", "fixed_half", "plain", "log", "log_text"} {
		whole, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.parquet")
		for n := 0; n < len(whole); n += 1 + n/15 {
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := dataset.ReadIDs(path + "#id"); !errors.Is(err, dataset.ErrInput) {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
		}
		for at := 0; at < len(whole); at += 31 { // the fuzz target tries the rest
			damaged := slices.Clone(whole)
			damaged[at] ^= 0xff
			readDamaged(t, path, damaged)
		}
	}
}

// readDamaged reads a file in every way that it could be meant.
func readDamaged(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{path, path + "#vector", path + "#b"} {
		v, err := dataset.OpenVectors(t.Context(), spec)
		if err == nil {
			err = v.Close()
		}
		if err != nil && !errors.Is(err, dataset.ErrInput) {
			t.Fatalf("%v is not ErrInput", err)
		}
	}
	s := dataset.Sources{Items: "testdata/list_float.parquet", Queries: "testdata/fixed_double.parquet", Pairs: path}
	d, err := dataset.Open(t.Context(), s)
	if err == nil {
		err = d.Close()
	}
	if err != nil && !errors.Is(err, dataset.ErrInput) {
		t.Fatalf("%v is not ErrInput", err)
	}
}
