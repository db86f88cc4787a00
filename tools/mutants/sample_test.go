package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFindEdits lists every edit of a small package, and which of them compile.
func TestFindEdits(t *testing.T) {
	root := module(t, "")
	source := `package a

import "fmt"

type pair struct{ a, b int }

func (p pair) String() string { return sum(&p, 1, 2) }

func sum(p *pair, x, y int) string { return "" }

func do(p *pair, n int, on bool, c chan int) (int, error) {
	p.a = n
	n = min(p.a, 3)
	c <- n
	defer close(c)
	q := &pair{a: n, b: 0}
	if on && n > 2 {
		fmt.Println(n)
		return n, fmt.Errorf("%d is more than 2", n)
	}
	sum(q, p.b, n)
	return n, nil
}
`
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	packages, err := loadPackages(t.Context(), root, []string{"."})
	if err != nil || len(packages) != 1 {
		t.Fatalf("%d packages, %v", len(packages), err)
	}
	var got []string
	for _, e := range findEdits(packages[0], &packages[0].files[0]) {
		line := source[e.start:e.end] + " → " + e.text
		if !packages[0].compiles("a.go", []byte(source[:e.start]+e.text+source[e.end:])) {
			line += " (does not compile)"
		}
		got = append(got, line)
	}
	want := []string{
		"p.a = n → ",
		"n = min(p.a, 3) → ",
		"min → max",
		"c <- n → ",
		"defer close(c) → ",
		"a: n,  → ",
		"on && n > 2 → false && (on && n > 2)",
		"on && n > 2 → on",
		"on && n > 2 → n > 2",
		`fmt.Errorf("%d is more than 2", n) → nil`,
		"sum(q, p.b, n) →  (does not compile)",
		"q → nil (does not compile)",
		"p.b → 0",
		"n → 0",
		"p.b, n → n, p.b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the edits are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRecord(t *testing.T) {
	source := "a {\n\tx = 1\n}\nb {\n\tx = 1\n}\n"
	at := strings.LastIndex(source, "x")
	for text, want := range map[string][2]string{
		"":  {"b {\n\tx = 1", "b {\n\t = 1"},
		"y": {"b {\n\tx = 1", "b {\n\ty = 1"},
	} {
		if old, changed := (edit{at, at + 1, text}).record(source); old != want[0] || changed != want[1] {
			t.Errorf("the record of %q: %q, %q; want %q", text, old, changed, want)
		}
	}
	if old, changed := (edit{0, 1, "c"}).record(source); old != "a {" || changed != "c {" {
		t.Errorf("the record of the first line: %q, %q", old, changed)
	}
}

// TestSample draws every defect of a module: its own test notices one, the tests of another package one more, one
// survives and is printed as a record, and one is known to be equivalent.
func TestSample(t *testing.T) {
	root := module(t, "file: b.go\nold: x = unused\nharm: none\ntest: .\nequivalent: nobody calls it\n")
	for name, text := range map[string]string{
		"b.go": "package a\n\nvar x int\n\nfunc set() { x = unused }\n\nfunc clear() { x = 0 }\n\nfunc reset() {\n\tx = 0\n}\n" +
			"\n// One returns 1.\nfunc One() int {\n\tx = 1\n\treturn x\n}\n",
		"b_test.go":      "package a\n\nimport \"testing\"\n\nfunc TestClear(t *testing.T) {\n\tx = 1\n\tif clear(); x != 0 {\n\t\tt.Fail()\n\t}\n}\n",
		"user/a_test.go": "package user\n\nimport (\n\t\"testing\"\n\n\t\"a\"\n)\n\nfunc TestOne(t *testing.T) {\n\tif a.One() != 1 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-root", root, "-sample", ".", "-also", "./user"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 defects drawn", " by TestClear", "elsewhere b.go", " by TestOne", "\nfile: b.go\nold: func reset() {\nold: \tx = 0\nnew: func reset() {\nnew: \t\nharm: \ntest: .\n",
		"noticed 1 of 3 defects (seed 1): 33 %", "./user noticed 1 more",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Count(out.String(), "harm:") != 1 {
		t.Errorf("the report has another record than the survivor's:\n%s", out.String())
	}
	if err := run(t.Context(), []string{"-root", root, "-sample", ".", "-also", "./missing"}, &out); err == nil || !strings.Contains(err.Error(), "fails without a defect") {
		t.Errorf("tests that fail without a defect would notice every one: %v", err)
	}
}

// TestWilson compares with the intervals of 15 of 20 and of 0 of 10, computed by hand.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		successes, n int
		low, high    float64
	}{{15, 20, 0.531, 0.888}, {0, 10, 0, 0.278}, {0, 0, 0, 1}} {
		if low, high := wilson(c.successes, c.n); !(math.Abs(low-c.low) <= 0.001) || !(math.Abs(high-c.high) <= 0.001) {
			t.Errorf("%d of %d: %.3f to %.3f, want %.3f to %.3f", c.successes, c.n, low, high, c.low, c.high)
		}
	}
}
