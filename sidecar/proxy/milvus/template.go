package milvus

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	adapter "github.com/likenessdb/likeness/adapters/milvus"
)

// maxRendered bounds an expression with its values: a name may stand in it often,
// and its value be long.
const maxRendered = 4 << 20 // bytes

// render writes an expression with the values of its names in their places, for a store
// that is asked without a template. It reports false where that text might not mean the
// same: the template is malformed, a name has no value, or a value has no literal that the
// database reads back to it.
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
			piece = " " + piece + " " // words beside it stay words of their own
		}
		if out.Len()+len(piece) > maxRendered {
			return "", false
		}
		out.WriteString(piece)
	}
	return out.String(), true
}

// pieceLength returns the length of the piece that a template begins with: a string
// literal, a part in braces, or text without either. It returns -1 where a literal or a
// brace is not closed, or a brace closes nothing.
func pieceLength(template string) int {
	switch template[0] {
	case '"', '\'':
		return literalLength(template)
	case '{':
		return strings.IndexByte(template, '}') + 1
	}
	if n := strings.IndexAny(template, `"'{}`); n >= 0 {
		return cmp.Or(n, -1) // at once, it is a closing brace
	}
	return len(template)
}

// literalLength returns the length of the string literal that text begins with, or -1 where
// its line ends before it does.
func literalLength(text string) int {
	for n := 1; n < len(text); n++ {
		switch text[n] {
		case text[0]:
			return n + 1
		case '\\':
			n++
			if n < len(text) && text[n] == '\n' {
				return -1
			}
		case '\r', '\n':
			return -1
		}
	}
	return -1
}

// templateName returns the name in a part in braces.
func templateName(braced string) (string, bool) {
	name := strings.Trim(braced[1:len(braced)-1], blanks)
	word, rest := cutWord(name)
	return name, word != "" && rest == "" && !isDigit(word[0])
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
