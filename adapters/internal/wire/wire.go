// Package wire reads messages of protobuf without building them, so that an
// answer of many rows goes to memory that is used again.
package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// ErrText: protobuf refuses text that is not UTF-8, and so do we.
var ErrText = errors.New("text of the message is not valid UTF-8")

// Message reads itself; it keeps no part of b.
type Message interface{ ReadWire(b []byte) error }

// CallOption makes a call read its answer by Message, if it is one.
func CallOption() grpc.CallOption { return grpc.ForceCodecV2(Codec()) }

// Codec leaves every message that is no Message to protobuf.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return m.ReadWire(b.ReadOnlyData())
}

// Field is a field of a message: bytes, or the bits of a number.
type Field struct {
	Number protowire.Number
	Kind   protowire.Type
	Bytes  []byte
	Bits   uint64
}

// Is reports whether the field has that number and kind.
func (f Field) Is(number protowire.Number, kind protowire.Type) bool {
	return f.Number == number && f.Kind == kind
}

// Walker goes over the fields of a message, in their order. A malformed one ends
// the walk and sets err; once err is set there are none.
type Walker struct {
	Field
	rest []byte
	err  *error
}

// Walk starts a walk.
func Walk(b []byte, err *error) Walker { return Walker{rest: b, err: err} }

// Next goes to the next field and reports whether there is one.
func (w *Walker) Next() bool {
	if len(w.rest) == 0 || *w.err != nil {
		return false
	}
	n := w.read(w.rest)
	if n < 0 {
		*w.err = protowire.ParseError(n)
		return false
	}
	w.rest = w.rest[n:]
	return true
}

// read reads the first field of b and returns its length, or what is wrong as
// protowire says it.
func (f *Field) read(b []byte) (n int) {
	var size int
	if f.Number, f.Kind, n = protowire.ConsumeTag(b); n < 0 {
		return n
	}
	switch b = b[n:]; f.Kind {
	case protowire.VarintType:
		f.Bits, size = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		var bits uint32
		bits, size = protowire.ConsumeFixed32(b)
		f.Bits = uint64(bits)
	case protowire.BytesType:
		f.Bytes, size = protowire.ConsumeBytes(b)
	default:
		size = protowire.ConsumeFieldValue(f.Number, f.Kind, b)
	}
	if size < 0 {
		return size
	}
	return n + size
}

// Span is a part of an arena.
type Span struct{ From, To int }

// AppendText adds text to an arena.
func AppendText(arena []byte, b []byte, err *error) ([]byte, Span) {
	if !utf8.Valid(b) {
		*err = ErrText
		return arena, Span{}
	}
	from := len(arena)
	arena = append(arena, b...)
	return arena, Span{from, len(arena)}
}

// AppendFloats adds a repeated float, packed or not.
func AppendFloats(to []float32, f Field, err *error) []float32 {
	switch f.Kind { //nolint:exhaustive // of another kind it is another field, as to protobuf
	case protowire.Fixed32Type:
		return append(to, math.Float32frombits(uint32(f.Bits)))
	case protowire.BytesType:
		if len(f.Bytes)%4 != 0 {
			*err = io.ErrUnexpectedEOF
			return to
		}
		for b := f.Bytes; len(b) > 0; b = b[4:] {
			to = append(to, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
	return to
}

// AppendInts adds a repeated int64, packed or not.
func AppendInts(to []int64, f Field, err *error) []int64 {
	switch f.Kind { //nolint:exhaustive // as above
	case protowire.VarintType:
		return append(to, int64(f.Bits))
	case protowire.BytesType:
		for b := f.Bytes; len(b) > 0; {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				*err = protowire.ParseError(n)
				return to
			}
			to, b = append(to, int64(v)), b[n:]
		}
	}
	return to
}
