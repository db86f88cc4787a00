package embedded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// ownersOf returns the item of each row, from the owner field if it has the given
// name, otherwise from the payload. It returns ErrField if a row has no owner.
func (c *collection) ownersOf(name string, numbers []int) ([]rerank.ID, error) {
	out := make([]rerank.ID, len(numbers))
	if name == c.owner && (c.owners != nil || c.rows == 0) {
		for i, n := range numbers {
			out[i] = c.owners[n]
		}
		return out, nil
	}
	if c.payloads == nil && c.rows > 0 {
		return nil, fmt.Errorf("%w: collection %q has no owner or payload field %q", adapters.ErrField, c.name, name)
	}
	for i, n := range numbers {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(orObject(c.payloads[n]), &fields); err != nil {
			return nil, fmt.Errorf("%w: payload of row %s: %w", adapters.ErrStore, c.id(n), err)
		}
		if err := out[i].UnmarshalJSON(fields[name]); err != nil || out[i].IsZero() {
			return nil, fmt.Errorf("%w: row %s of collection %q has no id in its payload field %q", adapters.ErrField, c.id(n), c.name, name)
		}
	}
	return out, nil
}

// rowPayload returns a row's payload, or its top-level fields with the given names, in
// that order. Numbers keep their text.
func (c *collection) rowPayload(n int, names []string) (json.RawMessage, error) {
	if c.payloads == nil {
		return json.RawMessage("{}"), nil
	}
	whole := orObject(c.payloads[n])
	if names == nil {
		return whole, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(whole, &fields); err != nil {
		return nil, fmt.Errorf("%w: payload of row %s: %w", adapters.ErrStore, c.id(n), err)
	}
	out := bytes.NewBufferString("{")
	for i, name := range names {
		value, ok := fields[name]
		if !ok || slices.Contains(names[:i], name) {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("%w: payload field %q: %w", adapters.ErrField, name, err)
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

func orObject(p json.RawMessage) json.RawMessage {
	if len(p) == 0 {
		return json.RawMessage("{}")
	}
	return p
}

// sortByID returns row numbers in the order of their ids.
func (c *collection) sortByID(numbers []int) []int {
	slices.SortFunc(numbers, func(a, b int) int { return c.id(a).Compare(c.id(b)) })
	return numbers
}
