package main

import (
	"os"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/shown"
	"github.com/likenessdb/likeness/internal/testbinary"
)

// TestFitFromLogs runs the example as a reader would, and compares its verdict with the page that
// shows it.
func TestFitFromLogs(t *testing.T) {
	binary := testbinary.Likeness(t)
	for kind, wanted := range map[string][]string{
		"bilinear": {"$ likeness fit bilinear"},
		"maxsim":   {"$ likeness fit maxsim", "$ likeness index", "table topics.table: 77 items in 847 rows"},
	} {
		if kind == "maxsim" && os.Getenv("LIKENESS_SOAK") == "" {
			continue // as long again: the tests of cmd/likeness fit and index one
		}
		var out strings.Builder
		if err := run(t.Context(), []string{"-binary", binary, "-data", "../data/banking77", "-kind", kind}, &out, os.Stderr); err != nil {
			t.Fatalf("%s: %v\n%s", kind, err, out.String())
		}
		for _, want := range append(wanted,
			"log.jsonl: 10003 choices", "wrote topics.safetensors", "$ likeness eval", "3080 queries", "Worth it: take topics",
			"route before", "route after", "308 answers proved exact", "All of this took") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", kind, want, out.String())
			}
		}
		if kind == "bilinear" {
			checkVerdict(t, "../../docs/how-to/evaluate.md", out.String())
		}
	}
}

// checkVerdict compares the verdict that a page shows with the last one printed.
func checkVerdict(t *testing.T, page, out string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, verdict, _ := strings.Cut(string(text), "```\nWorth it")
	verdict, _, _ = strings.Cut(verdict, "\n```")
	if _, err := shown.Find(out[max(0, strings.LastIndex(out, "Worth it")):], "Worth it"+verdict); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-binary", "/does/not/exist"}, {"-unknown"}, {"-kind", "mol"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
