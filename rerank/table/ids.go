package table

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// idForm is how ids are stored: the shortest form that holds all of them.
type idForm string

const (
	formDense    idForm = "dense"    // item i has the id i; nothing is stored
	formUnsigned idForm = "unsigned" // 8 bytes each
	formSigned   idForm = "signed"   // 8 bytes each
	formAny      idForm = "any"      // numbers and strings, tagged
)

// idColumn holds the ids of the items. Its zero value is empty and dense.
type idColumn struct {
	form    idForm
	count   int
	numbers []uint64    // formUnsigned and formSigned
	list    []rerank.ID // formAny
}

func (c *idColumn) len() int { return c.count }

// at returns the id of item i, which must exist.
func (c *idColumn) at(i int) rerank.ID {
	switch c.form {
	case formUnsigned:
		return rerank.UintID(c.numbers[i])
	case formSigned:
		return rerank.IntID(int64(c.numbers[i]))
	case formAny:
		return c.list[i]
	default:
		return rerank.UintID(uint64(i))
	}
}

// add appends an id, in a wider form if it needs one.
func (c *idColumn) add(id rerank.ID) {
	if c.form == "" {
		c.form = formDense
	}
	for !c.fits(id) {
		c.widen()
	}
	switch c.form {
	case formDense: // nothing to store
	case formUnsigned:
		n, _ := id.Uint64()
		c.numbers = append(c.numbers, n)
	case formSigned:
		n, _ := id.Int64()
		c.numbers = append(c.numbers, uint64(n))
	case formAny:
		c.list = append(c.list, id)
	}
	c.count++
}

func (c *idColumn) fits(id rerank.ID) bool {
	unsigned, isUnsigned := id.Uint64()
	_, isSigned := id.Int64()
	switch c.form {
	case formDense:
		return isUnsigned && unsigned == uint64(c.count)
	case formUnsigned:
		return isUnsigned
	case formSigned:
		return isSigned
	default:
		return true
	}
}

// widen goes to the next form that holds what is there: dense, unsigned, signed, any.
func (c *idColumn) widen() {
	switch {
	case c.form == formDense:
		c.numbers = make([]uint64, c.count)
		for i := range c.numbers {
			c.numbers[i] = uint64(i)
		}
		c.form = formUnsigned
	case c.form == formUnsigned && c.greatest() <= math.MaxInt64:
		c.form = formSigned
	default:
		list := make([]rerank.ID, c.count)
		for i := range list {
			list[i] = c.at(i)
		}
		*c = idColumn{form: formAny, count: c.count, list: list}
	}
}

func (c *idColumn) greatest() (n uint64) {
	for _, x := range c.numbers {
		n = max(n, x)
	}
	return n
}

// encode returns the ids section: numbers of 8 bytes, or for formAny the n + 1
// offsets of the tagged ids (8 bytes each, counted from their end), and those.
func (c *idColumn) encode() []byte {
	if c.form != formAny {
		b := make([]byte, 0, 8*len(c.numbers))
		for _, n := range c.numbers {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	offsets := make([]byte, 0, 8*(c.count+1))
	var tagged []byte
	for _, id := range c.list {
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(tagged)))
		tagged = appendID(tagged, id)
	}
	offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(tagged)))
	return append(offsets, tagged...)
}

// decodeIDs reads what encode made of n ids; numbers alias b, strings do not.
func decodeIDs(form idForm, n int, b []byte) (idColumn, error) {
	c := idColumn{form: form, count: n}
	want := 8 * n
	switch form {
	case formDense:
		want = 0
	case formUnsigned, formSigned:
	case formAny:
		return decodeAny(c, b)
	default:
		return c, fmt.Errorf("ids have the form %q, which is not known", form)
	}
	if len(b) != want {
		return c, fmt.Errorf("%d %s ids need %d bytes, their section has %d", n, form, want, len(b))
	}
	c.numbers = numbers[uint64](b)
	return c, nil
}

func decodeAny(c idColumn, b []byte) (idColumn, error) {
	if len(b) < 8*(c.count+1) {
		return c, fmt.Errorf("the offsets of %d ids do not fit their section of %d bytes", c.count, len(b))
	}
	offsets := numbers[uint64](b[:8*(c.count+1)])
	tagged := string(b[8*(c.count+1):])
	if offsets[0] != 0 || offsets[c.count] != uint64(len(tagged)) {
		return c, fmt.Errorf("the offsets of the ids do not span the %d bytes of the ids", len(tagged))
	}
	c.list = make([]rerank.ID, c.count)
	for i := range c.list {
		from, to := offsets[i], offsets[i+1]
		if from > to || to > uint64(len(tagged)) {
			return c, fmt.Errorf("the id of item %d has the offsets %d to %d", i, from, to)
		}
		var err error
		if c.list[i], err = parseID(tagged[from:to]); err != nil {
			return c, fmt.Errorf("the id of item %d: %w", i, err)
		}
	}
	return c, nil
}

// The tags of an id.
const (
	tagSigned   = 'i'
	tagUnsigned = 'u'
	tagText     = 's'
)

// appendID appends the tagged form of an id: a tag and 8 bytes, or a tag and the string.
func appendID(b []byte, id rerank.ID) []byte {
	if n, ok := id.Uint64(); ok {
		return binary.LittleEndian.AppendUint64(append(b, tagUnsigned), n)
	}
	if n, ok := id.Int64(); ok {
		return binary.LittleEndian.AppendUint64(append(b, tagSigned), uint64(n))
	}
	s, _ := id.Text()
	return append(append(b, tagText), s...)
}

// parseID reads what appendID wrote; the id's string aliases s.
func parseID(s string) (rerank.ID, error) {
	if s == "" {
		return rerank.ID{}, fmt.Errorf("no tag")
	}
	tag, rest := s[0], s[1:]
	switch {
	case tag == tagText:
		return rerank.TextID(rest), nil
	case len(rest) != 8 || tag != tagUnsigned && tag != tagSigned:
		return rerank.ID{}, fmt.Errorf("tag %q with %d bytes", tag, len(rest))
	}
	n := binary.LittleEndian.Uint64([]byte(rest))
	if tag == tagUnsigned {
		return rerank.UintID(n), nil
	}
	if int64(n) >= 0 {
		return rerank.ID{}, fmt.Errorf("the signed number %d is not negative", n)
	}
	return rerank.IntID(int64(n)), nil
}

// numbers looks at a section as numbers, or copies them where it cannot.
func numbers[T uint64 | int32 | uint32 | float32](b []byte) []T {
	if v, ok := mmap.View[T](b); ok {
		return v
	}
	var zero T
	v := make([]T, len(b)/binary.Size(zero))
	_, _ = binary.Decode(b, binary.LittleEndian, v) // the lengths agree
	return v
}
