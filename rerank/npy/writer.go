package npy

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/atomicfile"
)

// Writer writes a float32 matrix whose number of rows is not known before. Until
// Close it grows as path.part. It is not safe for concurrent use.
type Writer struct {
	path       string
	rows, cols int
	file       *os.File
	buf        *bufio.Writer
}

// Create begins a matrix of rows of cols numbers at path.
func Create(path string, cols int) (*Writer, error) {
	if cols < 1 {
		return nil, fmt.Errorf("%w: %s: rows of %d numbers", ErrFormat, path, cols)
	}
	f, err := os.Create(path + ".part")
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, cols: cols, file: f, buf: bufio.NewWriterSize(f, 1<<18)}
	if _, err := w.buf.Write(encodeHeader(0, cols)); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// Append adds rows. It returns ErrFormat if they have another length.
func (w *Writer) Append(m rerank.Matrix) error {
	if m.Cols != w.cols || len(m.Data) != m.Rows*m.Cols {
		return fmt.Errorf("%w: %s: %d numbers in rows of %d, want rows of %d", ErrFormat, w.path, len(m.Data), m.Cols, w.cols)
	}
	w.rows += m.Rows
	return writeFloats(w.buf, m.Data)
}

// Close writes the number of rows and renames the file to its path.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	before, header := encodeHeader(0, w.cols), encodeHeader(w.rows, w.cols)
	if len(header) != len(before) {
		return errors.Join(fmt.Errorf("%w: %s: %d rows of %d do not fit the header", ErrFormat, w.path, w.rows, w.cols), w.Abort())
	}
	if err := w.buf.Flush(); err != nil {
		return errors.Join(err, w.Abort())
	}
	if _, err := w.file.WriteAt(header, 0); err != nil {
		return errors.Join(err, w.Abort())
	}
	f := w.file
	w.file = nil
	return atomicfile.Rename(f, w.path)
}

// Abort removes what was written; after Close it does nothing.
func (w *Writer) Abort() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
