package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryPageIsOnTheMap: a page of docs is named by docs/README.md or by the README of its folder.
func TestEveryPageIsOnTheMap(t *testing.T) {
	for _, page := range pages(t) {
		dir, name := filepath.Split(page)
		if !strings.HasPrefix(page, "docs/") || name == "README.md" {
			continue
		}
		own := ""
		if dir == "docs/benchmarks/" {
			own = read(t, dir+"README.md")
		}
		if !strings.Contains(read(t, "docs/README.md"), "("+strings.TrimPrefix(page, "docs/")+")") && !strings.Contains(own, "("+name+")") {
			t.Errorf("%s is on no map: add it to docs/README.md, by who reads it", page)
		}
	}
}

// metric is the name of one, without what a histogram's series add; names of
// packages and fields look alike but for the unit.
var metric = regexp.MustCompile(`likeness_[a-z0-9_]*[a-z0-9]`)

var series = regexp.MustCompile(`_(bucket|sum|count)$`)

// TestMetricsExist: every metric that the runbooks and the pages for operators name is one.
func TestMetricsExist(t *testing.T) {
	reference := read(t, "docs/reference/metrics.md")
	for _, page := range []string{
		"docs/runbooks.md", "docs/how-to/deploy.md", "docs/how-to/size-it.md", "docs/how-to/upgrade.md", "docs/how-to/recover.md",
		"docs/how-to/promise-a-recall.md", "docs/how-to/roll-out-and-back.md",
	} {
		for _, name := range metric.FindAllString(read(t, page), -1) {
			if !strings.Contains(reference, "`"+series.ReplaceAllString(name, "")+"`") && name != "likeness_owner" {
				t.Errorf("%s names the metric %s, which docs/reference/metrics.md does not have", page, name)
			}
		}
	}
}

// qualified matches a function with its package, and its type if it has one.
var qualified = regexp.MustCompile("`([a-z]+)\\.(?:[A-Za-z]+\\.)?([A-Za-z]+)`")

// TestWalkExists: the functions in docs/design.md through which searches and writes pass exist.
func TestWalkExists(t *testing.T) {
	_, walk, _ := strings.Cut(read(t, "docs/design.md"), "| function | what happens |")
	walk, _, _ = strings.Cut(walk, "| to add | write |")
	found := qualified.FindAllStringSubmatch(walk, -1)
	if rows := strings.Count(walk, "\n| "); rows > 12 || len(found) < rows {
		t.Errorf("%d functions in %d rows, want at most 12 rows and a function in each", len(found), rows)
	}
	for _, f := range found {
		var files []string
		for _, dir := range []string{"sidecar", "sidecar/search", "sidecar/proxy", "rerank"} {
			in, err := filepath.Glob(filepath.Join(root, dir, f[1], "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, in...)
		}
		declared := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type )` + f[2] + `[([ ]`)
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && declared.Match(text)
		}) {
			t.Errorf("docs/design.md names %s, which does not exist", f[0])
		}
	}
}

// TestCommandsExist: every command of likeness in a page is one, with the flags that it is given.
func TestCommandsExist(t *testing.T) {
	commands := manual(read(t, "docs/reference/cli.md"))
	for _, page := range pages(t) {
		if page == "docs/reference/cli.md" {
			continue
		}
		for _, b := range fenced(read(t, page)) {
			if b.language != "sh" {
				continue
			}
			for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
				line, _, _ = strings.Cut(line, " #")
				words := strings.Fields(line)
				if len(words) > 0 && (words[0] == "likeness" || words[0] == "bin/likeness") {
					check(t, page, commands, words[1:])
				}
			}
		}
	}
}

// manual has the text of each command of the reference, and of the groups of flags that it
// links to, by its name after likeness.
func manual(text string) map[string]string {
	groups := map[string]string{}
	for section := range strings.SplitSeq(text, "\n### ") {
		title, body, _ := strings.Cut(section, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		groups[strings.ReplaceAll(strings.ToLower(title), " ", "-")] = body
	}
	out := map[string]string{}
	for section := range strings.SplitSeq(text, "\n## `likeness") {
		name, body, ok := strings.Cut(section, "`")
		if !ok {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(body, -1) {
			body += groups[strings.TrimPrefix(m[1], "#")]
		}
		out[strings.TrimSpace(name)] = body
	}
	return out
}

func check(t *testing.T, page string, commands map[string]string, words []string) {
	t.Helper()
	name, text, found := "", "", false
	for n := min(3, len(words)); n > 0 && !found; n-- {
		name = strings.Join(words[:n], " ")
		text, found = commands[name]
	}
	if !found {
		t.Errorf("%s: likeness %s: no such command", page, strings.Join(words, " "))
		return
	}
	for _, word := range words {
		if word == "--" || strings.HasPrefix(word, "./") { // what follows is another program's
			return
		}
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "--") && len(flag) > 2 && flag != "--help" && !strings.Contains(text, "`"+flag+"`") {
			t.Errorf("%s: likeness %s has no flag %s", page, name, flag)
		}
	}
}
