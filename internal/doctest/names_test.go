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
