package milvus

import (
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/rerank"
)

// blanks are the white space of expressions.
const blanks = "\t\n\f\r "

// keysOf reads the ids that an expression selects by the primary key, in the forms that clients
// write to delete by ids: `key == 1` or `key in [1, 2]`, without arithmetic, without escapes, and
// with decimal numbers. It returns false for any other expression, and for more than maxTouchedIDs
// ids.
func keysOf(expression, key string) (ids []rerank.ID, ok bool) {
	word, rest := cutWord(strings.TrimLeft(expression, blanks))
	if word == "" || word != key {
		return nil, false
	}
	after := strings.TrimLeft(rest, blanks)
	if value, ok := strings.CutPrefix(after, "=="); ok {
		id, rest, ok := cutLiteral(strings.TrimLeft(value, blanks))
		if !ok || strings.Trim(rest, blanks) != "" {
			return nil, false
		}
		return []rerank.ID{id}, true
	}
	operator, list := cutWord(after)
	if operator != "in" && operator != "IN" || len(after) == len(rest) { // "keyin" is one word
		return nil, false
	}
	list, ok = strings.CutPrefix(strings.TrimLeft(list, blanks), "[")
	for ok && len(ids) < maxTouchedIDs {
		var id rerank.ID
		if id, list, ok = cutLiteral(strings.TrimLeft(list, blanks)); !ok {
			return nil, false
		}
		ids = append(ids, id)
		var more bool
		list, more = strings.CutPrefix(strings.TrimLeft(list, blanks), ",")
		if end, closed := strings.CutPrefix(strings.TrimLeft(list, blanks), "]"); closed && strings.Trim(end, blanks) == "" {
			return ids, true
		}
		ok = more
	}
	return nil, false
}

// cutWord cuts the word at the start of text: letters, digits and underscores.
func cutWord(text string) (word, rest string) {
	n := 0
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	return text[:n], text[n:]
}

func isWordByte(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// cutLiteral cuts the id at the start of text: a decimal integer, or a quoted text without escapes.
func cutLiteral(text string) (id rerank.ID, rest string, ok bool) {
	if text == "" {
		return id, "", false
	}
	if quote := text[0]; quote == '"' || quote == '\'' {
		end := strings.IndexByte(text[1:], quote)
		if end < 0 || strings.IndexByte(text[1:1+end], '\\') >= 0 {
			return id, "", false
		}
		return rerank.TextID(text[1 : 1+end]), text[end+2:], true
	}
	n := len(text) - len(strings.TrimPrefix(text, "-"))
	first := n
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	if n == first || text[first] == '0' && n > 1 { // no digits, or a leading zero
		return id, "", false
	}
	number, err := strconv.ParseInt(text[:n], 10, 64)
	return rerank.IntID(number), text[n:], err == nil
}
