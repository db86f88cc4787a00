package milvus

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	adapter "github.com/likenessdb/likeness/adapters/milvus"
)

// maxRendered bounds an expression with its values: a name may stand in it often,
// and its value be long.
const maxRendered = 4 << 20 // bytes

// piece is what a template is cut into: a whole string literal, a name in braces,
// or text without either. A brace or a quote that is in none of them is an error.
var piece = regexp.MustCompile(`^(?:"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'|\{\s*([A-Za-z_]\w*)\s*\}|[^"'{}]+)`)

// render writes an expression with the values of its names in their places, for a
// store that is asked without a template. ok is false where that text might not
// mean the same: the template is malformed, a name has no value, or a value has no
// literal that the database reads back to it.
func render(expression string, values map[string]*schemapb.TemplateValue) (text string, ok bool) {
	var out strings.Builder
	for expression != "" {
		found := piece.FindStringSubmatch(expression)
		if found == nil {
			return "", false
		}
		part := found[0]
		expression = expression[len(part):]
		if found[1] != "" {
			if part, ok = valueText(values[found[1]]); !ok {
				return "", false
			}
			part = " " + part + " " // words beside it stay words of their own
		}
		if out.Len()+len(part) > maxRendered {
			return "", false
		}
		out.WriteString(part)
	}
	return out.String(), true
}

// valueText is a value as a literal of Milvus's expressions.
func valueText(v *schemapb.TemplateValue) (string, bool) {
	switch v := v.GetVal().(type) {
	case *schemapb.TemplateValue_BoolVal:
		return boolText(v.BoolVal)
	case *schemapb.TemplateValue_Int64Val:
		return bracketed(intText(v.Int64Val))
	case *schemapb.TemplateValue_FloatVal:
		return bracketed(floatText(v.FloatVal))
	case *schemapb.TemplateValue_StringVal:
		return adapter.Literal(v.StringVal)
	case *schemapb.TemplateValue_ArrayVal:
		return arrayText(v.ArrayVal)
	}
	return "", false
}

// arrayText is an array of one kind of scalars; arrays of arrays and of JSON have
// no text here.
func arrayText(a *schemapb.TemplateArrayValue) (string, bool) {
	switch d := a.GetData().(type) {
	case *schemapb.TemplateArrayValue_BoolData:
		return listText(d.BoolData.GetData(), boolText)
	case *schemapb.TemplateArrayValue_LongData:
		return listText(d.LongData.GetData(), intText)
	case *schemapb.TemplateArrayValue_DoubleData:
		return listText(d.DoubleData.GetData(), floatText)
	case *schemapb.TemplateArrayValue_StringData:
		return listText(d.StringData.GetData(), adapter.Literal)
	}
	return "", false
}

func listText[T any](values []T, text func(T) (string, bool)) (string, bool) {
	parts := make([]string, len(values))
	for i, v := range values {
		part, ok := text(v)
		if !ok {
			return "", false
		}
		parts[i] = part
	}
	return "[" + strings.Join(parts, ", ") + "]", true
}

// bracketed keeps a sign with its number: -2 ** 2 is -(2 ** 2).
func bracketed(number string, ok bool) (string, bool) {
	if strings.HasPrefix(number, "-") {
		return "(" + number + ")", ok
	}
	return number, ok
}

func boolText(v bool) (string, bool) { return strconv.FormatBool(v), true }

// intText: the least number has no literal, as the sign is no part of one.
func intText(v int64) (string, bool) { return strconv.FormatInt(v, 10), v != math.MinInt64 }

// floatText has a point or an exponent, which tells it from a whole number.
func floatText(v float64) (string, bool) {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text, !math.IsNaN(v) && !math.IsInf(v, 0)
}
