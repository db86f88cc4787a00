package milvus

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	adapter "github.com/likenessdb/likeness/adapters/milvus"
)

// maxRendered limits the length of an expression with its values, since a name can occur many times
// and have a long value.
const maxRendered = 4 << 20 // bytes

// render returns an expression with each name replaced by its value, for stores that take no
// template values. It returns false if the text might have another meaning: the template is
// malformed, a name has no value, or a value cannot be written as a literal.
func render(expression string, values map[string]*schemapb.TemplateValue) (text string, ok bool) {
	var out strings.Builder
	for expression != "" {
		n := pieceLength(expression)
		if n <= 0 {
			return "", false
		}
		piece := expression[:n]
		expression = expression[n:]
		if piece[0] == '{' {
			name, isName := templateName(piece)
			if !isName {
				return "", false
			}
			if piece, ok = valueText(values[name]); !ok {
				return "", false
			}
			piece = " " + piece + " " // the spaces keep words apart
		}
		if out.Len()+len(piece) > maxRendered {
			return "", false
		}
		out.WriteString(piece)
	}
	return out.String(), true
}

// pieceLength returns the length of the first piece of a template: a string literal, a name in
// braces, or text without either. It returns -1 if a literal or a brace is not closed, or if a
// brace closes nothing.
func pieceLength(template string) int {
	switch template[0] {
	case '"', '\'':
		return adapter.LiteralLength(template)
	case '{':
		return strings.IndexByte(template, '}') + 1
	}
	if n := strings.IndexAny(template, `"'{}`); n >= 0 {
		return cmp.Or(n, -1) // n is 0 at a closing brace
	}
	return len(template)
}

// templateName returns the name within braces.
func templateName(braced string) (string, bool) {
	name := strings.Trim(braced[1:len(braced)-1], blanks)
	word, rest := cutWord(name)
	return name, word != "" && rest == "" && !isDigit(word[0])
}

// valueText returns a value as a literal of Milvus's expressions.
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

// arrayText returns an array of scalars as a literal. Arrays of arrays and of JSON are not
// supported.
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

// bracketed puts a negative number in parentheses, because -2 ** 2 means -(2 ** 2).
func bracketed(number string, ok bool) (string, bool) {
	if strings.HasPrefix(number, "-") {
		return "(" + number + ")", ok
	}
	return number, ok
}

func boolText(v bool) (string, bool) { return strconv.FormatBool(v), true }

// intText fails for the least integer, which has no literal, because a sign is not part of a
// literal.
func intText(v int64) (string, bool) { return strconv.FormatInt(v, 10), v != math.MinInt64 }

// floatText returns a number with a point or an exponent, to distinguish it from an integer.
func floatText(v float64) (string, bool) {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text, !math.IsNaN(v) && !math.IsInf(v, 0)
}
