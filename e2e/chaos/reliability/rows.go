package main

import (
	"bytes"
	"fmt"

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
		if len(r.Tests) == 0 && r.Limits == "" {
			return nil, fmt.Errorf("rows.yaml: row %d has no test and does not say why", r.Number)
		}
	}
	return rows, nil
}
