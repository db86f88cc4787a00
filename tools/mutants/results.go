package main

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"time"
)

// areaResult says what came of the defects of one list. A file of results is a JSON
// array of them, which docs/reference/reliability.md shows as a table.
type areaResult struct {
	Area       string   `json:"area"`
	Date       string   `json:"date"` // of the run: 2026-11-23
	Noticed    int      `json:"noticed"`
	Survived   []defect `json:"survived,omitempty"`
	Equivalent []defect `json:"equivalent,omitempty"`
}

// defect is a mutant that no test noticed.
type defect struct {
	File string `json:"file"`
	Harm string `json:"harm"`
	Why  string `json:"why,omitempty"` // why no test can notice it
}

// areaResults counts the results of each area. A mutant that does not compile counts
// as a survivor: no test has noticed it.
func areaResults(mutants []mutant, results []result, date string) []areaResult {
	var all []areaResult
	for i := range mutants {
		m := &mutants[i]
		if len(all) == 0 || all[len(all)-1].Area != m.area {
			all = append(all, areaResult{Area: m.area, Date: date})
		}
		a := &all[len(all)-1]
		switch results[i].verdict {
		case noticed:
			a.Noticed++
		case equivalent:
			a.Equivalent = append(a.Equivalent, defect{m.file, m.harm, m.equivalent})
		default:
			a.Survived = append(a.Survived, defect{File: m.file, Harm: m.harm})
		}
	}
	return all
}

// recordResults replaces the areas that ran in the file at path, which need not exist,
// and leaves the other areas as they are.
func recordResults(path string, ran []areaResult) error {
	var kept []areaResult
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	kept = slices.DeleteFunc(kept, func(k areaResult) bool {
		return slices.ContainsFunc(ran, func(r areaResult) bool { return r.Area == k.Area })
	})
	kept = append(kept, ran...)
	slices.SortFunc(kept, func(a, b areaResult) int { return strings.Compare(a.Area, b.Area) })
	text, err = json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }
