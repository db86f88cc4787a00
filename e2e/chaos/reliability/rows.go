package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// row is one promise.
type row struct {
	Number   int      `yaml:"row"`
	Property string   `yaml:"property"`
	Bar      string   `yaml:"bar"`
	Tests    []string `yaml:"tests"`
	Long     string   `yaml:"long"`
	// Elsewhere maps a test that `make test` leaves out to the command that runs it.
	Elsewhere map[string]string `yaml:"elsewhere"`
	Limits    string            `yaml:"limits"`
	Most      *most             `yaml:"most"`
}

// most is the bar of a number in the figures of a row.
type most struct {
	Pattern string  `yaml:"pattern"` // a regular expression with the number in its one group
	Value   float64 `yaml:"value"`
}

// missed returns the parts of a figure whose number is greater than the bar.
func (m *most) missed(figure string) ([]string, error) {
	if m == nil {
		return nil, nil
	}
	pattern, err := regexp.Compile(m.Pattern)
	if err != nil || pattern.NumSubexp() != 1 {
		return nil, fmt.Errorf("most: want a pattern with one group, not %q (%w)", m.Pattern, err)
	}
	var parts []string
	for _, found := range pattern.FindAllStringSubmatch(figure, -1) {
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return nil, fmt.Errorf("most: %w", err)
		}
		if n > m.Value {
			parts = append(parts, found[0])
		}
	}
	return parts, nil
}

func parseRows(text []byte) ([]row, error) {
	var rows []row
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&rows); err != nil {
		return nil, fmt.Errorf("rows.yaml: %w", err)
	}
	for i, r := range rows {
		if r.Number != i+1 || r.Property == "" || r.Bar == "" {
			return nil, fmt.Errorf("rows.yaml: entry %d is row %d, %q: rows are numbered from 1 and have a property and a bar", i+1, r.Number, r.Property)
		}
		if _, err := r.Most.missed(""); err != nil {
			return nil, fmt.Errorf("rows.yaml: row %d: %w", r.Number, err)
		}
		if len(r.Tests) == 0 && r.Limits == "" {
			return nil, fmt.Errorf("rows.yaml: row %d has no test and does not say why", r.Number)
		}
	}
	return rows, nil
}
