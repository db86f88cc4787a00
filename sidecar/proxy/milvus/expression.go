package milvus

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/rerank"
)

// An expression by primary key, as clients write it for a delete by ids: no
// arithmetic, no escapes, no numbers in other forms than plain digits.
var (
	byKeys = regexp.MustCompile(`^\s*(\w+)\s*(?:==\s*(` + literal + `)|\b(?:in|IN)\s*\[\s*(` + literal + `(?:\s*,\s*` + literal + `)*)\s*,?\s*\])\s*$`)
	one    = regexp.MustCompile(literal)
)

const literal = `(?:0|-?[1-9][0-9]*|"[^"\\]*"|'[^'\\]*')`

// keysOf reads the ids that an expression picks by the primary key; ok is false
// for every other expression.
func keysOf(expression, key string) (ids []rerank.ID, ok bool) {
	found := byKeys.FindStringSubmatch(expression)
	if found == nil || found[1] != key {
		return nil, false
	}
	for _, text := range one.FindAllString(found[2]+found[3], -1) {
		if strings.ContainsAny(text[:1], `"'`) {
			ids = append(ids, rerank.TextID(text[1:len(text)-1]))
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, false
		}
		ids = append(ids, rerank.IntID(n))
	}
	return ids, true
}
