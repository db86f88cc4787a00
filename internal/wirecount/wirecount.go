// Package wirecount counts the messages and fields in an encoded protobuf message before it
// is decoded. An empty nested message takes two bytes on the wire but hundreds in memory,
// so the length of a message says little about the memory that decoding needs.
package wirecount

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrLimit: a message contains more than its reader allows.
var ErrLimit = errors.New("too much inside a message")

// Limits limits the content of a message, at all depths together.
type Limits struct {
	// Messages limits the nested messages, including entries of maps.
	Messages int
	// Fields limits the occurrences of fields. A packed list counts as one.
	Fields int
	// Depth limits the levels of nested messages, not counting the outermost.
	Depth int
}

// Check returns ErrLimit if a message of the described type would exceed the limits when
// decoded. It reads each byte once, stops at the first excess, and allocates nothing.
// Malformed input is left for the decoder to detect.
func Check(encoded []byte, d protoreflect.MessageDescriptor, limits Limits) error {
	c := counter{limits: limits}
	return c.count(encoded, d.Fields(), 0)
}

// counter counts messages and fields towards its limits.
type counter struct {
	limits           Limits
	messages, fields int
}

// count counts the fields of a message at the given depth.
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
