package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"

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

// readIDs reads ids from an .npy file of integers, or from text with one a line;
// there every id is a string, unless all of them are integers.
func readIDs(path string) ([]rerank.ID, error) {
	if filepath.Ext(path) == ".npy" {
		numbers, err := npy.ReadInts(path)
		if err != nil {
			return nil, err
		}
		ids := make([]rerank.ID, len(numbers))
		for i, n := range numbers {
			ids[i] = rerank.IntID(n)
		}
		return ids, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return scanIDs(bufio.NewScanner(f), path)
}

func scanIDs(lines *bufio.Scanner, path string) ([]rerank.ID, error) {
	var ids, numbers []rerank.ID
	for lines.Scan() {
		text := lines.Text()
		if text == "" {
			return nil, fmt.Errorf("%s: line %d is empty; every line is an id", path, len(ids)+1)
		}
		ids = append(ids, rerank.TextID(text))
		var id rerank.ID
		if id.UnmarshalJSON([]byte(text)) == nil && id.String() == text { // not "007", which is text
			numbers = append(numbers, id)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(numbers) == len(ids) {
		return numbers, nil
	}
	return ids, nil
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
