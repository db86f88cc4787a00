package derive_test

import (
	"encoding/json"
	"testing"

	"github.com/likenessdb/likeness/sidecar/derive"
)

func TestMark(t *testing.T) {
	for _, payload := range []string{``, `null`, `{}`, ` { } `, `{"a":1,"text":"x"}`, `{"text":"likeness_embedded"}`, `{"likeness_embedded":"old","a":1}`, `{"n":9007199254740993}`} {
		marked := derive.Mark(json.RawMessage(payload), "0123")
		if !json.Valid(marked) || derive.MarkOf(marked) != "0123" {
			t.Errorf("%s: marked as %s", payload, marked)
		}
		if rest := derive.WithoutMark(marked); !derive.SamePayload(rest, derive.WithoutMark(json.RawMessage(payload))) || derive.MarkOf(rest) != "" {
			t.Errorf("%s: without the mark %s", payload, rest)
		}
	}
	for payload, want := range map[string]string{`{"text":"a b"}`: "a b", `{"text":1}`: "", `{}`: "", ``: "", `[1]`: ""} {
		if got := derive.TextOf(json.RawMessage(payload), "text"); got != want {
			t.Errorf("text of %s: %q, want %q", payload, got, want)
		}
	}
}

// A source digest tells vectors and texts apart, and is the same in every process.
func TestSourceDigest(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range []string{"", "a", "b"} {
		for _, old := range [][]float32{{1, 2}, {2, 1}, {1, 2, 0}} {
			seen[derive.SourceDigest(old, text)] = true
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d digests of 9 sources", len(seen))
	}
	if got := derive.SourceDigest([]float32{1}, "a"); got != "cecc0de01aad74f7ba97e18d47de8d60" {
		t.Errorf("digest %q", got)
	}
}
