package qdrant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
)

// payloadJSON encodes a payload as JSON with sorted keys. Integers stay integers;
// doubles take their shortest form, with a point or an exponent, so that they stay
// doubles.
func payloadJSON(payload map[string]*qdrant.Value) json.RawMessage {
	return appendObject(nil, payload)
}

func appendObject(b []byte, fields map[string]*qdrant.Value) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = appendValue(b, fields[name])
	}
	return append(b, '}')
}

func appendValue(b []byte, v *qdrant.Value) []byte {
	switch v := v.GetKind().(type) {
	case *qdrant.Value_BoolValue:
		return strconv.AppendBool(b, v.BoolValue)
	case *qdrant.Value_IntegerValue:
		return strconv.AppendInt(b, v.IntegerValue, 10)
	case *qdrant.Value_DoubleValue:
		return appendDouble(b, v.DoubleValue)
	case *qdrant.Value_StringValue:
		return appendString(b, v.StringValue)
	case *qdrant.Value_StructValue:
		return appendObject(b, v.StructValue.GetFields())
	case *qdrant.Value_ListValue:
		b = append(b, '[')
		for i, e := range v.ListValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, e)
		}
		return append(b, ']')
	}
	return append(b, "null"...)
}

// appendDouble appends a double, or null for a value that JSON lacks.
func appendDouble(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	from := len(b)
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	b = strconv.AppendFloat(b, f, format, -1, 64)
	if !bytes.ContainsAny(b[from:], ".e") {
		b = append(b, ".0"...)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // never fails for a string
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// payloadOf converts a JSON object to Qdrant's values. Qdrant has int64 and doubles;
// an integer beyond int64 is an error and is not rounded.
func payloadOf(raw json.RawMessage) (map[string]*qdrant.Value, error) {
	if len(raw) == 0 {
		return map[string]*qdrant.Value{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("%w: payload %.40q is not a JSON object: %w", adapters.ErrStore, raw, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: something follows the payload %.40q", adapters.ErrStore, raw)
	}
	v, err := value(object)
	return v.GetStructValue().GetFields(), err
}

func value(v any) (*qdrant.Value, error) {
	switch v := v.(type) {
	case bool:
		return qdrant.NewValueBool(v), nil
	case string:
		return qdrant.NewValueString(v), nil
	case json.Number:
		return number(v)
	case []any:
		list := &qdrant.ListValue{}
		for _, e := range v {
			one, err := value(e)
			if err != nil {
				return nil, err
			}
			list.Values = append(list.Values, one)
		}
		return qdrant.NewValueList(list), nil
	case map[string]any:
		fields := make(map[string]*qdrant.Value, len(v))
		for name, e := range v {
			one, err := value(e)
			if err != nil {
				return nil, err
			}
			fields[name] = one
		}
		return qdrant.NewValueFromFields(fields), nil
	}
	return qdrant.NewValueNull(), nil
}

func number(n json.Number) (*qdrant.Value, error) {
	if !strings.ContainsAny(string(n), ".eE") {
		i, err := n.Int64()
		if err != nil {
			return nil, fmt.Errorf("%w: payload number %s is beyond a signed 64-bit integer", adapters.ErrStore, n)
		}
		return qdrant.NewValueInt(i), nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("%w: payload number %s is beyond a double", adapters.ErrStore, n)
	}
	return qdrant.NewValueDouble(f), nil
}
