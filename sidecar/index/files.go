package index

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank/npy"
)

var _ adapters.Writer = (*Files)(nil)

// Files writes one companion into a directory, as the embedded store maps it:
// FIELD.npy for each field, ids.txt, payload.jsonl, and owners.txt where rows
// have owners. Close finishes it. It is not safe for concurrent use.
type Files struct {
	Dir      string
	fields   []*npy.Writer
	ids      *lines
	owners   *lines
	payloads *lines
}

// Create begins the files. It returns adapters.ErrStore if the directory holds any.
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
		f.fields = append(f.fields, w)
	}
	var failed [3]error
	f.ids, failed[0] = newLines(filepath.Join(f.Dir, "ids.txt"))
	f.payloads, failed[1] = newLines(filepath.Join(f.Dir, "payload.jsonl"))
	if s.Owner != "" {
		f.owners, failed[2] = newLines(filepath.Join(f.Dir, "owners.txt"))
	}
	return errors.Join(failed[:]...)
}

// Write appends rows.
func (f *Files) Write(_ context.Context, _ string, _ adapters.Schema, rows adapters.Rows) error {
	for i, w := range f.fields {
		if err := w.Append(rows.Vectors[i]); err != nil {
			return err
		}
	}
	for i, id := range rows.IDs {
		payload, err := oneLine(rows.Payloads, i)
		if err != nil {
			return fmt.Errorf("payload of row %s: %w", id, err)
		}
		err = errors.Join(f.ids.write(id.String()), f.payloads.write(payload))
		if f.owners != nil {
			err = errors.Join(err, f.owners.write(rows.Owners[i].String()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oneLine is row i's payload without line breaks.
func oneLine(payloads []json.RawMessage, i int) (string, error) {
	if payloads == nil || len(payloads[i]) == 0 {
		return "{}", nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, payloads[i])
	return b.String(), err
}

// Drop removes the files of an earlier companion from the directory, and no others.
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

// Close finishes the files.
func (f *Files) Close() error {
	var failed []error
	for _, w := range f.fields {
		failed = append(failed, w.Close())
	}
	for _, l := range []*lines{f.ids, f.owners, f.payloads} {
		if l != nil {
			failed = append(failed, l.close())
		}
	}
	return errors.Join(failed...)
}

// lines is a text file that is written line by line.
type lines struct {
	file *os.File
	buf  *bufio.Writer
}

func newLines(path string) (*lines, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &lines{file: f, buf: bufio.NewWriter(f)}, nil
}

func (l *lines) write(line string) error {
	if strings.ContainsAny(line, "\r\n") {
		return fmt.Errorf("%w: %q has a line break, which a file with one a line cannot hold", adapters.ErrID, line)
	}
	_, err := l.buf.WriteString(line + "\n")
	return err
}

func (l *lines) close() error { return errors.Join(l.buf.Flush(), l.file.Close()) }
