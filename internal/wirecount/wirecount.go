// Package wirecount counts the messages and fields of an encoded protobuf message before it
// is decoded. An empty message inside another takes two bytes on the wire and hundreds in
// memory, so that the length of a message says little about the memory of decoding it.
package wirecount

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrLimit says that a message has more inside than its reader takes.
var ErrLimit = errors.New("too much inside a message")

// Limits bound what is inside a message, at all depths together.
type Limits struct {
	// Messages is the most messages inside, entries of maps among them.
	Messages int
	// Fields is the most occurrences of fields. A packed list is one, whatever its length.
	Fields int
	// Depth is the most levels of messages, the outermost one not counted.
	Depth int
}

// Check returns ErrLimit where a message of the described type, decoded, would exceed the
// limits. It looks at each byte once, stops at the first excess and allocates nothing.
// Bytes that are not such a message are left for the decoder to find.
func Check(encoded []byte, d protoreflect.MessageDescriptor, limits Limits) error {
	c := counter{limits: limits}
	return c.count(encoded, d.Fields(), 0)
}

// counter counts towards its limits.
type counter struct {
	limits           Limits
	messages, fields int
}

// count counts the fields of a message that lies so deep.
func (c *counter) count(b []byte, known protoreflect.FieldDescriptors, depth int) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return nil
		}
		value := b[n : n+size]
		b = b[n+size:]
		if c.fields++; c.fields > c.limits.Fields {
			return fmt.Errorf("%w: more than %d fields", ErrLimit, c.limits.Fields)
		}
		if kind != protowire.BytesType {
			continue
		}
		field := known.ByNumber(number)
		if field == nil || field.Message() == nil {
			continue
		}
		if c.messages++; c.messages > c.limits.Messages {
			return fmt.Errorf("%w: more than %d messages", ErrLimit, c.limits.Messages)
		}
		if depth == c.limits.Depth {
			return fmt.Errorf("%w: more than %d levels", ErrLimit, c.limits.Depth)
		}
		inner, _ := protowire.ConsumeBytes(value)
		if err := c.count(inner, field.Message().Fields(), depth+1); err != nil {
			return err
		}
	}
	return nil
}
