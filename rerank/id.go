package rerank

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// ID names a stored vector in any store: an unsigned or signed 64-bit integer, or a string
// (a UUID on Qdrant, a VarChar on Milvus). IDs are comparable. The zero ID names nothing.
// An ID keeps its exact value and type on the way to a store and back.
type ID struct {
	text string
	num  uint64
	kind idKind
}

type idKind uint8

// The constants are in the order in which ids sort: negative numbers, other numbers,
// strings.
const (
	idNone idKind = iota
	idNegative
	idNumber
	idText
)

// UintID returns the id of an unsigned number.
func UintID(n uint64) ID { return ID{num: n, kind: idNumber} }

// IntID returns the id of a signed number; IntID(n) == UintID(n) for n ≥ 0.
func IntID(n int64) ID {
	if n < 0 {
		return ID{num: uint64(n), kind: idNegative}
	}
	return UintID(uint64(n))
}

// TextID returns the id of a string. TextID("7") and UintID(7) are different ids.
func TextID(s string) ID { return ID{text: s, kind: idText} }

// IsZero reports whether the id names nothing.
func (id ID) IsZero() bool { return id.kind == idNone }

// Uint64 returns the id as a number. It reports false for a negative number or a string.
func (id ID) Uint64() (uint64, bool) { return id.num, id.kind == idNumber }

// Int64 returns the id as a number. It reports false for a string or a number above
// math.MaxInt64.
func (id ID) Int64() (int64, bool) {
	return int64(id.num), id.kind == idNegative || id.kind == idNumber && id.num <= math.MaxInt64
}

// Text returns the id as a string. It reports false for a number.
func (id ID) Text() (string, bool) { return id.text, id.kind == idText }

// Compare orders ids: numbers ascending, then strings in byte order. Rows with equal scores
// are returned in this order, whatever the store.
func (id ID) Compare(other ID) int {
	if c := cmp.Compare(id.kind, other.kind); c != 0 {
		return c
	}
	switch id.kind {
	case idNegative:
		return cmp.Compare(int64(id.num), int64(other.num))
	case idText:
		return cmp.Compare(id.text, other.text)
	default:
		return cmp.Compare(id.num, other.num)
	}
}

// String formats the id for people. The string "7" and the number 7 look the same.
func (id ID) String() string {
	switch id.kind {
	case idNegative:
		return strconv.FormatInt(int64(id.num), 10)
	case idNumber:
		return strconv.FormatUint(id.num, 10)
	default:
		return id.text
	}
}

// MarshalJSON writes a number or a string; the zero id is null.
func (id ID) MarshalJSON() ([]byte, error) {
	switch id.kind {
	case idNone:
		return []byte("null"), nil
	case idText:
		return json.Marshal(id.text)
	default:
		return []byte(id.String()), nil
	}
}

// UnmarshalJSON reads the output of MarshalJSON without rounding any number.
func (id *ID) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*id = TextID(s)
		return nil
	}
	if string(b) == "null" {
		*id = ID{}
		return nil
	}
	if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		*id = UintID(n)
		return nil
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("id %s: neither a 64-bit integer nor a string", b)
	}
	*id = IntID(n)
	return nil
}
