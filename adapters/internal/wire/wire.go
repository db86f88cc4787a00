// Package wire decodes protobuf messages without building message structs, so that an
// answer of many rows goes into reused memory.
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

// ErrText means that a text is not valid UTF-8, which protobuf forbids.
var ErrText = errors.New("text of the message is not valid UTF-8")

// Message decodes itself from b, without keeping a reference to b.
type Message interface{ ReadWire(b []byte) error }

// CallOption makes a call decode its answer with ReadWire if the answer is a Message.
func CallOption() grpc.CallOption { return grpc.ForceCodecV2(Codec()) }

// Codec decodes a Message with ReadWire, and any other message with protobuf.
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

// Field is a field of a message: its bytes, or the bits of its number.
type Field struct {
	Number protowire.Number
	Kind   protowire.Type
	Bytes  []byte
	Bits   uint64
}

// Is reports whether the field has the given number and wire type.
func (f Field) Is(number protowire.Number, kind protowire.Type) bool {
	return f.Number == number && f.Kind == kind
}

// Walker iterates over the fields of a message in order. A malformed field ends the
// iteration and sets err. Once err is set, Next returns false.
type Walker struct {
	Field
	rest []byte
	err  *error
}

// Walk returns a Walker over b that reports errors in err.
func Walk(b []byte, err *error) Walker { return Walker{rest: b, err: err} }

// Next advances to the next field and reports whether there is one.
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

// read decodes the first field of b and returns its length, or a negative error code
// of protowire.
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

// Span is a part of an arena, from From to To−1.
type Span struct{ From, To int }

// AppendText appends text to an arena and returns its span.
func AppendText(arena []byte, b []byte, err *error) ([]byte, Span) {
	if !utf8.Valid(b) {
		*err = ErrText
		return arena, Span{}
	}
	from := len(arena)
	arena = append(arena, b...)
	return arena, Span{from, len(arena)}
}

// AppendFloats appends a repeated float field, packed or not.
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

// AppendInts appends a repeated int64 field, packed or not.
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
