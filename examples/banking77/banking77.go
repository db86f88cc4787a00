// Package banking77 reads the real data that the examples and the quality tests
// use: BANKING77 (PolyAI Limited, CC BY 4.0) with frozen sentence vectors, as
// two search tasks.
package banking77

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/likenessdb/likeness/rerank/npy"
)

// Row is one text with its number and the number of its intent.
type Row struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	Text string `json:"text"`
	Item int    `json:"item"` // of an intent: 0
}

// Task is a collection, the questions that are asked of it, and the right answers.
type Task struct {
	Name       string
	Items      []Row
	ItemFile   string // .npy, one row an item
	ItemText   string // JSON lines, one object an item
	Queries    []Row
	QueryFile  string
	Relevant   [][]int32 // the right item rows of each query row
	queryArray *npy.Matrix
}

// Intents is the routing of 3,080 test questions to 77 intents.
func Intents(dir string) (*Task, error) {
	t, err := read(dir, "intents", "items")
	if err != nil {
		return nil, err
	}
	for _, q := range t.Queries {
		t.Relevant = append(t.Relevant, []int32{int32(q.Item)})
	}
	return t, nil
}

// Questions is the search of 10,003 known questions for those with the intent of
// each of 3,080 test questions.
func Questions(dir string) (*Task, error) {
	t, err := read(dir, "questions", "train")
	if err != nil {
		return nil, err
	}
	same := map[int][]int32{}
	for row, item := range t.Items {
		same[item.Item] = append(same[item.Item], int32(row))
	}
	for _, q := range t.Queries {
		t.Relevant = append(t.Relevant, same[q.Item])
	}
	return t, nil
}

func read(dir, name, items string) (*Task, error) {
	t := &Task{
		Name:     name,
		ItemFile: filepath.Join(dir, items+"_vectors.npy"), ItemText: filepath.Join(dir, items+".jsonl"),
		QueryFile: filepath.Join(dir, "test_vectors.npy"),
	}
	var err error
	if t.Items, err = Rows(t.ItemText); err != nil {
		return nil, err
	}
	if t.Queries, err = Rows(filepath.Join(dir, "test.jsonl")); err != nil {
		return nil, err
	}
	if t.queryArray, err = npy.Open(t.QueryFile); err != nil {
		return nil, err
	}
	if t.queryArray.Rows != len(t.Queries) {
		return nil, fmt.Errorf("%s has %d rows for %d questions", t.QueryFile, t.queryArray.Rows, len(t.Queries))
	}
	return t, nil
}

// Vector returns a query's vector.
func (t *Task) Vector(query int) []float32 { return t.queryArray.Row(query) }

// Close frees the vectors.
func (t *Task) Close() error { return t.queryArray.Close() }

// WritePairs writes the task's pairs as `likeness eval` reads them.
func (t *Task) WritePairs(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"query", "item"}); err != nil {
		return err
	}
	for query, items := range t.Relevant {
		for _, item := range items {
			if err := out.Write([]string{strconv.Itoa(query), strconv.Itoa(int(item))}); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// Rows reads a file of texts, one JSON object a line.
func Rows(path string) (rows []Row, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r Row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(rows)+1, err)
		}
		if r.ID != len(rows) {
			return nil, fmt.Errorf("%s: line %d has the id %d, want %d", path, len(rows)+1, r.ID, len(rows))
		}
		rows = append(rows, r)
	}
	return rows, lines.Err()
}
