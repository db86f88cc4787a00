package client

import (
	"strconv"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// ID names an item exactly as its store does: by a number of 64 bits, with or without
// a sign, or by a text. It can be compared, and be a key of a map. The zero ID is the
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

// Number is the id of an unsigned number.
func Number(n uint64) ID { return ID{number: n} }

// Int is the id of a number that can be negative.
func Int(n int64) ID {
	if n < 0 {
		return ID{kind: negative, number: uint64(n)}
	}
	return Number(uint64(n))
}

// Text is the id of a text: a UUID, a key.
func Text(s string) ID { return ID{kind: text, text: s} }

// Number is an id's number, if it is one that is not negative.
func (id ID) Number() (n uint64, ok bool) { return id.number, id.kind == unsigned }

// Int is an id's number, if it is one within the range.
func (id ID) Int() (n int64, ok bool) {
	n = int64(id.number)
	return n, id.kind == negative || id.kind == unsigned && n >= 0
}

// Text is an id's text, if it is one.
func (id ID) Text() (s string, ok bool) { return id.text, id.kind == text }

// String is the number in decimal, or the text.
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
