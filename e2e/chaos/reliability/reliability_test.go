package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// TestEveryTestExists: each test in the table exists in its package.
func TestEveryTestExists(t *testing.T) {
	rows, err := parseRows(table)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string]bool{}
	for _, r := range rows {
		for name := range r.Elsewhere {
			if !slices.Contains(r.Tests, name) {
				t.Errorf("row %d: %s runs elsewhere and is none of its tests", r.Number, name)
			}
		}
		for _, name := range r.Tests {
			at := strings.LastIndex(name, ".")
			if at < 0 {
				t.Errorf("row %d: %q is no FOLDER.TEST", r.Number, name)
				continue
			}
			folder, test := name[:at], name[at+1:]
			if known[folder] == nil {
				known[folder] = testsIn(t, folder)
			}
			if !known[folder][test] {
				t.Errorf("row %d: package %s has no %s", r.Number, folder, test)
			}
		}
	}
}

// testsIn returns the tests and fuzz targets of a package.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// TestPageIsUpToDate: the committed page equals the page made from the table and the figures.
func TestPageIsUpToDate(t *testing.T) {
	var made bytes.Buffer
	benchmarks := filepath.Join(root, "docs/benchmarks")
	err := run([]string{
		"-figures", filepath.Join(benchmarks, "reliability.json"), "-mutants", filepath.Join(benchmarks, "mutants.json"), "-samples", filepath.Join(benchmarks, "mutants-sample.json"),
	}, nil, &made)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(root, "docs/reference/reliability.md"))
	if err != nil || !bytes.Equal(kept, made.Bytes()) {
		t.Errorf("docs/reference/reliability.md is out of date (%v): run `make generate`", err)
	}
}

const output = `=== RUN   TestChaos
    chaos_test.go:50: seed 7
    chaos_test.go:90: reliability row=3 figure=10412 faults, 0 unflagged
--- PASS: TestChaos (60.00s)
=== RUN   TestWrong
=== RUN   TestWrong/part
    chaos_test.go:90: reliability row=4 figure=a lie
--- FAIL: TestWrong (1.00s)
    --- FAIL: TestWrong/part (1.00s)
PASS
ok  	github.com/likenessdb/likeness/e2e/chaos	61.000s
`

func TestCollect(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	for _, text := range []string{strings.ReplaceAll(output, "10412", "9"), output} {
		if err := run([]string{"-collect", "-figures", file}, strings.NewReader(text), nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readFigures(file)
	if err != nil || len(got) != 1 || got[0].Row != 3 || got[0].Test != "e2e/chaos.TestChaos" || got[0].Figure != "10412 faults, 0 unflagged" || got[0].Date == "" {
		t.Errorf("%+v, %v", got, err)
	}
	var text bytes.Buffer
	if err := run([]string{"-figures", file}, nil, &text); err != nil || !strings.Contains(text.String(), "10412 faults, 0 unflagged") {
		t.Errorf("%v in\n%s", err, text.String())
	}
	unknown := strings.ReplaceAll(output, "row=3", "row=999")
	if err := run([]string{"-collect", "-figures", file}, strings.NewReader(unknown), nil); err == nil {
		t.Error("a row that does not exist was taken")
	}
}

func TestRowsAreChecked(t *testing.T) {
	for _, text := range []string{"x", "[{row: 2, property: p, bar: b, tests: [a.T]}]", "[{row: 1, property: p, bar: b}]", "[{row: 1, property: p, bar: b, tests: [a.T], test: b}]",
		"[{row: 1, property: p, bar: b, tests: [a.T], most: {pattern: x, value: 1}}]"} {
		if _, err := parseRows([]byte(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// TestMissed: a figure above the bar of its row is called missed.
func TestMissed(t *testing.T) {
	r := row{Number: 3, Property: "Leaks", Bar: "grows by less than 1 MiB", Most: &most{Pattern: `\+([\d.]+) MiB`, Value: 1}}
	for text, want := range map[string]string{"+11.0 MiB; heap +0.5 MiB; +44.6 MiB": "*Missed:* +11.0 MiB; +44.6 MiB; the bar is 1.", "+1.0 MiB": ""} {
		got := page([]row{r}, figures{{Row: 3, Figure: text}, {Row: 4, Figure: "+9 MiB"}})
		if want != "" && !strings.Contains(got, want) || want == "" && strings.Contains(got, "Missed") {
			t.Errorf("%s: want %q in\n%s", text, want, got)
		}
	}
}

// TestAPromiseNeedsATestThatRan: a promise is shown by a test that passed in some run, and not by
// one that failed, was skipped or is missing.
func TestAPromiseNeedsATestThatRan(t *testing.T) {
	rows := []row{{Number: 7, Property: "Memory", Tests: []string{"a/b.TestOne", "a/b.TestTwo"}, Elsewhere: map[string]string{"a/b.TestTwo": "make soak"}}}
	event := func(action string) string {
		return `{"Action":"` + action + `","Package":"github.com/likenessdb/likeness/a/b","Test":"TestOne"}` + "\n"
	}
	for output, want := range map[string]bool{
		event("pass"): true, event("skip") + event("pass"): true, event("fail") + event("pass"): false,
		event("skip"): false, "": false, "text\n" + event("pass"): true,
	} {
		err := checkShown(rows, strings.NewReader(output))
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "row 7, Memory: a/b.TestOne") {
			t.Errorf("%s: %v", output, err)
		}
	}
}
