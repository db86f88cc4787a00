package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// planted is the result of one list of tools/mutants, as `make mutants` stores it in
// docs/benchmarks/mutants.json.
type planted struct {
	Area       string `json:"area"`
	Noticed    int    `json:"noticed"`
	Survived   []any  `json:"survived"`
	Equivalent []any  `json:"equivalent"`
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
the package that decides. [mutants.json](../benchmarks/mutants.json) says what a user would suffer from those that no test notices yet.

Noticed: `

// plantedSection lists how many planted defects the tests notice, by area.
func plantedSection(all []planted) string {
	if len(all) == 0 {
		return ""
	}
	areas := make([]string, len(all))
	for i, p := range all {
		areas[i] = fmt.Sprintf("%s %d of %d", p.Area, p.Noticed, p.Noticed+len(p.Survived)+len(p.Equivalent))
		if n := len(p.Equivalent); n > 0 {
			areas[i] += fmt.Sprintf(" (%d that no input can show)", n)
		}
	}
	return plantedHeader + strings.Join(areas, ", ") + ".\n"
}
