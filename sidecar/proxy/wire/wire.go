// Package wire edits encoded protobuf messages without decoding them. Every field that an
// edit does not name keeps its bytes and its place, unknown fields among them, and the
// lengths of the messages around an edited field are corrected.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

var (
	// ErrMalformed says that bytes are not an encoded message, or that a field has another
	// wire type than its reader expects.
	ErrMalformed = errors.New("malformed protobuf message")
	// ErrRepeated says that a message holds a field more than once that is edited as a
	// single one. Decoders merge such fields.
	ErrRepeated = errors.New("field of a protobuf message comes more than once")
	// ErrMissing says that a message does not hold a field that is to be edited.
	ErrMissing = errors.New("field of a protobuf message is missing")
)

// Field is one field of an encoded message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	// Value is the encoded value; a field with a length has it without that length.
	Value []byte
	// Raw is the whole field, tag included.
	Raw []byte
}

// next splits the first field off a message.
func next(message []byte) (f Field, rest []byte, err error) {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 {
		return f, nil, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(tag))
	}
	size := protowire.ConsumeFieldValue(number, kind, message[tag:])
	if size < 0 {
		return f, nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, number, protowire.ParseError(size))
	}
	f = Field{Number: number, Type: kind, Raw: message[:tag+size], Value: message[tag : tag+size]}
	if kind == protowire.BytesType {
		f.Value, _ = protowire.ConsumeBytes(f.Value)
	}
	return f, message[tag+size:], nil
}

// Walk calls visit with each field of message, in order, and stops at the first error.
func Walk(message []byte, visit func(f Field) error) error {
	for len(message) > 0 {
		f, rest, err := next(message)
		if err != nil {
			return err
		}
		if err := visit(f); err != nil {
			return err
		}
		message = rest
	}
	return nil
}

// Edit appends message to out, and calls replace to append each field. To keep a field,
// replace appends its Raw.
func Edit(out, message []byte, replace func(out []byte, f Field) ([]byte, error)) ([]byte, error) {
	err := Walk(message, func(f Field) (err error) {
		out, err = replace(out, f)
		return err
	})
	return out, err
}

// Message returns the content of a field that holds a message, text or bytes.
func (f Field) Message() ([]byte, error) {
	if f.Type != protowire.BytesType {
		return nil, fmt.Errorf("%w: field %d has wire type %d, not a length", ErrMalformed, f.Number, f.Type)
	}
	return f.Value, nil
}

// Uint returns the value of a field that holds an integer or a truth value.
func (f Field) Uint() (uint64, error) {
	if f.Type != protowire.VarintType {
		return 0, fmt.Errorf("%w: field %d has wire type %d, not a varint", ErrMalformed, f.Number, f.Type)
	}
	n, _ := protowire.ConsumeVarint(f.Value)
	return n, nil
}

// Float returns the value of a field that holds a float.
func (f Field) Float() (float32, error) {
	if f.Type != protowire.Fixed32Type {
		return 0, fmt.Errorf("%w: field %d has wire type %d, not 32 bits", ErrMalformed, f.Number, f.Type)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(f.Value)), nil
}

// SetFloat changes the value of a field that holds a float, in the message that the field
// was read from.
func (f Field) SetFloat(value float32) {
	binary.LittleEndian.PutUint32(f.Value, math.Float32bits(value))
}

// AppendFloats appends the values that one occurrence of a repeated float field holds,
// packed or not.
func (f Field) AppendFloats(values []float32) ([]float32, error) {
	if err := f.checkFloats(); err != nil {
		return values, err
	}
	before, count := len(values), len(f.Value)/4
	values = slices.Grow(values, count)[:before+count]
	for i := range values[before:] {
		values[before+i] = math.Float32frombits(binary.LittleEndian.Uint32(f.Value[4*i:]))
	}
	return values, nil
}

func (f Field) checkFloats() error {
	if f.Type == protowire.Fixed32Type || f.Type == protowire.BytesType && len(f.Value)%4 == 0 {
		return nil
	}
	return fmt.Errorf("%w: field %d has wire type %d and %d bytes, not floats", ErrMalformed, f.Number, f.Type, len(f.Value))
}

// AppendFloat appends a field that holds a float.
func AppendFloat(out []byte, number protowire.Number, value float32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(out, number, protowire.Fixed32Type), math.Float32bits(value))
}

// AppendPacked appends a packed repeated float field.
func AppendPacked(out []byte, number protowire.Number, values []float32) []byte {
	out = protowire.AppendVarint(protowire.AppendTag(out, number, protowire.BytesType), uint64(4*len(values)))
	from := len(out)
	out = slices.Grow(out, 4*len(values))[:from+4*len(values)]
	for i, v := range values {
		binary.LittleEndian.PutUint32(out[from+4*i:], math.Float32bits(v))
	}
	return out
}

// AppendMessage appends a field with a length whose content build appends. likely is the
// length that the content most likely has; a content of another length costs a move.
func AppendMessage(out []byte, number protowire.Number, likely int, build func(out []byte) ([]byte, error)) ([]byte, error) {
	out = protowire.AppendTag(out, number, protowire.BytesType)
	length := len(out)
	out = protowire.AppendVarint(out, uint64(likely))
	content := len(out)
	out, err := build(out)
	if err != nil {
		return out, err
	}
	size := uint64(len(out) - content)
	if shift := protowire.SizeVarint(size) - (content - length); shift > 0 {
		out = append(out, make([]byte, shift)...)
		copy(out[content+shift:], out[content:len(out)-shift])
	} else if shift < 0 {
		out = append(out[:content+shift], out[content:]...)
	}
	protowire.AppendVarint(out[:length], size)
	return out, nil
}

// ReplaceVector returns message with the values of the repeated float field at path
// replaced. A path names the messages around the field, the outermost first, and then the
// field; each of those messages must be there once. The field is written packed where it
// first comes. ReplaceVector returns ErrMalformed, ErrRepeated or ErrMissing.
func ReplaceVector(message []byte, path []protowire.Number, vector []float32) ([]byte, error) {
	return AppendReplaced(make([]byte, 0, len(message)+4*len(vector)+16), message, path, vector)
}

// AppendReplaced appends what ReplaceVector returns.
func AppendReplaced(out, message []byte, path []protowire.Number, vector []float32) ([]byte, error) {
	found := false
	out, err := Edit(out, message, func(out []byte, f Field) ([]byte, error) {
		first := !found
		switch {
		case f.Number != path[0]:
			return append(out, f.Raw...), nil
		case len(path) == 1:
			if err := f.checkFloats(); err != nil {
				return out, err
			}
			if found = true; first {
				return AppendPacked(out, f.Number, vector), nil
			}
			return out, nil // the first occurrence has the whole vector
		case !first:
			return out, fmt.Errorf("%w: %d", ErrRepeated, f.Number)
		}
		found = true
		inner, err := f.Message()
		if err != nil {
			return out, err
		}
		return AppendMessage(out, f.Number, len(inner), func(out []byte) ([]byte, error) {
			return AppendReplaced(out, inner, path[1:], vector)
		})
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %d", ErrMissing, path[0])
	}
	return out, err
}
