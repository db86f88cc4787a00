package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// openModel reads a model file or directory.
func openModel(path string) (pipeline.Model, error) {
	m, err := model.Open(path)
	if err != nil {
		return pipeline.Model{}, err
	}
	return pipeline.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}, nil
}

// readIDs reads ids: numbers from .npy, strings from text with one a line.
func readIDs(path string) ([]rerank.ID, error) {
	var ids []rerank.ID
	if filepath.Ext(path) == ".npy" {
		numbers, err := npy.ReadInts(path)
		for _, n := range numbers {
			ids = append(ids, rerank.IntID(n))
		}
		return ids, err
	}
	text, err := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		ids = append(ids, rerank.TextID(strings.TrimRight(line, "\r\n")))
	}
	return ids, err
}

// idRows maps an id as people write it to its row. It fails on ids that look alike.
func idRows(ids []rerank.ID) (map[string]int, error) {
	rows := make(map[string]int, len(ids))
	for row, id := range ids {
		if before, twice := rows[id.String()]; twice {
			return nil, fmt.Errorf("rows %d and %d have the item id %s", before, row, id)
		}
		rows[id.String()] = row
	}
	return rows, nil
}
