package table

import (
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// FuzzIDs reads the sections that Open reads once their checksums are right.
func FuzzIDs(f *testing.F) {
	for _, form := range []idForm{formDense, formUnsigned, formSigned, formAny} {
		c := idColumn{}
		for _, id := range map[idForm][]rerank.ID{
			formDense:    {rerank.UintID(0)},
			formUnsigned: {rerank.UintID(5), rerank.UintID(2)},
			formSigned:   {rerank.IntID(-5), rerank.UintID(2)},
			formAny:      {rerank.TextID("a"), rerank.UintID(2), rerank.IntID(-1)},
		}[form] {
			c.add(id)
		}
		index, err := buildIndex(&c)
		if err != nil || c.form != form {
			f.Fatal(c.form, err)
		}
		f.Add(string(form), c.len(), c.encode(), encode32(index))
	}
	f.Fuzz(func(t *testing.T, form string, n int, ids, index []byte) {
		if n < 0 || n > 1000 {
			return
		}
		c, err := decodeIDs(idForm(form), n, ids)
		if err != nil {
			return
		}
		x := hashIndex(numbers[uint32](append([]byte{}, index...)[:len(index)/4*4]))
		if len(x) != slotsFor(n) || x.check(n) != nil {
			x = nil
		}
		for i := range c.len() {
			if found, ok := x.find(&c, c.at(i)); ok && c.at(found) != c.at(i) {
				t.Fatalf("Find(%v) is item %d, whose id is %v", c.at(i), found, c.at(found))
			}
		}
		if _, ok := x.find(&c, rerank.TextID("absent\x00")); ok && c.form != formAny {
			t.Fatal("a string was found among numbers")
		}
	})
}
