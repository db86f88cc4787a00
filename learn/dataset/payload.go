package dataset

import (
	"bytes"
	"encoding/json"
	"strings"
)

// PayloadText returns a scalar field of a payload as text, or "" if the payload has no such field.
// The name is a key, or a path of keys separated by dots.
func PayloadText(payload json.RawMessage, name string) string {
	var members map[string]json.RawMessage
	if name == "" || json.Unmarshal(payload, &members) != nil {
		return ""
	}
	value, found := members[name] // a key may contain a dot
	if !found {
		key, rest, nested := strings.Cut(name, ".")
		if nested {
			return PayloadText(members[key], rest)
		}
		return ""
	}
	value = bytes.TrimSpace(value)
	switch value[0] {
	case '"':
		var text string
		if json.Unmarshal(value, &text) != nil {
			return ""
		}
		return text
	case '{', '[', 'n':
		return ""
	default: // a number or a boolean
		return string(value)
	}
}
