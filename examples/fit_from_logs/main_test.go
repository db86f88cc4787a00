package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The example runs as a reader would run it, with a small model.
func TestFitFromLogs(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "likeness")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/likeness").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-binary", binary, "-data", "../data/banking77", "-rank", "32"}, &out, os.Stderr); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"log.jsonl: 10003 choices", "$ likeness fit bilinear", "wrote topics.safetensors", "$ likeness eval", "3080 queries", "Worth it: take topics",
		"route before", "route after", "308 answers proved exact", "All of this took",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-binary", "/does/not/exist"}, {"-unknown"}, {"-rank", "x"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
