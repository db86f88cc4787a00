package derive

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// SamePayload reports whether two payloads are equal as JSON. The order of keys and the
// spelling of a number do not matter; an integer differs from a float of the same value.
// A missing payload equals an empty one.
func SamePayload(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, okX := decodeJSON(a)
	y, okY := decodeJSON(b)
	return okX && okY && sameValue(x, y)
}

func decodeJSON(raw json.RawMessage) (v any, ok bool) {
	if len(raw) == 0 {
		return map[string]any{}, true
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&v)
	if v == nil {
		v = map[string]any{}
	}
	return v, err == nil
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameValue)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a.String(), b.String())
	default:
		return a == b
	}
}

func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(a, ".eE") || !strings.ContainsAny(b, ".eE") {
		return false // two integers, or one of each
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}
