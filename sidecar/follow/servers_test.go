package follow_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// TestFollowsServers is TestFollows and TestReconcile on real servers, with
// payloads of every kind.
func TestFollowsServers(t *testing.T) {
	for _, c := range []struct {
		name    string
		open    func(t *testing.T) writable
		options follow.Options
	}{
		{"Qdrant", openQdrant, follow.Options{}},
		{"milvus-lite", openMilvusLite, follow.Options{Consistency: "Strong", Applied: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOn(t, c.open(t), 20)
			r := w.route(t, "")
			c.options.Store, c.options.Dir = w.db, t.TempDir()
			f, err := follow.New(c.options, []follow.Route{{Route: r}})
			must(t, err)
			t.Cleanup(func() { must(t, f.Close(closing(t))) })
			fresh(t, r)
			rng := rand.New(rand.NewPCG(3, 1))
			for range 25 {
				id, kind := rng.Uint64N(30), journal.Upsert
				if rng.IntN(4) == 0 {
					kind = journal.Delete
				}
				done := begin(t.Context(), f, journal.Write{Collection: items, Kind: kind, IDs: ids(id)})
				if kind == journal.Delete {
					w.remove(t, id)
				} else {
					w.putPayload(t, id, rng.Uint64(), everyKind(rng))
				}
				done()
			}
			fresh(t, r)
			agree(t, r, int64(rowsOf(t, w)))
			w.db.level.Store(nil)
			w.remove(t, 1)
			w.putPayload(t, 2, 5, everyKind(rng))
			w.put(t, 77, 5, 5)
			found, err := f.Reconcile(t.Context(), items)
			if must(t, err); found["r"].Differing() < 2 {
				t.Errorf("%+v", found["r"])
			}
			if level := w.db.level.Load(); level == nil || *level != c.options.Consistency {
				t.Errorf("the companion was not read at consistency %q", c.options.Consistency)
			}
			found, err = f.Reconcile(t.Context(), items)
			if must(t, err); found["r"].Differing() != 0 {
				t.Errorf("again: %+v", found["r"])
			}
			agree(t, r, int64(rowsOf(t, w)))
		})
	}
}

// everyKind returns a payload with every kind of value.
func everyKind(rng *rand.Rand) json.RawMessage {
	return fmt.Appendf(nil, `{"n":%d,"big":9007199254740993,"f":%g,"whole":2.0,"s":"ü<&>\"","list":[1,2.5,"x",[]],"deep":{"a":{"b":true}}}`,
		rng.IntN(9), rng.Float64())
}

func openQdrant(t *testing.T) writable {
	t.Helper()
	s, err := qdrant.Open(qdrant.Options{Address: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address})
	must(t, err)
	return closed(t, s)
}

func openMilvusLite(t *testing.T) writable {
	t.Helper()
	s, err := milvus.New(t.Context(), milvus.Options{Address: servers.MilvusLiteForTest(t, servers.Options{}).Address})
	must(t, err)
	return closed(t, s)
}

// closed closes the store when the test ends.
func closed(t *testing.T, s writable) writable {
	t.Helper()
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}
