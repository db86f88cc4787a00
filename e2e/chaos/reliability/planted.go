package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// planted says what came of the defects of one list of tools/mutants, as `make mutants`
// keeps it in docs/benchmarks/mutants.json.
type planted struct {
	Area       string   `json:"area"`
	Date       string   `json:"date"`
	Noticed    int      `json:"noticed"`
	Survived   []defect `json:"survived"`
	Equivalent []defect `json:"equivalent"`
}

type defect struct {
	File string `json:"file"`
	Harm string `json:"harm"`
	Why  string `json:"why"`
}

// readPlanted reads the file at path; without a path there are no results.
func readPlanted(path string) ([]planted, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []planted
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

const plantedHeader = `
## Planted defects

` + "`make mutants AREA=NAME`" + ` plants the defects of tools/mutants/NAME.txt one at a time, each of which would harm a user, and runs the tests of
the package that decides. A defect is equivalent where no input can show it.

| list | planted | noticed | not noticed | equivalent | day |
|---|---|---|---|---|---|
`

// plantedSection formats the table of planted defects and the list of those that no test
// noticed.
func plantedSection(all []planted) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(plantedHeader)
	for _, p := range all {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s |\n", p.Area, p.Noticed+len(p.Survived)+len(p.Equivalent), p.Noticed, len(p.Survived), len(p.Equivalent), p.Date)
	}
	b.WriteString(unnoticed(all))
	return b.String()
}

// unnoticed formats the defects that no test noticed: first those without a reason, by
// file, then the others.
func unnoticed(all []planted) string {
	var files []string
	open := map[string][]string{}
	var reasons strings.Builder
	for _, p := range all {
		for _, d := range append(p.Survived, p.Equivalent...) {
			if d.Why != "" {
				fmt.Fprintf(&reasons, "| %s | %s | %s |\n", cell(d.File), cell(d.Harm), cell(d.Why))
				continue
			}
			if open[d.File] == nil {
				files = append(files, d.File)
			}
			open[d.File] = append(open[d.File], cell(d.Harm))
		}
	}
	var b strings.Builder
	if len(files) > 0 {
		b.WriteString("\nOpen, for a test is missing; what a user would suffer:\n\n")
	}
	for _, file := range files {
		fmt.Fprintf(&b, "- %s: %s.\n", file, strings.Join(open[file], "; "))
	}
	if reasons.Len() > 0 {
		b.WriteString("\n| file | what a user would suffer | why no test notices it |\n|---|---|---|\n" + reasons.String())
	}
	return b.String()
}
