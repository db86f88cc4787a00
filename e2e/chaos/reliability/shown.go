package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

const module = "github.com/likenessdb/likeness/"

// passedTests reads the output of `go test -json` and returns the tests that passed, as
// rows.yaml names them. Lines that are not JSON are left out. A test that ran several
// times passed if it passed once and never failed.
func passedTests(r io.Reader) (map[string]bool, error) {
	passed, failed := map[string]bool{}, map[string]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var event struct {
			Action  string `json:"Action"`
			Package string `json:"Package"`
			Test    string `json:"Test"`
		}
		if !bytes.HasPrefix(lines.Bytes(), []byte("{")) || json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		name := strings.TrimPrefix(event.Package, module) + "." + event.Test
		switch event.Action {
		case "pass":
			passed[name] = true
		case "fail":
			failed[name] = true
		}
	}
	for name := range failed {
		delete(passed, name)
	}
	return passed, lines.Err()
}

// unshown returns a line for each test of a promise that did not pass.
func unshown(rows []row, passed map[string]bool) []string {
	var lines []string
	for _, r := range rows {
		for _, test := range r.Tests {
			if !passed[test] && r.Elsewhere[test] == "" {
				lines = append(lines, fmt.Sprintf("row %d, %s: %s did not run, or did not pass", r.Number, r.Property, test))
			}
		}
	}
	return lines
}
