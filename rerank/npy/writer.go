package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/rerank"
)

// Writer writes a float32 matrix whose number of rows is not known in advance. Until Close,
// the matrix grows in path.part. A Writer is not safe for concurrent use.
type Writer struct {
	path       string
	rows, cols int
	file       *os.File // nil once closed
	buf        *bufio.Writer
}

// streamHeader is the length of a Writer's header. It has space for any number of rows.
const streamHeader = 2 * align

// Create starts a matrix with cols columns. It returns ErrFormat if cols is less than one.
func Create(path string, cols int) (*Writer, error) {
	if cols < 1 || cols > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %s: rows of %d numbers, want 1 to %d", ErrFormat, path, cols, math.MaxInt32)
	}
	f, err := os.Create(path + ".part")
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, cols: cols, file: f, buf: bufio.NewWriterSize(f, 1<<16)}
	_, err = w.buf.Write(make([]byte, streamHeader))
	return w, err
}

// Append adds rows. It returns ErrFormat if they have another number of columns.
func (w *Writer) Append(m rerank.Matrix) error {
	switch {
	case m.Cols != w.cols || len(m.Data) != m.Rows*m.Cols:
		return fmt.Errorf("%w: %s: %d numbers in rows of %d, want rows of %d", ErrFormat, w.path, len(m.Data), m.Cols, w.cols)
	case m.Rows > math.MaxInt32-w.rows:
		return fmt.Errorf("%w: %s: more than %d rows", ErrFormat, w.path, math.MaxInt32)
	}
	if err := writeFloats(w.buf, m.Data); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	w.rows += m.Rows
	return nil
}

// Close completes the file and renames it to its path in one step. On an error, path is
// unchanged. A second Close does nothing.
func (w *Writer) Close() error {
	f := w.file
	if w.file = nil; f == nil {
		return nil
	}
	err := w.buf.Flush()
	if err == nil {
		_, err = f.WriteAt(encodeHeader(w.rows, w.cols, streamHeader), 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", w.path, err), f.Close(), os.Remove(f.Name()))
	}
	return atomicfile.Rename(disk.OS{}, f, w.path)
}

// Abort stops writing and removes the unfinished file. After Close it does nothing.
func (w *Writer) Abort() error {
	f := w.file
	if w.file = nil; f == nil {
		return nil
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// WriteInts writes a one-dimensional array of int64, in one step.
func WriteInts(path string, v []int64) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		if _, err := w.Write(encodeDictionary(fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }", len(v)), 0)); err != nil {
			return err
		}
		return binary.Write(w, binary.LittleEndian, v)
	})
}
