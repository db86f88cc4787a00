package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/rerank"
)

// Asked holds queries as users asked them: everything about a query that a ranker can
// read.
type Asked struct {
	IDs     []rerank.ID // row numbers if the file has no ids
	Queries []rerank.Query
	// Ignored names the columns or keys of the file that were not recognised.
	Ignored []string
}

// ReadAsked reads queries from a file of one of three kinds. JSON lines (.jsonl,
// .ndjson) have the keys id, text, vector, user_id and context (numbers by name). CSV
// has a header with columns of the same names, and writes a vector or a context as
// JSON. Any other file holds vectors alone, as OpenVectors reads them. Each query
// needs a text or a vector. ReadAsked returns ErrInput or the context's error.
func ReadAsked(ctx context.Context, spec string) (*Asked, error) {
	a := &Asked{}
	var err error
	switch ext := strings.ToLower(filepath.Ext(spec)); ext {
	case ".jsonl", ".ndjson":
		err = a.readFile(spec, a.readLines)
	case ".csv":
		err = a.readFile(spec, a.readTable)
	default:
		return a, a.readVectors(ctx, spec)
	}
	if err == nil && len(a.Queries) == 0 {
		err = errors.New("there is no query in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, spec, err)
	}
	return a, nil
}

func (a *Asked) readFile(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}

func (a *Asked) readVectors(ctx context.Context, spec string) error {
	v, err := OpenVectors(ctx, spec)
	if err != nil {
		return err
	}
	defer v.Close()
	if _, err := countNotFinite(spec, v.Matrix, false); err != nil {
		return err
	}
	for r := range v.Rows {
		id := rerank.UintID(uint64(r))
		if v.IDs != nil {
			id = v.IDs[r]
		}
		a.IDs, a.Queries = append(a.IDs, id), append(a.Queries, rerank.Query{Vector: slices.Clone(v.Row(r))})
	}
	return nil
}

// askedFields holds the fields of one query, decoded from JSON or CSV.
type askedFields struct {
	ID      *rerank.ID         `json:"id"`
	Text    string             `json:"text"`
	Vector  []float32          `json:"vector"`
	UserID  *int64             `json:"user_id"`
	Context map[string]float32 `json:"context"`
}

var askedKeys = []string{"id", "text", "vector", "user_id", "context"}

func (a *Asked) readLines(r io.Reader) error {
	err := eachLine(r, func(_ int, line []byte) error {
		var fields askedFields
		var all map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(line, &fields), json.Unmarshal(line, &all)); err != nil {
			return fmt.Errorf("want a JSON object with id, text, vector, user_id or context: %w", err)
		}
		for key := range all {
			a.ignoreColumn(key)
		}
		return a.addQuery(fields)
	})
	slices.Sort(a.Ignored)
	return err
}

func (a *Asked) readTable(r io.Reader) error {
	rows := newRecordReader(r)
	rows.TrimLeadingSpace = true
	names, err := rows.readHeader()
	if err != nil {
		return fmt.Errorf("the first line names the columns, of id, text, vector, user_id and context: %w", err)
	}
	names[0] = strings.TrimPrefix(names[0], "\ufeff")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if slices.Contains(names[:i], names[i]) {
			return fmt.Errorf("line 1: column %q stands there twice", name)
		}
		a.ignoreColumn(names[i])
	}
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		fields, err := parseRecord(names, record)
		if err == nil {
			err = a.addQuery(fields)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// parseRecord decodes one CSV record. An empty cell leaves its field unset.
func parseRecord(names, record []string) (f askedFields, err error) {
	for i, cell := range record {
		if cell == "" {
			continue
		}
		switch names[i] {
		case "id":
			id := rerank.TextID(cell)
			if n, err := strconv.ParseInt(cell, 10, 64); err == nil {
				id = rerank.IntID(n)
			}
			f.ID = &id
		case "text":
			f.Text = cell
		case "vector":
			err = json.Unmarshal([]byte(cell), &f.Vector)
		case "user_id":
			err = json.Unmarshal([]byte(cell), &f.UserID)
		case "context":
			err = json.Unmarshal([]byte(cell), &f.Context)
		}
		if err != nil {
			return f, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	return f, nil
}

func (a *Asked) ignoreColumn(name string) {
	if !slices.Contains(askedKeys, name) && !slices.Contains(a.Ignored, name) && len(a.Ignored) < 20 {
		a.Ignored = append(a.Ignored, name)
	}
}

func (a *Asked) addQuery(f askedFields) error {
	if f.Text == "" && len(f.Vector) == 0 {
		return errors.New("the query has neither a text nor a vector")
	}
	id := rerank.UintID(uint64(len(a.IDs)))
	if f.ID != nil && !f.ID.IsZero() {
		id = *f.ID
	}
	q := rerank.Query{Text: f.Text, Vector: f.Vector, Context: f.Context}
	if f.UserID != nil {
		q.UserID, q.HasUserID = *f.UserID, true
	}
	a.IDs, a.Queries = append(a.IDs, id), append(a.Queries, q)
	return nil
}

// ReadPayloads reads one JSON object from each line; line n belongs to row n−1. It
// returns ErrInput.
func ReadPayloads(path string) ([]json.RawMessage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	var rows []json.RawMessage
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
			return nil, fmt.Errorf("%w: %s: line %d is no JSON object; the file has one a line", ErrInput, path, len(rows)+1)
		}
		rows = append(rows, line)
	}
	return rows, nil
}
