package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// idForm says how ids are stored. A table uses the shortest form that can hold all of its
// ids.
type idForm string

const (
	formDense    idForm = "dense"    // item i has the id i, so nothing is stored
	formUnsigned idForm = "unsigned" // 8 bytes each
	formSigned   idForm = "signed"   // 8 bytes each
	formUUID     idForm = "uuid"     // 16 bytes each: UUIDs that were strings in the usual lower-case form
	formAny      idForm = "any"      // numbers and strings, tagged
)

// idColumn holds the ids of all items. Its zero value is empty and dense.
type idColumn struct {
	form    idForm
	count   int
	numbers []uint64    // formUnsigned and formSigned
	uuids   []byte      // formUUID
	list    []rerank.ID // formAny of a table in memory
	// formAny of a file: ids are decoded when they are read.
	offsets []uint64
	tagged  []byte
}

func (c *idColumn) len() int { return c.count }

// at returns the id of item i, which must exist.
func (c *idColumn) at(i int) rerank.ID {
	switch c.form {
	case formUnsigned:
		return rerank.UintID(c.numbers[i])
	case formSigned:
		return rerank.IntID(int64(c.numbers[i]))
	case formUUID:
		text := c.uuid(i)
		return rerank.TextID(string(text[:]))
	case formAny:
		if c.list != nil {
			return c.list[i]
		}
		return idOf(c.raw(i))
	default:
		return rerank.UintID(uint64(i))
	}
}

func (c *idColumn) raw(i int) []byte { return c.tagged[c.offsets[i]:c.offsets[i+1]] }

func (c *idColumn) uuid(i int) [uuidText]byte { return formatUUID([16]byte(c.uuids[16*i:])) }

// matches reports whether item i has the given id. It allocates nothing.
func (c *idColumn) matches(i int, id rerank.ID) bool {
	text, isText := id.Text()
	switch {
	case c.form == formUUID:
		have := c.uuid(i)
		return isText && string(have[:]) == text
	case c.form == formAny && c.list == nil && isText:
		raw := c.raw(i)
		return raw[0] == tagText && string(raw[1:]) == text
	case c.form == formAny && c.list == nil:
		raw := c.raw(i)
		return raw[0] != tagText && c.at(i) == id
	default:
		return c.at(i) == id
	}
}

// add appends an id. It first converts the column to a wider form if the id needs one.
func (c *idColumn) add(id rerank.ID) {
	if c.form == "" {
		c.form = formDense
	}
	if _, ok := parseUUID(id); ok && c.count == 0 {
		c.form = formUUID
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
	case formUUID:
		u, _ := parseUUID(id)
		c.uuids = append(c.uuids, u[:]...)
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
	case formUUID:
		_, is := parseUUID(id)
		return is
	default:
		return true
	}
}

// widen converts the column to the next wider form that holds its ids: dense, unsigned,
// signed, any; or UUID, any.
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

// encode returns the ids section. It holds 8 bytes for each number or 16 for each UUID. For
// formAny it holds n + 1 offsets (8 bytes each, counted from the end of the offsets), then
// the tagged ids.
func (c *idColumn) encode() []byte {
	if c.form == formUUID {
		return c.uuids
	}
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

// decodeIDs decodes the encoding of n ids. The result aliases b.
func decodeIDs(form idForm, n int, b []byte) (idColumn, error) {
	c := idColumn{form: form, count: n}
	want := 8 * n
	switch form {
	case formDense:
		want = 0
	case formUnsigned, formSigned:
	case formUUID:
		want, c.uuids = 16*n, b
	case formAny:
		return decodeAny(c, b)
	default:
		return c, fmt.Errorf("ids have the form %q, which is not known", form)
	}
	if len(b) != want {
		return c, fmt.Errorf("%d %s ids need %d bytes, their section has %d", n, form, want, len(b))
	}
	if form != formUUID {
		c.numbers = numbers[uint64](b)
	}
	return c, nil
}

func decodeAny(c idColumn, b []byte) (idColumn, error) {
	if len(b) < 8*(c.count+1) {
		return c, fmt.Errorf("the offsets of %d ids do not fit their section of %d bytes", c.count, len(b))
	}
	c.offsets, c.tagged = numbers[uint64](b[:8*(c.count+1)]), b[8*(c.count+1):]
	if c.offsets[0] != 0 || c.offsets[c.count] != uint64(len(c.tagged)) {
		return c, fmt.Errorf("the offsets of the ids do not span the %d bytes of the ids", len(c.tagged))
	}
	for i := range c.count {
		from, to := c.offsets[i], c.offsets[i+1]
		if from > to || to > uint64(len(c.tagged)) {
			return c, fmt.Errorf("the id of item %d has the offsets %d to %d", i, from, to)
		}
		if err := checkID(c.tagged[from:to]); err != nil {
			return c, fmt.Errorf("the id of item %d: %w", i, err)
		}
	}
	return c, nil
}

// The tags that begin an encoded id.
const (
	tagSigned   = 'i'
	tagUnsigned = 'u'
	tagText     = 's'
)

// appendID appends an id in tagged form: a tag, then 8 bytes for a number or the text of a
// string.
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

// parseID decodes the output of appendID. A string id aliases s.
func parseID(s string) (rerank.ID, error) {
	if err := checkID(s); err != nil {
		return rerank.ID{}, err
	}
	if s[0] == tagText {
		return rerank.TextID(s[1:]), nil
	}
	return idOf([]byte(s)), nil
}

// idOf decodes a tagged id that has passed checkID. A string id is copied.
func idOf(raw []byte) rerank.ID {
	switch raw[0] {
	case tagText:
		return rerank.TextID(string(raw[1:]))
	case tagUnsigned:
		return rerank.UintID(binary.LittleEndian.Uint64(raw[1:]))
	default:
		return rerank.IntID(int64(binary.LittleEndian.Uint64(raw[1:])))
	}
}

// checkID verifies that parseID can decode s.
func checkID[T string | []byte](s T) error {
	switch {
	case len(s) == 0:
		return errors.New("no tag")
	case s[0] == tagText:
		return nil
	case len(s) != 9 || s[0] != tagUnsigned && s[0] != tagSigned:
		return fmt.Errorf("tag %q with %d bytes", s[0], len(s)-1)
	case s[0] == tagSigned && s[8] < 0x80:
		return errors.New("a signed number is not negative")
	}
	return nil
}

// uuidText is the length of a UUID's text, 8-4-4-4-12 hexadecimal digits.
const uuidText = 36

// parseUUID converts an id that is a UUID in exactly the form that formatUUID produces.
func parseUUID(id rerank.ID) (u [16]byte, ok bool) {
	text, ok := id.Text()
	if !ok || len(text) != uuidText {
		return u, false
	}
	n := 0
	for i := range len(text) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if text[i] != '-' {
				return u, false
			}
			continue
		}
		digit := strings.IndexByte(hexDigits, text[i])
		if digit < 0 {
			return u, false
		}
		u[n/2] = u[n/2]<<4 | byte(digit)
		n++
	}
	return u, true
}

const hexDigits = "0123456789abcdef"

func formatUUID(u [16]byte) (text [uuidText]byte) {
	at := 0
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		text[at], text[at+1] = hexDigits[b>>4], hexDigits[b&15]
		at += 2
	}
	return text
}

// numbers reinterprets a section as numbers, or copies it if the machine cannot.
func numbers[T uint64 | int32 | uint32 | float32](b []byte) []T {
	if v, ok := mmap.View[T](b); ok {
		return v
	}
	var zero T
	v := make([]T, len(b)/binary.Size(zero))
	_, _ = binary.Decode(b, binary.LittleEndian, v) // cannot fail: the lengths agree
	return v
}
