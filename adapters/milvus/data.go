package milvus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// fieldSet holds the columns of a reply by name.
type fieldSet map[string]*schemapb.FieldData

func fieldsOf(list []*schemapb.FieldData) fieldSet {
	set := make(fieldSet, len(list))
	for _, f := range list {
		name := f.GetFieldName()
		if f.GetIsDynamic() {
			name = dynamicField
		}
		set[name] = f
	}
	return set
}

// primaryKeys returns the primary keys of a query's reply.
func (set fieldSet) primaryKeys(pk string) []key {
	scalars := set[pk].GetScalars()
	if texts := scalars.GetStringData(); texts != nil {
		return textKeys(texts.GetData())
	}
	return intKeys(scalars.GetLongData().GetData())
}

// vectors copies n rows of a column, starting with row from, and truncates them to the
// field's dimension.
func (set fieldSet) vectors(col column, from, n int) (rerank.Matrix, error) {
	if n == 0 {
		return rerank.Matrix{Cols: col.dim}, nil
	}
	m := rerank.NewMatrix(n, col.dim)
	for i := range n {
		if err := copyVector(m.Row(i), set[col.name], from+i); err != nil {
			return rerank.Matrix{}, fmt.Errorf("field %q: %w", col.field, err)
		}
	}
	return m, nil
}

// copyVector copies the vector of row i of a column, truncated to the length of dst. A
// null vector, which Milvus permits in nullable fields, becomes NaNs, as
// adapters.HasVectors expects.
func copyVector(dst []float32, fd *schemapb.FieldData, i int) error {
	width, data := int(fd.GetVectors().GetDim()), fd.GetVectors().GetFloatVector().GetData()
	if valid := fd.GetValidData(); i < len(valid) && !valid[i] {
		for j := range dst {
			dst[j] = float32(math.NaN())
		}
		return nil
	}
	if width < len(dst) || width == 0 {
		return fmt.Errorf("%w: vectors of dimension %d, want %d", adapters.ErrStore, width, len(dst))
	}
	place, ok := positionOf(fd, i, len(data)/width)
	if !ok {
		return fmt.Errorf("%w: row %d came without its vector: %d numbers, dimension %d", adapters.ErrStore, i, len(data), width)
	}
	copy(dst, data[place*width:])
	return nil
}

// positionOf returns the position of row i in a column's data, or false if the row is
// null. Some servers send a value for null rows and others omit it.
func positionOf(fd *schemapb.FieldData, i, length int) (int, bool) {
	valid := fd.GetValidData()
	if i >= len(valid) {
		return i, i < length
	}
	if !valid[i] {
		return 0, false
	}
	if length < len(valid) {
		before := 0
		for _, v := range valid[:i] {
			if v {
				before++
			}
		}
		i = before
	}
	return i, i < length
}

// cellJSON returns row i of a column as JSON, with numbers exactly as the server has them.
func cellJSON(fd *schemapb.FieldData, i int) (json.RawMessage, error) {
	s := fd.GetScalars()
	n := scalarLen(s)
	i, ok := positionOf(fd, i, n)
	if !ok {
		return json.RawMessage("null"), nil
	}
	return scalarJSON(s, i)
}

func scalarLen(s *schemapb.ScalarField) int {
	switch d := s.GetData().(type) {
	case *schemapb.ScalarField_BoolData:
		return len(d.BoolData.GetData())
	case *schemapb.ScalarField_IntData:
		return len(d.IntData.GetData())
	case *schemapb.ScalarField_LongData:
		return len(d.LongData.GetData())
	case *schemapb.ScalarField_FloatData:
		return len(d.FloatData.GetData())
	case *schemapb.ScalarField_DoubleData:
		return len(d.DoubleData.GetData())
	case *schemapb.ScalarField_StringData:
		return len(d.StringData.GetData())
	case *schemapb.ScalarField_JsonData:
		return len(d.JsonData.GetData())
	case *schemapb.ScalarField_ArrayData:
		return len(d.ArrayData.GetData())
	default:
		return 0
	}
}

func scalarJSON(s *schemapb.ScalarField, i int) (json.RawMessage, error) {
	switch d := s.GetData().(type) {
	case *schemapb.ScalarField_BoolData:
		return strconv.AppendBool(nil, d.BoolData.GetData()[i]), nil
	case *schemapb.ScalarField_IntData:
		return strconv.AppendInt(nil, int64(d.IntData.GetData()[i]), 10), nil
	case *schemapb.ScalarField_LongData:
		return strconv.AppendInt(nil, d.LongData.GetData()[i], 10), nil
	case *schemapb.ScalarField_FloatData:
		return floatJSON(float64(d.FloatData.GetData()[i]), 32), nil
	case *schemapb.ScalarField_DoubleData:
		return floatJSON(d.DoubleData.GetData()[i], 64), nil
	case *schemapb.ScalarField_StringData:
		return stringJSON(d.StringData.GetData()[i])
	case *schemapb.ScalarField_JsonData:
		return jsonJSON(d.JsonData.GetData()[i])
	case *schemapb.ScalarField_ArrayData:
		return arrayJSON(d.ArrayData.GetData()[i])
	default:
		return nil, fmt.Errorf("%w: a payload field of type %T cannot be read", adapters.ErrUnsupported, d)
	}
}

// floatJSON formats the shortest number that parses to the same value. NaN, which JSON
// lacks, becomes null.
func floatJSON(x float64, bits int) json.RawMessage {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return json.RawMessage("null")
	}
	return strconv.AppendFloat(nil, x, 'g', -1, bits)
}

func stringJSON(s string) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("%w: %w", adapters.ErrStore, err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func jsonJSON(b []byte) (json.RawMessage, error) {
	if len(b) == 0 {
		return json.RawMessage("null"), nil
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("%w: the server sent a JSON field that is not JSON: %.40q", adapters.ErrStore, b)
	}
	return b, nil
}

func arrayJSON(s *schemapb.ScalarField) (json.RawMessage, error) {
	out := []byte{'['}
	for i := range scalarLen(s) {
		if i > 0 {
			out = append(out, ',')
		}
		v, err := scalarJSON(s, i)
		if err != nil {
			return nil, err
		}
		out = append(out, v...)
	}
	return append(out, ']'), nil
}

// rowPayload assembles a row's payload: the named scalar fields, then the wanted keys of
// the dynamic field, or all of them.
func (set fieldSet) rowPayload(scalars, wanted []string, i int) (json.RawMessage, error) {
	object := []byte{'{'}
	add := func(name string, v json.RawMessage) error {
		k, err := stringJSON(name)
		if err != nil {
			return err
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(append(object, k...), ':'), v...)
		return nil
	}
	for _, name := range scalars {
		v, err := cellJSON(set[name], i)
		if err == nil {
			err = add(name, v)
		}
		if err != nil {
			return nil, fmt.Errorf("payload field %q: %w", name, err)
		}
	}
	dynamic, err := set.dynamicPayload(i)
	if err != nil {
		return nil, err
	}
	if wanted == nil {
		return joinObjects(object, dynamic), nil
	}
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(dynamic, &keys); err != nil {
		return nil, fmt.Errorf("%w: the dynamic field: %w", adapters.ErrStore, err)
	}
	for _, name := range wanted {
		if v, ok := keys[name]; ok {
			if err := add(name, v); err != nil {
				return nil, err
			}
		}
	}
	return append(object, '}'), nil
}

// joinObjects appends the members of a JSON object, unchanged, to an object without
// its closing brace.
func joinObjects(open []byte, object json.RawMessage) json.RawMessage {
	inner := bytes.TrimSpace(object)
	inner = bytes.TrimSpace(inner[1 : len(inner)-1])
	if len(inner) > 0 && len(open) > 1 {
		open = append(open, ',')
	}
	return append(append(open, inner...), '}')
}

// dynamicPayload returns row i of the dynamic field, or {} without such a field.
func (set fieldSet) dynamicPayload(i int) (json.RawMessage, error) {
	fd := set[dynamicField]
	if fd == nil {
		return json.RawMessage("{}"), nil
	}
	v, err := cellJSON(fd, i)
	if err != nil {
		return nil, fmt.Errorf("dynamic field: %w", err)
	}
	if trimmed := bytes.TrimSpace(v); len(trimmed) < 2 || trimmed[0] != '{' {
		return json.RawMessage("{}"), nil
	}
	return v, nil
}

// ownerOf returns the item of row i, from a scalar field or a key of the dynamic field.
func (c *collection) ownerOf(set fieldSet, field string, i int) (rerank.ID, error) {
	var id rerank.ID
	if c.layout != nil && field == c.layout.Owner {
		data := set[companionOwner].GetScalars().GetStringData().GetData()
		if i >= len(data) {
			return id, fmt.Errorf("%w: row %d has no owner", adapters.ErrStore, i)
		}
		return ownerID(data[i])
	}
	var v json.RawMessage
	var err error
	if fd := set[field]; fd != nil {
		v, err = cellJSON(fd, i)
	} else {
		v, err = set.dynamicKey(field, i)
	}
	if err == nil {
		err = id.UnmarshalJSON(v)
	}
	if err != nil {
		return id, fmt.Errorf("%w: owner field %q: %w", adapters.ErrField, field, err)
	}
	return id, nil
}

func (set fieldSet) dynamicKey(name string, i int) (json.RawMessage, error) {
	object, err := set.dynamicPayload(i)
	if err != nil {
		return nil, err
	}
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &keys); err != nil {
		return nil, err
	}
	if v, ok := keys[name]; ok {
		return v, nil
	}
	return json.RawMessage("null"), nil
}

// ownerColumn returns the output field that holds the rows' owners.
func (c *collection) ownerColumn(field string) (string, error) {
	if c.layout != nil && c.layout.Owner != "" && field == c.layout.Owner {
		return companionOwner, nil
	}
	s, err := c.scalar(field)
	return s.name, err
}
