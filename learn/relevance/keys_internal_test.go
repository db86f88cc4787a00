package relevance

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// TestKeysDiffer: items or queries that differ in any part that a ranker reads share no score.
func TestKeysDiffer(t *testing.T) {
	id := rerank.UintID(7)
	items := []plugin.Item{
		{ID: id}, {ID: rerank.TextID("7")}, {ID: rerank.UintID(8)}, {ID: id, Payload: json.RawMessage(`{"a":1}`)}, {ID: id, Payload: json.RawMessage(`{"a":2}`)},
		{ID: id, Vector: []float32{1}}, {ID: id, Vector: []float32{1, 0}}, {ID: id, Vector: []float32{2}},
		// Bytes that would run together without their lengths.
		{ID: rerank.UintID(1), Payload: json.RawMessage(`23`)}, {ID: rerank.UintID(12), Payload: json.RawMessage(`3`)},
	}
	itemKeys := map[key]int{}
	for i, x := range items {
		if other, ok := itemKeys[itemKey(x)]; ok {
			t.Errorf("%+v and %+v share a key", x, items[other])
		}
		itemKeys[itemKey(x)] = i
	}
	queries := []plugin.Query{
		{}, {Text: "a"}, {Text: "b"}, {Vector: []float32{1}}, {Vector: []float32{2}}, {HasUserID: true}, {HasUserID: true, UserID: 1},
		{HasUserID: true, UserID: 2}, {Context: map[string]float32{"x": 0}}, {Context: map[string]float32{"x": 1}}, {Context: map[string]float32{"y": 1}},
	}
	queryKeys := map[key]int{}
	for i, q := range queries {
		if other, ok := queryKeys[queryKey(q)]; ok {
			t.Errorf("%+v and %+v share a key", q, queries[other])
		}
		queryKeys[queryKey(q)] = i
	}
}

// TestDamagedRecord: a record with any changed byte is not read, nor is one with half of an entry
// and a right checksum.
func TestDamagedRecord(t *testing.T) {
	good := appendRecord(nil, key{1}, []key{{2}, {3}}, []float32{0.5, -1})
	if _, n, err := parseRecord(good); err != nil || n != len(good) {
		t.Fatalf("%d of %d bytes, %v", n, len(good), err)
	}
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 0x10
		if _, _, err := parseRecord(bad); err == nil {
			t.Errorf("byte %d changed, and it is a record", i)
		}
	}
	half := append([]byte{}, good[:len(good)-entrySize/2]...)
	binary.LittleEndian.PutUint32(half[4:], uint32(len(half)-recordHead))
	binary.LittleEndian.PutUint32(half[8:], checksum(half))
	if _, _, err := parseRecord(half); err == nil {
		t.Error("a record with half of an entry is read")
	}
}

// TestNaNIsKept: not a number is an answer of a ranker, whatever its bits are.
func TestNaNIsKept(t *testing.T) {
	c, err := openCache(disk.OS{}, t.TempDir(), someRanker)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	items := []key{{1}, {2}, {3}}
	if err := c.put(key{9}, items, []float32{math.Float32frombits(absent), float32(math.NaN()), 1}); err != nil {
		t.Fatal(err)
	}
	nans := 0
	missing := c.get(key{9}, c.itemNumbers(append(items, key{4})), func(_ int, score float32) {
		if score != score {
			nans++
		}
	})
	if len(missing) != 1 || missing[0] != 3 || nans != 2 {
		t.Errorf("%d scores are not a number, and the items %v have none", nans, missing)
	}
}

// TestManyScores: more scores than a record holds are all there for the next process.
func TestManyScores(t *testing.T) {
	dir := t.TempDir()
	c, err := openCache(disk.OS{}, dir, someRanker)
	if err != nil {
		t.Fatal(err)
	}
	items, scores := make([]key, maxEntries+5), make([]float32, maxEntries+5)
	for i := range items {
		items[i], scores[i] = key{byte(i), byte(i >> 8)}, float32(i)
	}
	if err := errors.Join(c.put(key{9}, items, scores), c.close()); err != nil {
		t.Fatal(err)
	}
	if c, err = openCache(disk.OS{}, dir, someRanker); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	missing := c.get(key{9}, c.itemNumbers(items), func(at int, score float32) {
		if score != float32(at) {
			t.Errorf("item %d has the score %g", at, score)
		}
	})
	if len(missing) != 0 || c.lostBytes != 0 || c.storedScores != maxEntries+5 {
		t.Errorf("%d of %d scores are missing, %d bytes lost", len(missing), len(items), c.lostBytes)
	}
}

// TestHeaderOfAFile: other versions read it, so that its bytes do not change.
func TestHeaderOfAFile(t *testing.T) {
	got, err := header(plugin.Description{Name: "bert", Version: "7"})
	want := append([]byte("LKNSREL\n\x01\x00\x00\x00\x06\x00\x00\x00bert\x007"), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(want[len(want)-4:], crc32.Checksum(want[:len(want)-4], castagnoli))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := header(plugin.Description{Name: strings.Repeat("x", maxHeader), Version: "1"}); !errors.Is(err, ErrCache) {
		t.Errorf("a name that is too long: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCache(disk.OS{}, filepath.Join(file, "folder"), someRanker); !errors.Is(err, ErrCache) {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}

// TestPayloadsWithoutTheFields: an item that lacks all fields that the ranker reads is one without a payload.
func TestPayloadsWithoutTheFields(t *testing.T) {
	for _, c := range []struct {
		raw   string
		names []string
		want  string
	}{
		{`{"a":1,"b":2}`, []string{"c", "a.b"}, ""}, {`{}`, nil, ""}, {` `, nil, ""}, {`{"b":2,"a":1}`, nil, `{"a":1,"b":2}`}, {`{"a":{"b":1,"c":2}}`, []string{"a.b", "a.c"}, `{"a":{"b":1,"c":2}}`}, {`{"a.b":1,"a":{"b":2}}`, []string{"a.b"}, `{"a.b":1}`},
	} {
		if got, err := projectPayload(json.RawMessage(c.raw), c.names); err != nil || string(got) != c.want || (got == nil) != (c.want == "") {
			t.Errorf("%q of %s: %s, %v, want %s", c.names, c.raw, got, err, c.want)
		}
	}
}

// TestItemsOutliveTheirRows: a store may write the next batch over the vectors of the last one.
func TestItemsOutliveTheirRows(t *testing.T) {
	rows := adapters.Rows{IDs: []rerank.ID{rerank.UintID(1)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: []float32{3, 4}}}}
	items, err := (&Asker{described: plugin.Description{Vectors: true}}).Items(rows)
	if err != nil {
		t.Fatal(err)
	}
	clear(rows.Vectors[0].Data)
	if got := items.list[0].Vector; !slices.Equal(got, []float32{3, 4}) {
		t.Errorf("the ranker reads %v, the row had 3 and 4", got)
	}
}
