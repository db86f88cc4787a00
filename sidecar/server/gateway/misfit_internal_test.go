package gateway

import (
	"strings"
	"testing"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestMisfit: the first value of the wrong form is named, with the form that its field takes.
func TestMisfit(t *testing.T) {
	for body, want := range map[string]string{
		`{"filter": {"must": []}}`:                      "filter is an object; want a text, which may hold JSON in quotes",
		`{"query": "red shoes"}`:                        "query is a text; want an object with vector, user_id, context, text, item_ids, vectors",
		`{"query": [0.1]}`:                              "query is a list; want an object with vector, user_id, context, text, item_ids, vectors",
		`{"query": {"vector": 0.1}}`:                    "query.vector is a number; want a list",
		`{"query": {"vector": [0.1, {}]}}`:              "query.vector[1] is an object; want a number",
		`{"query": {"vectors": [{"values": [0]}, []]}}`: "query.vectors[1] is a list; want an object with values",
		`{"query": {"context": []}}`:                    "query.context is a list; want an object",
		`{"query": {"text": 3}}`:                        "query.text is a number; want a text",
		`{"explain": "yes"}`:                            "explain is a text; want true or false",
		`{"k": [10]}`:                                   "k is a list; want a number",
		`[1]`:                                           "the body is a list; want an object with ",
		// Nothing to say: no field of these has another form.
		`{"k": "10", "query": null, "other": {}}`: "",
		`{"query"`: "",
		`{"filter": {}, "route": "` + strings.Repeat("x", maxExplained) + `"}`: "",
	} {
		got := misfit((*likenessv1.SearchRequest)(nil).ProtoReflect().Descriptor(), []byte(body))
		if got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%.40s: %q, want %q", body, got, want)
		}
	}
}
