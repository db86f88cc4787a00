package doctest_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile("^#{1,6} +(.*?) *#*$")
	mark    = regexp.MustCompile("`+|\\*\\*|\\[([^\\]]*)\\]\\([^)]*\\)")
)

// TestLinks: every link of a page to a file of the tree, and to a heading of a
// page, leads there. What is elsewhere is not looked at.
func TestLinks(t *testing.T) {
	anchors := map[string]map[string]bool{}
	for _, page := range pages(t) {
		for i, line := range prose(read(t, page)) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if problem := follow(t, page, m[1], anchors); problem != "" {
					t.Errorf("%s:%d: %s: %s", page, i+1, m[1], problem)
				}
			}
		}
	}
}

// named matches a page, and perhaps a heading, that a file names by its path from the root.
var named = regexp.MustCompile(`\bdocs/[a-z/-]+\.md(#[a-z0-9-]+)?`)

// TestPagesNamedByFiles: a page that code, an alert or a manifest names exists, and so does its heading.
func TestPagesNamedByFiles(t *testing.T) {
	anchors := map[string]map[string]bool{}
	for _, file := range tracked(t, "*.go", "*.yaml", "*.sh", "*.tmpl", "*.proto", "*.py", "Makefile") {
		if strings.Contains(file, "testdata/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, page := range named.FindAllString(read(t, file), -1) {
			if problem := follow(t, "README.md", page, anchors); problem != "" {
				t.Errorf("%s names %s: %s", file, page, problem)
			}
		}
	}
}

// follow says why a link leads nowhere.
func follow(t *testing.T, page, target string, anchors map[string]map[string]bool) string {
	t.Helper()
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme != "":
		return ""
	}
	to := page
	if u.Path != "" {
		to = filepath.Join(filepath.Dir(page), u.Path)
		if _, err := os.Stat(filepath.Join(root, to)); err != nil {
			return "there is no such file"
		}
	}
	if u.Fragment == "" || filepath.Ext(to) != ".md" {
		return ""
	}
	if anchors[to] == nil {
		anchors[to] = headings(read(t, to))
	}
	if !anchors[to][u.Fragment] {
		return to + " has no such heading"
	}
	return ""
}

// headings are the anchors of a page, as GitHub makes them of its headings: small
// letters, spaces as hyphens, no punctuation, and a number for one that comes again.
func headings(text string) map[string]bool {
	out := map[string]bool{}
	for _, line := range prose(text) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		base := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, mark.ReplaceAllString(m[1], "$1"))
		anchor := base
		for n := 1; out[anchor]; n++ {
			anchor = base + "-" + strconv.Itoa(n)
		}
		out[anchor] = true
	}
	return out
}

// prose are a page's lines, those within fences empty.
func prose(text string) []string {
	lines, fenced := strings.Split(text, "\n"), false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			lines[i] = ""
		} else if fenced {
			lines[i] = ""
		}
	}
	return lines
}

// pages are the tracked pages.
func pages(t *testing.T) []string {
	t.Helper()
	return tracked(t, "*.md")
}

// tracked lists the tracked files that match one of the patterns.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"ls-files", "--"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the files are listed by git: %v", err)
	}
	return strings.Fields(string(out))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
