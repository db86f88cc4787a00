package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestFitFromLogs runs the example as a reader would, and compares its verdict with the pages that
// show it.
func TestFitFromLogs(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "likeness")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/likeness").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for kind, wanted := range map[string][]string{
		"bilinear": {"$ likeness fit bilinear"},
		"maxsim":   {"$ likeness fit maxsim", "$ likeness index", "table topics.table: 77 items in 847 rows"},
	} {
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
			checkVerdict(t, "../../docs/how-to/fit-from-logs.md", out.String())
		}
	}
}

// checkVerdict compares the lines of the verdict that a page shows with the last verdict printed.
func checkVerdict(t *testing.T, page, out string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(text), "```\nWorth it")
	shown, _, _ = strings.Cut(shown, "\n```")
	printed := out[max(0, strings.LastIndex(out, "Worth it")):]
	if !found || !alike("Worth it"+shown, printed) {
		t.Errorf("%s shows\nWorth it%s\nand the example printed\n%s", page, shown, printed)
	}
}

var number = regexp.MustCompile(`\d+\.\d+`)

// alike reports whether the lines that are shown begin what was printed. Kernels of other
// processors move the numbers a little.
func alike(shown, printed string) bool {
	lines := strings.SplitAfterN(printed, "\n", strings.Count(shown, "\n")+2)
	printed = strings.TrimSpace(strings.Join(lines[:len(lines)-1], ""))
	numbers, want := number.FindAllString(printed, -1), number.FindAllString(shown, -1)
	if number.ReplaceAllString(printed, "") != number.ReplaceAllString(shown, "") || len(numbers) != len(want) {
		return false
	}
	for i := range want {
		have, err := strconv.ParseFloat(numbers[i], 64)
		shown, err2 := strconv.ParseFloat(want[i], 64)
		tolerance := 0.002 // of a metric; a percentage has one digit after the point
		if shown > 1 {
			tolerance = 0.3
		}
		if err != nil || err2 != nil || math.Abs(have-shown) > tolerance {
			return false
		}
	}
	return true
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-binary", "/does/not/exist"}, {"-unknown"}, {"-kind", "mol"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
