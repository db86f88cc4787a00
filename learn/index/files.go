package index

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

var (
	_ adapters.Writer  = (*Files)(nil)
	_ adapters.Fetcher = (*Files)(nil)
	_ adapters.Counter = (*Files)(nil)
)

// Files writes one companion into a directory that the embedded store can map:
// FIELD.npy for each field, payload.jsonl, and the ids as numbers in ids.npy or as
// strings in ids.txt; owners likewise. Close completes the files, and so does reading
// rows back; nothing can be written after that. Files is not safe for concurrent use.
type Files struct {
	Dir string
	// IDs and Owners are the names of those files after Close. IDs is empty if ids are
	// row numbers from 0, Owners if rows have no owner.
	IDs, Owners string

	fields      []*npy.Writer
	payloads    *lineWriter
	ids, owners []rerank.ID
	names       []string // names of the fields
	completed   bool
	readBack    *embedded.Store // the completed files, opened for reading
	mapped      []io.Closer
}

// Create starts the files. It returns adapters.ErrStore if the directory already holds
// some of them.
func (f *Files) Create(_ context.Context, s adapters.Schema) error {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(f.Dir); err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("%w: directory %s is not empty; replace its files with --force", adapters.ErrStore, f.Dir))
	}
	for _, field := range s.Fields {
		w, err := npy.Create(filepath.Join(f.Dir, field.Name+".npy"), field.Dim)
		if err != nil {
			return err
		}
		f.fields, f.names = append(f.fields, w), append(f.names, field.Name)
	}
	var err error
	f.payloads, err = newLineWriter(filepath.Join(f.Dir, "payload.jsonl"))
	return err
}

// Write appends rows.
func (f *Files) Write(_ context.Context, _ string, _ adapters.Schema, rows adapters.Rows) error {
	for i, w := range f.fields {
		if err := w.Append(rows.Vectors[i]); err != nil {
			return err
		}
	}
	for i, id := range rows.IDs {
		payload, err := singleLine(rows.Payloads, i)
		if err != nil {
			return fmt.Errorf("payload of row %s: %w", id, err)
		}
		if err := f.payloads.writeLine(payload); err != nil {
			return err
		}
	}
	f.ids, f.owners = append(f.ids, rows.IDs...), append(f.owners, rows.Owners...)
	return nil
}

// singleLine returns row i's payload without line breaks.
func singleLine(payloads []json.RawMessage, i int) (string, error) {
	if payloads == nil || len(payloads[i]) == 0 {
		return "{}", nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, payloads[i])
	return b.String(), err
}

// Drop removes the files of an earlier companion from the directory, and no other
// files.
func (f *Files) Drop(context.Context, string) error {
	for _, pattern := range []string{"*.npy", "*.npy.part", "ids.txt", "owners.txt", "payload.jsonl"} {
		paths, err := filepath.Glob(filepath.Join(f.Dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close completes the files.
func (f *Files) Close() error {
	failed := []error{f.complete()}
	for _, m := range f.mapped {
		failed = append(failed, m.Close())
	}
	f.readBack, f.mapped = nil, nil
	return errors.Join(failed...)
}

func (f *Files) complete() error {
	if f.completed {
		return nil
	}
	f.completed = true
	var failed []error
	for _, w := range f.fields {
		failed = append(failed, w.Close())
	}
	if f.payloads != nil {
		failed = append(failed, f.payloads.close())
	}
	var err error
	if !areRowNumbers(f.ids) {
		f.IDs, err = writeIDs(f.Dir, "ids", f.ids)
		failed = append(failed, err)
	}
	if len(f.owners) > 0 {
		f.Owners, err = writeIDs(f.Dir, "owners", f.owners)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// areRowNumbers reports whether every id equals its row number.
func areRowNumbers(ids []rerank.ID) bool {
	for row, id := range ids {
		if id != rerank.UintID(uint64(row)) {
			return false
		}
	}
	return true
}

// writeIDs writes name.npy if every id is an integer, or name.txt if every id is a
// string.
func writeIDs(dir, name string, ids []rerank.ID) (path string, err error) {
	numbers := make([]int64, 0, len(ids))
	texts := make([]string, 0, len(ids))
	for _, id := range ids {
		if n, ok := id.Int64(); ok {
			numbers = append(numbers, n)
		} else if text, ok := id.Text(); ok {
			texts = append(texts, text)
		}
	}
	switch {
	case len(numbers) == len(ids):
		path = filepath.Join(dir, name+".npy")
		return path, npy.WriteInts(path, numbers)
	case len(texts) == len(ids):
		path = filepath.Join(dir, name+".txt")
		return path, writeLines(path, texts)
	default:
		return "", fmt.Errorf("%w: the files of a companion hold ids that are all strings or all integers up to 2^63-1", adapters.ErrID)
	}
}

func writeLines(path string, texts []string) error {
	l, err := newLineWriter(path)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if err := l.writeLine(text); err != nil {
			return errors.Join(err, l.close())
		}
	}
	return l.close()
}

// lineWriter writes a text file line by line.
type lineWriter struct {
	file *os.File
	buf  *bufio.Writer
}

func newLineWriter(path string) (*lineWriter, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &lineWriter{file: f, buf: bufio.NewWriter(f)}, nil
}

func (l *lineWriter) writeLine(line string) error {
	if strings.ContainsAny(line, "\r\n") {
		return fmt.Errorf("%w: %q has a line break, which a file with one a line cannot hold", adapters.ErrID, line)
	}
	_, err := l.buf.WriteString(line + "\n")
	return err
}

func (l *lineWriter) close() error { return errors.Join(l.buf.Flush(), l.file.Close()) }
