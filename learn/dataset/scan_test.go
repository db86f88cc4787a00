package dataset_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
)

// scanSource is a collection of 2,500 rows in an exact store.
func scanSource(t *testing.T) (*embedded.Store, rerank.Matrix) {
	t.Helper()
	m := rerank.NewMatrix(2500, 2)
	ids := make([]rerank.ID, m.Rows)
	for i := range m.Data {
		m.Data[i] = float32(i)
	}
	for r := range ids {
		ids[r] = rerank.UintID(uint64(10 * r))
	}
	store := embedded.New()
	if err := store.Load("shoes", embedded.Collection{Fields: []embedded.Field{{Vectors: m}}, IDs: ids}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, m
}

func TestScan(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	store, m := scanSource(t)
	f := newFolder(t)
	s := f.sources("log.csv", "query,item\n0,24990\n1,0\n1,7\n")
	s.Items, s.Collection = "", &dataset.Collection{Store: store, Name: "shoes"}
	seen := 0
	s.Progress = func(string, int) func(int) { return func(n int) { seen += n } }
	d, err := dataset.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Items.Data, m.Data) || d.ItemIDs[2499] != rerank.UintID(24990) || seen != m.Rows {
		t.Errorf("%d rows, last id %v, %d seen", d.Items.Rows, d.ItemIDs[len(d.ItemIDs)-1], seen)
	}
	if want := [][]int32{{2499}, {0}}; !reflect.DeepEqual(d.Relevant, want) || d.Counts.UnknownItems != 1 {
		t.Errorf("pairs %v, counts %+v", d.Relevant, d.Counts)
	}
	first, err := d.Digests()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	batches := 0
	s.Progress = func(string, int) func(int) { return func(int) { batches++ } }
	s.Collection.Batch = 7
	if again, err := open(t, s).Digests(); err != nil || first["items"] == "" || !reflect.DeepEqual(again, first) {
		t.Errorf("digests %v then %v, %v", first, again, err)
	}
	if want := (m.Rows + 6) / 7; batches < want {
		t.Errorf("read in %d batches, want %d of seven rows", batches, want)
	}
	ids := make([]rerank.ID, m.Rows)
	for r := range ids {
		ids[r] = rerank.UintID(uint64(10*r + min(1, r%9/8)))
	}
	if err := store.Load("others", embedded.Collection{Fields: []embedded.Field{{Vectors: m}}, IDs: ids}); err != nil {
		t.Fatal(err)
	}
	s.Collection.Name = "others"
	if other, err := open(t, s).Digests(); err != nil || strings.TrimPrefix(other["items"], "collection others") == strings.TrimPrefix(first["items"], "collection shoes") {
		t.Errorf("with other ids the digest is the same, %v", err)
	}
}

func TestScanRefused(t *testing.T) {
	store, _ := scanSource(t)
	s := newFolder(t).sources("log.csv", "query,item\n0,1\n")
	s.Collection = &dataset.Collection{Store: store, Name: "boots"}
	if _, err := dataset.Open(t.Context(), s); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("a collection that is not there: %v", err)
	}
	s.Collection = &dataset.Collection{Store: store, Name: "shoes", Vector: "other"}
	if _, err := dataset.Open(t.Context(), s); !errors.Is(err, adapters.ErrField) {
		t.Errorf("a vector that is not there: %v", err)
	}
}
