package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const folder = "../../docs/benchmarks"

// TestPagesMatchFigures compares the committed pages with pages rendered from their figures.
func TestPagesMatchFigures(t *testing.T) {
	out := t.TempDir()
	if err := run([]string{"-figures", folder, "-out", out}, t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"speed.md", "quality.md", "endurance.md", "sets.md"} {
		want, err := os.ReadFile(filepath.Join(out, page))
		if err != nil {
			t.Fatal(err)
		}
		if have, err := os.ReadFile(filepath.Join(folder, page)); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is out of date (%v): run `make generate`", page, err)
		}
	}
}

func TestRenderNamesMissingFigures(t *testing.T) {
	if _, err := render(fstest.MapFS{"search.json": {Data: []byte(`{}`)}}); err == nil || !strings.Contains(err.Error(), "proxy_overhead") {
		t.Errorf("%v, want the name of the missing field", err)
	}
	if _, err := render(fstest.MapFS{"search.json": {Data: []byte(`{`)}}); err == nil || !strings.Contains(err.Error(), "search.json") {
		t.Errorf("%v, want the name of the file", err)
	}
}

func TestRecord(t *testing.T) {
	r := map[string]any{
		"command": "make it", "machine": "two cores", "load": "idle", "date": "2026-11", "columns": []any{"a", "b"}, "rows": []any{[]any{"x", 1.5}},
	}
	want := "`make it` (two cores; idle; 2026-11)\n\n| a | b |\n|---|---|\n| x | 1.5 |"
	if got, err := record(r); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	r["rows"] = []any{[]any{"x"}}
	if _, err := record(r); err == nil {
		t.Error("a row without its second cell was accepted")
	}
}

func TestMissed(t *testing.T) {
	got := missed([]any{"Qdrant, REST, passed: p50 2 > 1", "Qdrant, REST, passed: p99 3 > 1", "Milvus, scan: p50 4 > 1", "Qdrant, REST, scan: p50 4 > 1"})
	want := "Qdrant, REST: passed, scan; Milvus: scan"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	named := func(names ...string) (list []any) {
		for _, n := range names {
			list = append(list, map[string]any{"name": n})
		}
		return list
	}
	for want, list := range map[string][]any{"none": nil, "A": named("A"), "A and B": named("A", "B"), "A, B and C": named("A", "B", "C")} {
		if got := names(list); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestInterval(t *testing.T) {
	if got := interval(map[string]any{"mean": -0.0123, "low": -0.02, "high": 0.01}); got != "-.0123 (-.0200 to +.0100)" {
		t.Error(got)
	}
}
