package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
		case noticed, elsewhere:
			a.Noticed++
		case equivalent:
			a.Equivalent = append(a.Equivalent, defect{m.file, m.harm, m.equivalent})
		default:
			a.Survived = append(a.Survived, defect{File: m.file, Harm: m.harm})
		}
	}
	return all
}

// firstResult says how many defects of a list its tests noticed at first sight. docs/benchmarks/mutants-sample.json is an
// array of them and of the results of random samples.
type firstResult struct {
	Packages string `json:"packages"`
	Seed     int    `json:"seed"` // 0: a person chose the defects
	Date     string `json:"date"`
	Drawn    int    `json:"drawn"`
	Noticed  int    `json:"noticed"`
	Servers  bool   `json:"servers"` // tests on databases ran
	List     string `json:"list"`
}

// firstResults counts the results of each list, unless a verdict is unclear. Only the tests of its records count, not the
// tests of -also. Defects that are equivalent or do not compile are left out.
func firstResults(mutants []mutant, results []result, date string, servers bool) []firstResult {
	var all []firstResult
	unsettled := make(map[string]bool)
	packages := make(map[string][]string)
	for i, m := range mutants {
		if len(all) == 0 || all[len(all)-1].List != m.area {
			all = append(all, firstResult{Date: date, Servers: servers, List: m.area})
		}
		f := &all[len(all)-1]
		for _, arg := range m.test {
			if strings.HasPrefix(arg, ".") && !slices.Contains(packages[m.area], arg) {
				packages[m.area] = append(packages[m.area], arg)
			}
		}
		f.Packages = strings.Join(packages[m.area], " ")
		switch results[i].verdict {
		case equivalent, broken:
			continue
		case noticed:
			f.Noticed++
		case unclear:
			unsettled[m.area] = true
		}
		f.Drawn++
	}
	return slices.DeleteFunc(all, func(f firstResult) bool { return unsettled[f.List] || f.Drawn == 0 })
}

// recordFirst adds results to the JSON array in the file at path, which need not exist. It leaves out a list that the file
// has already.
func recordFirst(path string, ran []firstResult) error {
	var lines []json.RawMessage
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &lines)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	recorded := make(map[string]bool)
	for _, line := range lines {
		var f firstResult
		if err := json.Unmarshal(line, &f); err != nil {
			return err
		}
		recorded[f.List] = true
	}
	for _, f := range ran {
		if recorded[f.List] {
			continue
		}
		line, err := json.Marshal(f)
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	return os.WriteFile(path, slices.Concat([]byte("[\n  "), bytes.Join(asBytes(lines), []byte(",\n  ")), []byte("\n]\n")), 0o644)
}

// asBytes returns the text of each message.
func asBytes(messages []json.RawMessage) [][]byte {
	text := make([][]byte, len(messages))
	for i, m := range messages {
		text[i] = m
	}
	return text
}

// readResults reads a file of results, which need not exist.
func readResults(path string) (all []areaResult, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// survivorsOf returns the mutants that the results have as not noticed. It returns an error
// where an area has another number of mutants than its results: the others may never have
// run.
func survivorsOf(results []areaResult, mutants []mutant) ([]mutant, error) {
	var survivors []mutant
	count := map[string]int{}
	for _, m := range mutants {
		count[m.area]++
		for _, r := range results {
			if r.Area == m.area && slices.Contains(r.Survived, defect{File: m.file, Harm: m.harm}) {
				survivors = append(survivors, m)
			}
		}
	}
	for area, n := range count {
		i := slices.IndexFunc(results, func(r areaResult) bool { return r.Area == area })
		if i < 0 || results[i].planted() != n {
			return nil, fmt.Errorf("the list %s.txt is another than its results are of: run all of it", area)
		}
	}
	return survivors, nil
}

// planted returns the number of mutants of an area.
func (r areaResult) planted() int { return r.Noticed + len(r.Survived) + len(r.Equivalent) }

// addNoticed adds what was noticed before, and what is equivalent, to the results of the
// mutants that ran again.
func addNoticed(before, ran []areaResult) []areaResult {
	for i := range ran {
		for _, b := range before {
			if b.Area == ran[i].Area {
				ran[i].Noticed += b.Noticed
				ran[i].Equivalent = append(b.Equivalent, ran[i].Equivalent...)
			}
		}
	}
	return ran
}

// recordResults replaces the areas that ran in the file at path, which need not exist,
// and leaves the other areas as they are.
func recordResults(path string, ran []areaResult) error {
	kept, err := readResults(path)
	if err != nil {
		return err
	}
	kept = slices.DeleteFunc(kept, func(k areaResult) bool {
		return slices.ContainsFunc(ran, func(r areaResult) bool { return r.Area == k.Area })
	})
	kept = append(kept, ran...)
	slices.SortFunc(kept, func(a, b areaResult) int { return strings.Compare(a.Area, b.Area) })
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }
