// Package families generates encoded messages that are hard to decode, for tests of the
// cost of decoding.
package families

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/internal/cost"
)

// Messages returns families of encoded messages of a type: each repeats one of its fields,
// or of the fields in those, to a depth, with nothing in it.
func Messages(d protoreflect.MessageDescriptor, depth int) map[string]cost.Family {
	families := map[string]cost.Family{"zeros": func(n int) []byte { return make([]byte, n) }, "unknown fields": repeat([]byte("\xf8\x07\x00"))}
	for _, part := range emptyFields(d, depth) {
		families[fmt.Sprintf("%s of %x", d.Name(), part)] = repeat(part)
	}
	return families
}

func repeat(part []byte) cost.Family {
	return func(length int) []byte { return bytes.Repeat(part, length/len(part)) }
}

func emptyFields(d protoreflect.MessageDescriptor, depth int) (parts [][]byte) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		text := func(b []byte) []byte {
			return protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), b)
		}
		parts = append(parts, text(nil), protowire.AppendVarint(protowire.AppendTag(nil, f.Number(), protowire.VarintType), 0))
		if f.Message() == nil || depth == 0 {
			continue
		}
		for _, inner := range emptyFields(f.Message(), depth-1) {
			parts = append(parts, text(inner))
		}
	}
	return parts
}
