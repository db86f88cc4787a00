package routing

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/internal/wirecount"
)

// decodable limits the contents of a request that the proxy decodes; a larger request is forwarded
// undecoded. The limits keep the memory for decoding below about ten megabytes plus the length of
// the request. A batch of 256 searches with filters of sixty conditions each is within them.
var decodable = wirecount.Limits{Messages: 1 << 14, Fields: 1 << 17, Depth: 64}

// Decode decodes a client's request into m. It returns the Pass of a request that has too many
// fields, is not such a message, or has a field that this build does not know.
func Decode(request []byte, m proto.Message) error {
	if wirecount.Check(request, m.ProtoReflect().Descriptor(), decodable) != nil {
		return Pass("size")
	}
	if proto.Unmarshal(request, m) != nil {
		return Pass("malformed")
	}
	if hasUnknown(m.ProtoReflect()) {
		return Pass("unknown-field")
	}
	return nil
}

// Text reads a text field of a message, such as the name of the collection, and decodes nothing
// else. The last occurrence counts. It allocates that one alone, however many there are.
func Text(b []byte, field protowire.Number) (text string, ok bool) {
	var last []byte
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return "", false
		}
		b = b[n:]
		if number == field && kind == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return "", false
			}
			last, ok, b = v, true, b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return "", false
		}
		b = b[n:]
	}
	return string(last), ok
}

// Fields calls f with every field of a message, without decoding it. value is nil for a field
// without a length. Fields returns false if the message is incomplete or f has returned false.
func Fields(b []byte, f func(number protowire.Number, value []byte) bool) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return false
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[n:])
		}
		if !f(number, value) {
			return false
		}
		b = b[n+size:]
	}
	return true
}

// hasUnknown reports whether a message has a field, at any depth, that this build does not know.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = hasUnknown(v.Message())
					return !found
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = hasUnknown(v.List().Get(i).Message())
			}
		default:
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}
