package milvus

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/likenessdb/likeness/adapters"
)

// CheckFilter returns adapters.ErrFilter for an expression that can have another meaning in parentheses, beside
// conditions of the adapter, than alone: its brackets do not match, a text is not closed, or it has a comment.
// Whether Milvus accepts the expression is left to Milvus.
func CheckFilter(filter string) error {
	if !utf8.ValidString(filter) {
		return fmt.Errorf("%w: %q is not valid UTF-8", adapters.ErrFilter, filter)
	}
	var open []byte // the closing brackets that are due
	for rest := filter; rest != ""; {
		n := 1
		switch c := rest[0]; c {
		case '"', '\'':
			if n = LiteralLength(rest); n < 0 {
				return fmt.Errorf("%w: %.200q has a text that is not closed; close it with %c", adapters.ErrFilter, filter, c)
			}
		case '(':
			open = append(open, ')')
		case '[':
			open = append(open, ']')
		case '{':
			open = append(open, '}')
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != c {
				return fmt.Errorf("%w: %.200q closes %q without opening it", adapters.ErrFilter, filter, c)
			}
			open = open[:len(open)-1]
		case '#', '/':
			if c == '#' || strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") {
				return fmt.Errorf("%w: %.200q has a comment; remove it", adapters.ErrFilter, filter)
			}
		}
		rest = rest[n:]
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: %.200q lacks %q at its end", adapters.ErrFilter, filter, open[len(open)-1])
	}
	return nil
}

// LiteralLength returns the length of the string literal at the start of text, or -1 if it is not
// closed on its line.
func LiteralLength(text string) int {
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
