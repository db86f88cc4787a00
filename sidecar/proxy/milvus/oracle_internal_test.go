package milvus

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/internal/race"
)

// expressionPieces are the pieces of random expressions and templates, valid and broken.
var expressionPieces = []string{
	"id", "id2", "_", "in", "IN", "In", "==", "=", "[", "]", ",", " ", "\t", "\n", "\r", "0", "1", "-1", "-0", "007", "9223372036854775808",
	`"a"`, `'b'`, `"`, `'`, `\`, `"\""`, "{", "}", "{a}", "{ b }", "{1}", "{}", "{c", "é", "\xff", "id in [1, 2]", "id == 'x'", "1,2", "[]",
}

func randomExpression(random *rand.Rand) string {
	var b strings.Builder
	for range 1 + random.IntN(12) {
		b.WriteString(expressionPieces[random.IntN(len(expressionPieces))])
	}
	return b.String()
}

// A regular expression of the whole grammar agrees on random expressions.
func TestKeysOfReadsTheGrammar(t *testing.T) {
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
	const literal = `(?:0|-?[1-9][0-9]*|"[^"\\]*"|'[^'\\]*')`
	grammar := regexp.MustCompile(`^\s*(\w+)\s*(?:==\s*(` + literal + `)|\b(?:in|IN)\s*\[\s*(` + literal + `(?:\s*,\s*` + literal + `)*)\s*,?\s*\])\s*$`)
	one := regexp.MustCompile(literal)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		expression := randomExpression(random)
		found := grammar.FindStringSubmatch(expression)
		want := found != nil && found[1] == "id" && !strings.Contains(expression, "9223372036854775808")
		ids, ok := keysOf(expression, "id")
		if ok != want || ok && len(ids) != len(one.FindAllString(found[2]+found[3], -1)) {
			t.Fatalf("%q: %v, %t; the grammar says %q", expression, ids, ok, found)
		}
	}
}

// A regular expression of the pieces of a template agrees on random templates.
func TestRenderReadsTheGrammar(t *testing.T) {
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
	piece := regexp.MustCompile(`^(?:"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'|\{\s*([A-Za-z_]\w*)\s*\}|[^"'{}]+)`)
	value := &schemapb.TemplateValue{Val: &schemapb.TemplateValue_Int64Val{Int64Val: 5}}
	values := map[string]*schemapb.TemplateValue{"a": value, "b": value}
	random := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		template := randomExpression(random)
		want, whole := "", true
		for rest := template; rest != "" && whole; {
			found := piece.FindStringSubmatch(rest)
			if whole = found != nil && (found[1] == "" || values[found[1]] != nil); !whole {
				break
			}
			if rest = rest[len(found[0]):]; found[1] != "" {
				found[0] = " 5 "
			}
			want += found[0]
		}
		if got, ok := render(template, values); ok != whole || ok && got != want {
			t.Fatalf("%q: %q, %t; the grammar says %q, %t", template, got, ok, want, whole)
		}
	}
}
