package httprank

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// textOf returns an item's text: the values of the given payload fields, joined by
// newlines. Missing, null and empty fields are skipped. The values of a list are joined by
// commas. Numbers, booleans and objects are rendered as JSON.
func textOf(payload json.RawMessage, fields []string) (string, error) {
	if len(payload) == 0 {
		return "", nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(payload, &object) != nil {
		return "", errors.New("it is no JSON object")
	}
	var parts []string
	for _, field := range fields {
		if text := valueOf(object[field]); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n"), nil
}

func valueOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"':
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return ""
		}
		return text
	case raw[0] == '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return ""
		}
		var parts []string
		for _, element := range list {
			if text := valueOf(element); text != "" {
				parts = append(parts, text)
			}
		}
		return strings.Join(parts, ", ")
	default:
		return string(raw)
	}
}
