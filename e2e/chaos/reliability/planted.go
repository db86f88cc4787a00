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
` + "`make mutants-sample`" + ` plants defects that are drawn at random, or that were chosen by reading the code and not its tests. The packages' own tests noticed at first
sight, before the others got a test or were shown to harm nobody ([every sample](../benchmarks/mutants-sample.json)):

| defects | tests on databases | planted | noticed | in the worst sample |
|---|---|---|---|---|
`

// samplesSection sums the samples up by how their defects were found and which tests ran, in the order of the first of each kind.
func samplesSection(all []sample) string {
	type kind struct {
		chosen  bool
		servers bool
	}
	var kinds []kind
	sums := make(map[kind]sample)
	worst := make(map[kind]sample)
	for _, s := range all {
		k := kind{s.Seed == 0, s.Servers}
		sum, seen := sums[k]
		if !seen {
			kinds = append(kinds, k)
		}
		sum.Drawn, sum.Noticed = sum.Drawn+s.Drawn, sum.Noticed+s.Noticed
		sums[k] = sum
		if !seen || s.share() < worst[k].share() {
			worst[k] = s
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString(samplesHeader)
	for _, k := range kinds {
		found, servers := "random", "left out"
		if k.chosen {
			found = "chosen"
		}
		if k.servers {
			servers = "ran"
		}
		sum, w := sums[k], worst[k]
		fmt.Fprintf(&text, "| %s | %s | %d | %d (%.0f %%) | `%s`: %.0f %% |\n", found, servers, sum.Drawn, sum.Noticed, 100*sum.share(), w.Packages, 100*w.share())
	}
	return text.String()
}

// share returns the share of the defects that the tests noticed.
func (s sample) share() float64 { return float64(s.Noticed) / float64(s.Drawn) }
