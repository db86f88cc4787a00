package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got, err := parse("bounds.txt", strings.Join([]string{
		"# a comment", "",
		"file: a.go", "old:  if a: b {", "old: \t\treturn", "new: if c {", "harm: wrong", "test: ./a -run TestA", "",
		"file: b.go", "old: x", "harm: lost", "test: ./b", "equivalent: x is y",
	}, "\n"))
	if err != nil || len(got) != 2 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if m := got[0]; m.old != "if a: b {\n\t\treturn" || m.new != "if c {" || len(m.test) != 3 || m.area != "bounds" || m.at != "bounds.txt:3" {
		t.Errorf("the first record is %+v", m)
	}
	if m := got[1]; m.new != "" || m.equivalent != "x is y" {
		t.Errorf("the second record is %+v", m)
	}
	for _, bad := range []string{"file: a.go\nold: x\ntest: ./a", "file: a.go\nbreaks: x", "a line"} {
		if _, err := parse("bad.txt", bad); err == nil {
			t.Errorf("%q is read as a record", bad)
		}
	}
}

// module writes a module with one function, its test, and a list of defects, and returns its
// folder.
func module(t *testing.T, list string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":                 "module a\n\ngo 1.26\n",
		"a.go":                   "package a\n\nfunc Two() int { return 1 + 1 }\n\nvar unused = 3\n",
		"a_test.go":              "package a\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Fail()\n\t}\n}\n",
		"tools/mutants/list.txt": list,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestRun tests a small module with one defect that its test notices, one that it
// does not, one that does not compile, and one whose old text is gone.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct{ old, new, report, err string }{
		"noticed":  {"1 + 1", "1 + 2", " s) by TestTwo\n", ""},
		"survived": {"unused = 3", "unused = 4", "SURVIVED ", "1 of 1 defects"},
		"broken":   {"unused = 3", "unused =", "BROKEN ", "1 of 1 defects"},
		"stale":    {"2 + 2", "5", "STALE ", "do not apply"},
		"twice":    {"1", "2", "STALE ", "do not apply"},
	} {
		t.Run(name, func(t *testing.T) {
			root := module(t, fmt.Sprintf("file: a.go\nold: %s\nnew: %s\nharm: harm of %s\ntest: .\n", c.old, c.new, name))
			var out bytes.Buffer
			err := run(context.Background(), []string{"-root", root}, &out)
			if !strings.Contains(out.String(), c.report) || c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q; the report, want %q:\n%s", err, c.err, c.report, out.String())
			}
		})
	}
}

// TestSkips: the reason of a skip is what the test printed, wherever go test prints that it was skipped.
func TestSkips(t *testing.T) {
	output := "=== RUN   TestA\n    a_test.go:5: no server\n--- SKIP: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/sub\n    b_test.go:7: max_items is 0\n" +
		"=== RUN   TestB/other\n    b_test.go:9: a log line\n--- PASS: TestB (0.00s)\n    --- SKIP: TestB/sub (0.00s)\n    --- PASS: TestB/other (0.00s)\nPASS\nok  \ta\t0.1s\n"
	if got := skips(output); len(got) != 2 || !strings.HasSuffix(got["TestA"], ": no server\n") || !strings.HasSuffix(got["TestB/sub"], ": max_items is 0\n") {
		t.Errorf("%q", got)
	}
	for reason, want := range map[string]string{"": "TestA", "no server": "TestB/sub", "no server|max_(items|bytes) is": ""} {
		accepted := []*regexp.Regexp{regexp.MustCompile("^nothing$")}
		if reason != "" {
			accepted = append(accepted, regexp.MustCompile(reason))
		}
		r := runner{accepted: accepted}
		if got := r.skipped(output); reason != "" && got != want || reason == "" && got == "" {
			t.Errorf("with the accepted reason %q: %q counts as skipped, want %q", reason, got, want)
		}
	}
	if got := (&runner{}).skipped("--- SKIP: FuzzA/seed#0 (0.00s)\n"); got != "" {
		t.Errorf("the input of a fuzz target that was skipped counts: %q", got)
	}
}

// TestSkipped: a defect that no test notices while one is skipped has not survived, unless tools/skips.txt has the reason. The
// first run of a list is noted once it has only clear verdicts, by its own tests alone.
func TestSkipped(t *testing.T) {
	root := module(t, "file: a.go\nold: unused = 3\nnew: unused = 4\nharm: wrong\ntest: .\n\nfile: a.go\nold: 1 + 1\nnew: 1 + 2\nharm: wrong\ntest: .\n")
	first, accepted := filepath.Join(root, "first.json"), filepath.Join(root, "tools", "skips.txt")
	for path, text := range map[string]string{
		"b_test.go":      "package a\n\nimport \"testing\"\n\nfunc TestSkip(t *testing.T) { t.Skip(\"no server\") }\n",
		"user/a_test.go": "package user\n\nimport \"testing\"\n\nimport \"a\"\n\nfunc TestUnused(t *testing.T) {\n\tif a.Unused() != 3 {\n\t\tt.Fail()\n\t}\n}\n",
		"c.go":           "package a\n\n// Unused returns 3.\nfunc Unused() int { return unused }\n",
	} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-root", root, "-first", first}, &out)
	if text, _ := os.ReadFile(first); err == nil || !strings.Contains(out.String(), "UNCLEAR ") || !strings.Contains(out.String(), "TestSkip was skipped") || strings.Contains(string(text), "list") {
		t.Errorf("error %v, noted %q, the report:\n%s", err, text, out.String())
	}
	if err := os.WriteFile(accepted, []byte("# a comment\n\nno server\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		out.Reset()
		err := run(t.Context(), []string{"-root", root, "-first", first, "-also", "./user"}, &out)
		text, _ := os.ReadFile(first)
		if err != nil || !strings.Contains(out.String(), "elsewhere") || strings.Count(string(text), `"list":"list"`) != 1 || !strings.Contains(string(text), `"packages":".","seed":0,`) || !strings.Contains(string(text), `"drawn":2,"noticed":1,`) {
			t.Errorf("error %v, noted %q, the report:\n%s", err, text, out.String())
		}
	}
}

// TestHanging: tests that hang because of a defect have noticed it when their time is over, whatever time their record gives
// them.
func TestHanging(t *testing.T) {
	m := mutant{file: "a.go", old: "return 1 + 1", new: "select {}", test: []string{".", "-timeout=1h"}}
	r := runner{root: module(t, ""), limits: map[string]time.Duration{". -timeout=1h": time.Second}}
	if got := r.testOne(t.Context(), &m, t.TempDir()); got.verdict != noticed || !strings.HasSuffix(got.detail, " by the time that it took") {
		t.Errorf("%+v", got)
	}
}

// cancelling is a Writer that cancels a context with the first line of a report.
type cancelling struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (c *cancelling) Write(b []byte) (int, error) {
	defer c.cancel()
	return c.Buffer.Write(b)
}

// TestInterrupted: the defects that an interrupt leaves over are not reported, nor recorded.
func TestInterrupted(t *testing.T) {
	const record = "file: a.go\nold: 1 + 1\nnew: 1 + 2\nharm: wrong\ntest: .\n\n"
	root := module(t, strings.Repeat(record, 3))
	ctx, cancel := context.WithCancel(t.Context())
	out, results := cancelling{cancel: cancel}, filepath.Join(root, "results.json")
	err := run(ctx, []string{"-root", root, "-results", results}, &out)
	if _, missing := os.Stat(results); !errors.Is(err, context.Canceled) || strings.Count(out.String(), "\n") != 1 || !errors.Is(missing, os.ErrNotExist) {
		t.Errorf("error %v, results %v, the report:\n%s", err, missing, out.String())
	}
}

// TestResults records two lists one after the other, the first of them twice.
func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mutants.json")
	first := []mutant{{area: "b", file: "a.go", harm: "lost"}, {area: "b", harm: "slow", equivalent: "x is y"}, {area: "b"}}
	for _, run := range []struct {
		mutants []mutant
		results []result
	}{
		{first, []result{{verdict: noticed}, {verdict: equivalent}, {verdict: noticed}}},
		{[]mutant{{area: "a"}}, []result{{verdict: noticed}}},
		{first, []result{{verdict: broken}, {verdict: equivalent}, {verdict: noticed}}},
	} {
		if err := recordResults(file, areaResults(run.mutants, run.results, "2026-11-23")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []areaResult
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := []areaResult{
		{Area: "a", Date: "2026-11-23", Noticed: 1},
		{Area: "b", Date: "2026-11-23", Noticed: 1, Survived: []defect{{File: "a.go", Harm: "lost"}}, Equivalent: []defect{{Harm: "slow", Why: "x is y"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the file holds %+v, want %+v", got, want)
	}
}

// TestAgain: only what was not noticed runs again, and is added to what was; a list that
// has changed since runs as a whole.
func TestAgain(t *testing.T) {
	before := []areaResult{{Area: "a", Noticed: 3, Survived: []defect{{File: "a.go", Harm: "lost"}, {File: "a.go", Harm: "slow"}}, Equivalent: []defect{{Harm: "none", Why: "x is y"}}}}
	list := []mutant{{area: "a"}, {area: "a", file: "a.go", harm: "lost"}, {area: "a"}, {area: "a", file: "a.go", harm: "slow"}, {area: "a"}, {area: "a", harm: "none"}}
	some, err := survivorsOf(before, list)
	if err != nil || len(some) != 2 || some[0].harm != "lost" || some[1].harm != "slow" {
		t.Fatalf("%+v, %v run again", some, err)
	}
	got := addNoticed(before, areaResults(some, []result{{verdict: noticed}, {verdict: survived}}, "2026-11-24"))
	want := []areaResult{{Area: "a", Date: "2026-11-24", Noticed: 4, Survived: before[0].Survived[1:], Equivalent: before[0].Equivalent}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the results are %+v, want %+v", got, want)
	}
	for name, other := range map[string][]mutant{"one more": append(list, mutant{area: "a"}), "another list": {{area: "b"}}} {
		if _, err := survivorsOf(before, other); err == nil {
			t.Errorf("%s: the results of another list are taken", name)
		}
	}
}

func TestRanTests(t *testing.T) {
	for output, want := range map[string]bool{
		"ok  \ta\t0.1s\n":                                true,
		"ok  \ta\t0.1s [no tests to run]\n":              false,
		"ok  \ta\t0.1s [no tests to run]\nok  \tb\t1s\n": true,
		"?   \ta\t[no test files]\nok  \tb\t1s\n":        false,
		"": false,
	} {
		if got := ranTests(output); got != want {
			t.Errorf("ranTests(%q) = %v", output, got)
		}
	}
}
