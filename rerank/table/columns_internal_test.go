package table

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// uuids returns n text ids that are UUIDs.
func uuids(n int) (ids []rerank.ID) {
	for i := range n {
		ids = append(ids, rerank.TextID(fmt.Sprintf("%08x-abcd-4000-8000-%012x", i*7919, i)))
	}
	return ids
}

// TestColumnsOfIDs: a column has the shortest form that holds its ids, and finds each of them, and
// no other, in memory and as it is read from a file.
func TestColumnsOfIDs(t *testing.T) {
	number, signed, text := rerank.UintID, rerank.IntID, rerank.TextID
	var dense, sparse, texts []rerank.ID
	for i := range uint64(40) {
		dense, sparse, texts = append(dense, number(i)), append(sparse, number(3*i+1)), append(texts, text(fmt.Sprint("item ", i)))
	}
	with := func(ids []rerank.ID, more ...rerank.ID) []rerank.ID { return append(slices.Clone(ids), more...) }
	upper := text(strings.ToUpper("0000abcd-0000-4000-8000-00000000abcd"))
	for name, c := range map[string]struct {
		ids    []rerank.ID
		form   idForm
		absent []rerank.ID
	}{
		"row numbers":          {dense, formDense, []rerank.ID{number(40), signed(-1), text("1"), number(math.MaxUint64)}},
		"one number":           {[]rerank.ID{number(0)}, formDense, []rerank.ID{number(1)}},
		"a gap":                {with(dense, number(41)), formUnsigned, []rerank.ID{number(40)}},
		"numbers":              {sparse, formUnsigned, []rerank.ID{number(0), number(2), text("1"), signed(-1)}},
		"large numbers":        {with(sparse, number(math.MaxUint64), number(1<<63)), formUnsigned, []rerank.ID{signed(-1), signed(math.MinInt64)}},
		"negative numbers":     {with(sparse, signed(-1), signed(math.MinInt64)), formSigned, []rerank.ID{number(math.MaxUint64), number(1 << 63), signed(-2)}},
		"row numbers and −1":   {with(dense, signed(-1)), formSigned, []rerank.ID{number(40)}},
		"the greatest signed":  {[]rerank.ID{number(math.MaxInt64), signed(-1)}, formSigned, []rerank.ID{number(1 << 63)}},
		"too large for signed": {[]rerank.ID{number(1 << 63), signed(-1), number(5)}, formAny, []rerank.ID{signed(math.MinInt64), number(1)}},
		"large behind signed":  {with(sparse, signed(-1), number(1<<63)), formAny, []rerank.ID{signed(math.MinInt64)}},
		"texts":                {texts, formAny, []rerank.ID{text("item"), text("item 40"), number(1)}},
		"numbers and texts":    {with(sparse, text("4")), formAny, []rerank.ID{text("1"), number(2)}},
		"texts and numbers":    {with(texts, number(4), signed(-4)), formAny, []rerank.ID{text("4"), number(5)}},
		"UUIDs":                {uuids(40), formUUID, append(uuids(41)[40:], text("item"), number(0), text("00000000-abcd-4000-8000-00000000000"), text("00000000+abcd-4000-8000-000000000000"))},
		"a UUID of capitals":   {with(uuids(3), upper), formAny, []rerank.ID{text("0000abcd-0000-4000-8000-00000000abcd")}},
		"UUIDs and a number":   {with(uuids(3), number(1)), formAny, uuids(4)[3:]},
		"a number and UUIDs":   {with([]rerank.ID{number(0)}, uuids(3)...), formAny, []rerank.ID{number(1)}},
	} {
		column := idColumn{}
		for _, id := range c.ids {
			column.add(id)
		}
		if column.form != c.form || column.len() != len(c.ids) {
			t.Errorf("%s: %d ids of the form %s, want %d of %s", name, column.len(), column.form, len(c.ids), c.form)
		}
		read, err := decodeIDs(column.form, column.len(), column.encode())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		index, err := buildIndex(&column)
		if err != nil || column.form != formDense && index.check(len(c.ids)) != nil {
			t.Errorf("%s: %v, %v", name, err, index.check(len(c.ids)))
		}
		for where, ids := range map[string]*idColumn{"in memory": &column, "of a file": &read} {
			for i, id := range c.ids {
				if got := ids.at(i); got != id {
					t.Fatalf("%s, %s: item %d has the id %s, want %s", name, where, i, got, id)
				}
				for _, k := range []int{0, i, len(c.ids) - 1} {
					if ids.matches(k, id) != (c.ids[k] == id) {
						t.Fatalf("%s, %s: item %d has the id %s: %t", name, where, k, id, c.ids[k] != id)
					}
				}
				if item, ok := index.find(ids, id); c.form != formDense && (!ok || item != i) {
					t.Fatalf("%s, %s: %s is found as item %d, %t, want %d", name, where, id, item, ok, i)
				}
			}
			for _, id := range c.absent {
				if item, ok := index.find(ids, id); ok {
					t.Errorf("%s, %s: %s is found as item %d", name, where, id, item)
				}
				if slices.ContainsFunc(c.ids, func(x rerank.ID) bool { return x == id }) {
					t.Errorf("%s: %s is not absent", name, id)
				}
			}
		}
		if c.form == formDense {
			continue
		}
		column.add(c.ids[len(c.ids)/2])
		if _, err := buildIndex(&column); !errors.Is(err, ErrTable) {
			t.Errorf("%s: an id twice: %v", name, err)
		}
	}
}

// TestIDsThatAreDamaged: sections that do not hold the ids that the header claims.
func TestIDsThatAreDamaged(t *testing.T) {
	column := idColumn{}
	for _, id := range []rerank.ID{rerank.TextID("ab"), rerank.UintID(5), rerank.IntID(-5)} {
		column.add(id)
	}
	good := column.encode() // offsets of 0, 3, 12, 21
	change := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	behind := 8 * 4 // the ids
	for name, c := range map[string]struct {
		form idForm
		n    int
		b    []byte
		ok   bool
	}{
		"whole":                     {formAny, 3, good, true},
		"one id fewer":              {formAny, 2, good, false},
		"shorter":                   {formAny, 3, good[:len(good)-1], false},
		"no offsets":                {formAny, 3, good[:8*3], false},
		"another beginning":         {formAny, 3, change(0, 1), false},
		"offsets that descend":      {formAny, 3, change(8, 13), false},
		"an offset behind the end":  {formAny, 3, change(9, 1), false},
		"an unknown tag":            {formAny, 3, change(behind+3, 'x'), false},
		"a number that is too long": {formAny, 3, change(16, 13), false},
		"a signed positive number":  {formAny, 3, change(behind+20, 0x7f), false},
		"an empty id":               {formAny, 3, change(8, 0), false},
		"numbers":                   {formUnsigned, 2, make([]byte, 16), true},
		"a number too few":          {formUnsigned, 2, make([]byte, 8), false},
		"signed":                    {formSigned, 2, make([]byte, 17), false},
		"a UUID too few":            {formUUID, 2, make([]byte, 16), false},
		"dense":                     {formDense, 2, nil, true},
		"dense with bytes":          {formDense, 2, make([]byte, 16), false},
		"an unknown form":           {"other", 0, nil, false},
	} {
		if _, err := decodeIDs(c.form, c.n, c.b); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTaggedIDs: a number is no text of the same bytes, and ids begin where the first offset says
// that they do.
func TestTaggedIDs(t *testing.T) {
	column := idColumn{}
	for _, id := range []rerank.ID{rerank.TextID("sab"), rerank.UintID(0x6161616161616161)} {
		column.add(id)
	}
	b := column.encode()
	read, err := decodeIDs(formAny, 2, b)
	if err != nil || read.matches(1, rerank.TextID("aaaaaaaa")) || !read.matches(1, rerank.UintID(0x6161616161616161)) {
		t.Errorf("a number is found by a text, or not at all; %v", err)
	}
	b[0] = 1 // the first id would be the text "ab"
	if _, err := decodeIDs(formAny, 2, b); err == nil {
		t.Error("ids that begin in the middle are taken")
	}
}

// TestIndexesThatAreDamaged: an index that names an item that does not exist, or leaves one out, is
// refused, and a search in it ends.
func TestIndexesThatAreDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		index hashIndex
		ok    bool
	}{
		"all items":        {hashIndex{0, 1, 0, 3, 2, 0, 0, 0}, true},
		"one is missing":   {hashIndex{0, 1, 0, 3, 0, 0, 0, 0}, false},
		"one too many":     {hashIndex{0, 1, 2, 3, 1, 0, 0, 0}, false},
		"one of others":    {hashIndex{0, 1, 0, 4, 2, 0, 0, 0}, false},
		"one that is huge": {hashIndex{0, 1, 0, math.MaxUint32, 2, 0, 0, 0}, false},
	} {
		if err := c.index.check(3); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	ids := idColumn{}
	ids.add(rerank.UintID(7))
	full := hashIndex{9, 9, 9, 9, 9, 9, 9, 9}
	if item, ok := full.find(&ids, rerank.UintID(7)); ok {
		t.Errorf("found as item %d", item)
	}
	for n, want := range map[int]int{1: 8, 4: 8, 5: 16, 8: 16, 9: 32, 1000: 2048} {
		if got := slotsFor(n); got != want {
			t.Errorf("%d slots for %d items, want %d", got, n, want)
		}
	}
}

// TestManyIDsAreFound: by an index in which many ids share their first slots.
func TestManyIDsAreFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	ids, all := idColumn{}, []rerank.ID{}
	for range 5000 {
		all = append(all, rerank.UintID(rng.Uint64()))
		ids.add(all[len(all)-1])
	}
	index, err := buildIndex(&ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range all {
		if item, ok := index.find(&ids, id); !ok || item != i {
			t.Fatalf("%s is item %d, %t; want %d", id, item, ok, i)
		}
		if item, ok := index.find(&ids, rerank.UintID(rng.Uint64())); ok {
			t.Fatalf("an id that is not there is item %d", item)
		}
	}
}

// TestTheLastTile: rows that it lacks are zero, whatever the tile before had there.
func TestTheLastTile(t *testing.T) {
	p := newPacker(Meta{Features: 1, Rows: rerank.Lanes + 1, Format: rerank.FormatFloat32, Layout: LayoutTiles})
	for r := range rerank.Lanes + 1 {
		tile, ok := p.add([]float32{float32(r + 1)})
		if !ok || (tile != nil) != (r == rerank.Lanes-1) {
			t.Fatalf("row %d: %v, %t", r, tile, ok)
		}
	}
	last := p.rest()
	if want := append([]uint32{math.Float32bits(rerank.Lanes + 1)}, make([]uint32, rerank.Lanes-1)...); !slices.Equal(last, want) {
		t.Errorf("the last tile is %v, want %v", last, want)
	}
}
