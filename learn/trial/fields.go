package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/edits"
)

// Field is a payload field, as some rows have it. Name is a path with dots into nested
// objects.
type Field struct {
	Name string `json:"name"`
	Type string `json:"type"` // string, number, boolean, array, object or mixed
	// Rows is the number of rows, among those looked at, that have the field, Values the
	// number of different values.
	Rows   int `json:"rows"`
	Values int `json:"values"`
	// Length is the mean length of a string, in bytes.
	Length int `json:"length,omitempty"`
}

// Bounds of looking at payloads.
const (
	fieldRows  = 500
	fieldBatch = 50
	fieldDepth = 2 // of nested objects
	mostFields = 100
)

// readFields looks at the payload of the first rows.
func (t *trial) readFields(ctx context.Context) error {
	found := map[string]*fieldCount{}
	rows := 0
	request := adapters.ScanRequest{Collection: t.Collection, Payload: true, Batch: fieldBatch}
	err := t.can.Scan.Scan(ctx, request, func(r adapters.Rows, _ string) error {
		for _, payload := range r.Payloads {
			countFields(found, "", payload, fieldDepth)
		}
		if rows += len(r.IDs); rows >= fieldRows {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return t.explain(ctx, err)
	}
	t.look.Fields = listFields(found)
	return nil
}

// listFields lists the fields by name.
func listFields(found map[string]*fieldCount) (fields []Field) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c := found[name]
		f := Field{Name: name, Type: c.kind, Rows: c.rows, Values: len(c.values)}
		if c.kind == "string" {
			f.Length = c.length / c.rows
		}
		fields = append(fields, f)
	}
	return fields
}

// UnknownField says that none of the payloads has a field, and which of their fields are most like it. It
// returns "" if a payload has the field.
func UnknownField(name string, payloads []json.RawMessage) string {
	found := map[string]*fieldCount{}
	for _, payload := range payloads {
		countFields(found, "", payload, fieldDepth)
	}
	if nearest := nearestFields(name, listFields(found)); nearest != "" {
		return fmt.Sprintf("no row has a field %q; %s", name, nearest)
	}
	return ""
}

// nearestFields says which fields are most like one that no row has. It returns "" if the rows have the
// field. A name may also be a path below a field, or above several.
func nearestFields(name string, fields []Field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
		if f.Name == name || strings.HasPrefix(f.Name, name+".") || strings.HasPrefix(name, f.Name+".") || strings.HasPrefix(name, f.Name+"[") {
			return ""
		}
	}
	if len(names) == 0 {
		return "the rows have no fields"
	}
	near := edits.Nearest(name, names, len(names))
	slices.SortStableFunc(near, func(a, b string) int { // meta.topic is nearer to topic than row is
		return cmp.Compare(strings.Index(b, "."+name), strings.Index(a, "."+name))
	})
	return fmt.Sprintf("the nearest of %d fields are %q", len(names), near[:min(len(near), shownNames)])
}

// fieldsWithin lists the fields of an object.
func fieldsWithin(object string, fields []Field) (names []string) {
	for _, f := range fields {
		if strings.HasPrefix(f.Name, object+".") {
			names = append(names, f.Name)
		}
	}
	return names
}

// fieldCount counts the values of a field.
type fieldCount struct {
	kind   string
	rows   int
	length int
	values map[string]bool
}

func countFields(found map[string]*fieldCount, prefix string, object json.RawMessage, depth int) {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return
	}
	for key, value := range members {
		name := prefix + key
		kind := kindOf(value)
		if kind == "null" {
			continue
		}
		if kind == "object" && depth > 1 {
			countFields(found, name+".", value, depth-1)
			continue
		}
		c := found[name]
		if c == nil {
			if len(found) >= mostFields {
				continue
			}
			c = &fieldCount{kind: kind, values: map[string]bool{}}
			found[name] = c
		}
		if c.kind != kind {
			c.kind = "mixed"
		}
		c.rows++
		c.length += len(value)
		c.values[shorten(string(value), labelBytes)] = true
	}
}

// kindOf names the type of a JSON value.
func kindOf(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return "null"
	}
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return "number"
	}
}

// titleNames are usual names of the field that says what a row is, the best first.
var titleNames = []string{"title", "name", "product_name", "headline", "question", "text", "page_content", "content", "body", "document", "description", "summary"}

// pickTitle returns the field that tells a reader what a row is, or "".
func pickTitle(fields []Field, label string) string {
	best, bestScore := "", 0
	for _, f := range fields {
		if f.Type != "string" || f.Name == label && f.Values < f.Rows {
			continue
		}
		last := strings.ToLower(f.Name[strings.LastIndexByte(f.Name, '.')+1:])
		score := 0
		if at := slices.Index(titleNames, last); at >= 0 {
			score = 1000 - at
		} else if f.Length > 4 && 2*f.Values > f.Rows { // not an enumeration
			score = min(f.Length, 500)
		}
		if score > bestScore {
			best, bestScore = f.Name, score
		}
	}
	return best
}

// labels lists the fields whose values group rows, as a label does.
func (l *Look) labels() []string {
	var found []string
	for _, f := range l.Fields {
		scalar := f.Type == "string" || f.Type == "number" || f.Type == "boolean"
		if scalar && f.Values >= 2 && 2*f.Values <= f.Rows && f.Name != l.Title {
			found = append(found, f.Name)
		}
	}
	return found
}

// topKey returns the first key of a path.
func topKey(path string) string {
	key, _, _ := strings.Cut(path, ".")
	return key
}
