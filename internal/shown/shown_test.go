package shown_test

import (
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/shown"
)

func TestFind(t *testing.T) {
	const printed = "before\nWorth it.\nmrr@10 rises to 0.9529: +0.2339 (95 %); 35.6 % win.\n7 0.71 card\nafter\n"
	for part, want := range map[string]string{
		"Worth it.\nmrr@10 rises to 0.9529": "",
		"rises to 0.9510: +0.2350":          "", // another processor
		"35.4 % win.\n7 0.72 card":          "",
		"rises to 0.9529: +0.2239":          "0.2339 where the page has 0.2239",
		"rises to 0.9529: -0.2339":          "without",
		"mrr@9 rises":                       "without",
		"33.6 % win":                        "35.6 where the page has 33.6",
		"7 0.73 card":                       "0.71 where",
	} {
		rest, err := shown.Find(printed, part)
		if want == "" && (err != nil || !strings.HasSuffix(rest, "after\n") || strings.Contains(rest, "before")) {
			t.Errorf("%q: %q, %v", part, rest, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", part, err, want)
		}
	}
}
