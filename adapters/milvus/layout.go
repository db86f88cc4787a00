package milvus

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/adapters"
)

// Fields of a companion collection.
const (
	companionID    = "likeness_id"      // primary key
	companionField = "likeness_field"   // number of the component that a row holds
	companionOwner = "likeness_owner"   // item of a row
	companionMark  = "likeness-layout " // prefix of the layout in the collection's description
)

// companionProperty is the property of a companion collection that repeats its description:
// milvus-lite from version 3 on drops descriptions.
const companionProperty = "likeness.layout"

// layout says how Create laid out a companion collection. The collection's description and
// the property companionProperty hold it, so that a reader needs nothing else.
type layout struct {
	Version int `json:"version"`
	// Rows means that the server allows fewer vector fields than the schema has. Every
	// component then has a row of its own in one column, padded with zeros, which
	// change neither inner products nor distances, and companionField holds the
	// component's number. Otherwise every field has its own column.
	Rows    bool          `json:"rows,omitempty"`
	TextIDs bool          `json:"text_ids,omitempty"`
	Owner   string        `json:"owner,omitempty"`
	Fields  []layoutField `json:"fields"`
}

type layoutField struct {
	Name   string          `json:"name"`
	Column string          `json:"column"`
	Dim    int             `json:"dim"`
	Metric adapters.Metric `json:"metric"`
}

const layoutVersion = 1

// columnName matches the field names that Milvus accepts.
var columnName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,200}$`)

// newLayout lays out a schema for a server that allows maxFields vector fields.
func newLayout(s adapters.Schema, maxFields int) layout {
	l := layout{Version: layoutVersion, Rows: len(s.Fields) > maxFields, TextIDs: s.TextIDs, Owner: s.Owner}
	for i, f := range s.Fields {
		name := f.Name
		switch {
		case l.Rows:
			name = "vector"
		case !columnName.MatchString(name) || strings.HasPrefix(name, "likeness_"):
			name = "vector_" + strconv.Itoa(i)
		}
		metric := f.Metric
		if metric == "" {
			metric = adapters.InnerProduct
		}
		l.Fields = append(l.Fields, layoutField{Name: f.Name, Column: name, Dim: f.Dim, Metric: metric})
	}
	return l
}

func (l layout) describe() (string, error) {
	b, err := json.Marshal(l)
	return companionMark + string(b), err
}

// readLayout parses a collection's description. It returns nil if the collection is
// not a companion.
func readLayout(description string) (*layout, error) {
	text, ok := strings.CutPrefix(description, companionMark)
	if !ok {
		return nil, nil //nolint:nilnil // no layout is not an error
	}
	var l layout
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, fmt.Errorf("%w: the layout in the collection's description: %w", adapters.ErrStore, err)
	}
	if l.Version != layoutVersion {
		return nil, fmt.Errorf("%w: the collection has layout version %d and this program knows %d; write it again", adapters.ErrStore, l.Version, layoutVersion)
	}
	return &l, nil
}

func (l layout) columns(vectors []vectorColumn) []column {
	byName := map[string]vectorColumn{}
	for _, v := range vectors {
		byName[v.name] = v
	}
	all := make([]column, len(l.Fields))
	for i, f := range l.Fields {
		all[i] = column{vectorColumn: byName[f.Column], field: f.Name, dim: f.Dim}
		if l.Rows {
			all[i].comp, all[i].filter = i, fmt.Sprintf("%s == %d", companionField, i)
		}
	}
	return all
}

// width returns the dimension of a field's column. In the rows layout it is the
// dimension of the longest field.
func (l layout) width(f layoutField) int {
	if !l.Rows {
		return f.Dim
	}
	width := 0
	for _, f := range l.Fields {
		width = max(width, f.Dim)
	}
	return width
}

func (l layout) codec() idCodec {
	switch {
	case l.Rows:
		return componentIDs{text: l.TextIDs}
	case l.TextIDs:
		return escapedIDs{}
	default:
		return plainIDs{pk: companionID}
	}
}
