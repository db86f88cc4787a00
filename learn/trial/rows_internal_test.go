package trial

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

// TestPlacesOfASample: a seed always reads the same rows, which lie all over the collection. Where nearly
// all ids lie in one range, the first rows are read.
func TestPlacesOfASample(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const rows = 2000
	for name, id := range map[string]func(i int) rerank.ID{
		"numbers": func(i int) rerank.ID { return rerank.UintID(uint64(1000 + 7*i)) },
		"uuids": func(i int) rerank.ID {
			return rerank.TextID(uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(i), byte(i >> 8)}).String())
		},
		"in order": func(i int) rerank.ID { return rerank.TextID(uuid.UUID{0: 1, 14: byte(i >> 8), 15: byte(i)}.String()) },
	} {
		schema := adapters.Schema{Collection: name, Fields: []adapters.VectorField{{Dim: 2, Metric: adapters.InnerProduct}}}
		all := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(rows, 2)}}
		for i := range rows {
			all.IDs = append(all.IDs, id(i))
			copy(all.Vectors[0].Row(i), []float32{1, float32(i)})
		}
		if err := store.Create(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		if err := store.Write(t.Context(), name, schema, all); err != nil {
			t.Fatal(err)
		}
		read := func(seed uint64) (*trial, []rerank.ID) {
			tr := &trial{Options: Options{Collection: name, Rows: 400, Seed: seed}, can: adapters.AbilitiesOf(store), look: &Look{Rows: rows}}
			tr.look.field.Dim = 2
			if err := tr.readSample(t.Context()); err != nil {
				t.Fatal(err)
			}
			return tr, tr.sample.ids
		}
		a, ids := read(1)
		_, again := read(1)
		_, other := read(2)
		slices.SortFunc(all.IDs, rerank.ID.Compare)
		least, most := math.MaxInt, 0
		for _, id := range ids {
			at, _ := slices.BinarySearchFunc(all.IDs, id, rerank.ID.Compare)
			least, most = min(least, at), max(most, at)
		}
		inOrder := name == "in order"
		if len(ids) != 400 || a.sample.whole || a.look.Random == inOrder || !slices.Equal(ids, again) || slices.Equal(ids, other) != inOrder || (most-least > rows/2) == inOrder {
			t.Errorf("%s: %d rows from %d to %d, at random: %v, the same again: %v, with another seed: %v", name, len(ids), least, most, a.look.Random, slices.Equal(ids, again), slices.Equal(ids, other))
		}
		if text := a.look.rowsText(); strings.Contains(text, "random places) were") != inOrder {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// scanned notes the ranges of ids that are read, of a collection whose ids are divided at a.
type scanned struct {
	adapters.Scanner
	ranges []string
}

func (*scanned) Cut(context.Context, string, int) ([]string, error) { return []string{"a"}, nil }

func (s *scanned) Scan(_ context.Context, r adapters.ScanRequest, _ func(adapters.Rows, string) error) error {
	s.ranges = append(s.ranges, r.Cursor+"-"+r.Until)
	return nil
}

// TestPlacesDoNotOverlap: no row is read at two places, however few rows a place has.
func TestPlacesDoNotOverlap(t *testing.T) {
	s := &scanned{}
	tr := &trial{Options: Options{Rows: 1}, look: &Look{Rows: 2}, can: adapters.Abilities{Scan: s, Partition: s}}
	if random, err := tr.readPlaces(t.Context(), adapters.ScanRequest{}, nil); !random || err != nil {
		t.Fatalf("%t, %v", random, err)
	}
	slices.Sort(s.ranges)
	if want := []string{"-a", "a-"}; !slices.Equal(s.ranges, want) {
		t.Errorf("read %q, want %q", s.ranges, want)
	}
}
