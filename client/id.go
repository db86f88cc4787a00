package client

import (
	"strconv"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// ID names an item exactly as its store does: by a 64-bit number, signed or unsigned,
// or by a text. It is comparable and can be the key of a map. The zero ID is the
// number 0.
type ID struct {
	kind   idKind
	number uint64
	text   string
}

type idKind uint8

const (
	unsigned idKind = iota
	negative
	text
)

// Number returns the id with an unsigned number.
func Number(n uint64) ID { return ID{number: n} }

// Int returns the id with a number that can be negative.
func Int(n int64) ID {
	if n < 0 {
		return ID{kind: negative, number: uint64(n)}
	}
	return Number(uint64(n))
}

// Text returns the id with a text, such as a UUID or a key.
func Text(s string) ID { return ID{kind: text, text: s} }

// Number returns the id's number. ok is false for a text or a negative number.
func (id ID) Number() (n uint64, ok bool) { return id.number, id.kind == unsigned }

// Int returns the id's number. ok is false for a text or a number beyond int64.
func (id ID) Int() (n int64, ok bool) {
	n = int64(id.number)
	return n, id.kind == negative || id.kind == unsigned && n >= 0
}

// Text returns the id's text. ok is false for a number.
func (id ID) Text() (s string, ok bool) { return id.text, id.kind == text }

// String returns the number in decimal, or the text.
func (id ID) String() string {
	switch id.kind {
	case text:
		return id.text
	case negative:
		return strconv.FormatInt(int64(id.number), 10)
	default:
		return strconv.FormatUint(id.number, 10)
	}
}

func fromID(m *likenessv1.ItemId) ID {
	switch id := m.GetId().(type) {
	case *likenessv1.ItemId_Text:
		return Text(id.Text)
	case *likenessv1.ItemId_Negative:
		return Int(id.Negative)
	default:
		return Number(m.GetNumber())
	}
}

func (id ID) proto() *likenessv1.ItemId {
	switch id.kind {
	case text:
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: id.text}}
	case negative:
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Negative{Negative: int64(id.number)}}
	default:
		return &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: id.number}}
	}
}

func fromIDs(ms []*likenessv1.ItemId) []ID {
	out := make([]ID, len(ms))
	for i, m := range ms {
		out[i] = fromID(m)
	}
	return out
}
