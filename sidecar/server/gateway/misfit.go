package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxExplained is the length of the longest body that misfit looks into: it reads a body once for each level.
const maxExplained = 1 << 16

// misfit names the first value of a message's JSON that has another form than the message's field, and the
// form that the field takes. It returns "" if it finds none. protobuf's own error gives a line and a column alone.
func misfit(m protoreflect.MessageDescriptor, data []byte) string {
	if len(data) > maxExplained || !json.Valid(data) {
		return ""
	}
	return misfitOfMessage(m, data, "the body")
}

func misfitOfMessage(m protoreflect.MessageDescriptor, value json.RawMessage, path string) string {
	if strings.HasPrefix(string(m.FullName()), "google.protobuf.") {
		return "" // a time, a struct: they have forms of their own
	}
	if formOf(value) != "an object" {
		return want(path, "an object with "+names(m), value)
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(value, &fields) // of an object, which is valid
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := m.Fields().ByJSONName(name)
		if f == nil {
			f = m.Fields().ByTextName(name)
		}
		if f == nil {
			continue
		}
		if said := misfitOfField(f, fields[name], strings.TrimPrefix(path+"."+name, "the body.")); said != "" {
			return said
		}
	}
	return ""
}

func misfitOfField(f protoreflect.FieldDescriptor, value json.RawMessage, path string) string {
	switch {
	case formOf(value) == "null":
		return ""
	case f.IsMap():
		if formOf(value) != "an object" {
			return want(path, "an object", value)
		}
	case f.IsList():
		if formOf(value) != "a list" {
			return want(path, "a list", value)
		}
		var elements []json.RawMessage
		_ = json.Unmarshal(value, &elements) // of a list, which is valid
		for i, e := range elements {
			if said := misfitOfValue(f, e, fmt.Sprintf("%s[%d]", path, i)); said != "" {
				return said
			}
		}
	default:
		return misfitOfValue(f, value, path)
	}
	return ""
}

// misfitOfValue is misfitOfField for a single value, or one of a list.
func misfitOfValue(f protoreflect.FieldDescriptor, value json.RawMessage, path string) string {
	form := formOf(value)
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return misfitOfMessage(f.Message(), value, path)
	case protoreflect.StringKind:
		if form == "an object" || form == "a list" {
			return want(path, "a text, which may hold JSON in quotes", value)
		}
		if form != "a text" {
			return want(path, "a text", value)
		}
	case protoreflect.BoolKind:
		if form != "true or false" {
			return want(path, "true or false", value)
		}
	case protoreflect.BytesKind, protoreflect.EnumKind: // a text; a number of an enum
	default:
		if form != "a number" && form != "a text" { // numbers may stand in quotes
			return want(path, "a number", value)
		}
	}
	return ""
}

func want(path, form string, value json.RawMessage) string {
	return fmt.Sprintf("%s is %s; want %s", path, formOf(value), form)
}

// formOf names the form of a JSON value by its first byte.
func formOf(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// names lists the fields of a message.
func names(m protoreflect.MessageDescriptor) string {
	list := make([]string, m.Fields().Len())
	for i := range list {
		list[i] = m.Fields().Get(i).TextName()
	}
	return strings.Join(list, ", ")
}
