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

Tests are worth the defects they notice. ` + "`make mutants AREA=NAME`" + ` plants the defects of tools/mutants/NAME.txt one at a time and runs
the tests of the package that decides; each would harm a user. A defect is equivalent where no input can show it.

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
	rows := false
	for _, p := range all {
		for _, d := range append(p.Survived, p.Equivalent...) {
			if !rows {
				b.WriteString("\n| file | what a user would suffer | why no test notices it |\n|---|---|---|\n")
				rows = true
			}
			why := d.Why
			if why == "" {
				why = "open: a test is missing"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(d.File), cell(d.Harm), cell(why))
		}
	}
	return b.String()
}
