package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
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

// sample says how many defects the tests noticed at first sight, before anybody wrote a test for the others.
// docs/benchmarks/mutants-sample.json lists the samples.
type sample struct {
	Packages string `json:"packages"`
	// Seed is the seed with which `make mutants-sample` drew the defects; 0: a person chose them by reading the code.
	Seed    int    `json:"seed"`
	Date    string `json:"date"`
	Drawn   int    `json:"drawn"`
	Noticed int    `json:"noticed"`
	Servers bool   `json:"servers"` // the tests on real databases ran too
}

// readList reads the JSON array in the file at path; without a path it is empty.
func readList[T any](path string) ([]T, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []T
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

const samplesHeader = `
` + "`make mutants-sample`" + ` plants random defects; those without a seed were chosen by reading the code, and not its tests. The packages' own tests noticed at first sight, before the others got a test or were shown to harm nobody:

| packages | tests on databases | seed | drawn | noticed | day |
|---|---|---|---|---|---|
`

// samplesSection lists the samples of random defects.
func samplesSection(all []sample) string {
	if len(all) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString(samplesHeader)
	for _, s := range all {
		servers := "left out"
		if s.Servers {
			servers = "ran"
		}
		seed := "chosen"
		if s.Seed > 0 {
			seed = strconv.Itoa(s.Seed)
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %d | %d (%.0f %%) | %s |\n", s.Packages, servers, seed, s.Drawn, s.Noticed, 100*float64(s.Noticed)/float64(s.Drawn), s.Date)
	}
	return text.String()
}
