package main

import (
	"encoding/json"
	"fmt"
	"os"
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
the package that decides. [mutants.json](../benchmarks/mutants.json) says by area what a user would suffer from those that no test notices yet.

`

// plantedSection says how many planted defects the tests notice.
func plantedSection(all []planted) string {
	if len(all) == 0 {
		return ""
	}
	noticed, survived, equivalent := 0, 0, 0
	for _, p := range all {
		noticed, survived, equivalent = noticed+p.Noticed, survived+len(p.Survived), equivalent+len(p.Equivalent)
	}
	return fmt.Sprintf("%sOf %d defects in %d areas the tests notice %d; %d more can be shown by no input.\n", plantedHeader, noticed+survived+equivalent, len(all), noticed, equivalent)
}
