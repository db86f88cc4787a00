package dataset

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// vectorSpool is a matrix that grows in a temporary file, which is mapped at the end. The
// zero value is an empty spool. It is not safe for concurrent use.
type vectorSpool struct {
	dir    string
	writer *npy.Writer
	mapped *npy.Matrix
}

// appendRows adds rows. The first rows set the length that all rows must have.
func (s *vectorSpool) appendRows(m rerank.Matrix) (err error) {
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "likeness-"); err != nil {
			return err
		}
		if s.writer, err = npy.Create(s.path(), m.Cols); err != nil {
			return err
		}
	}
	return s.writer.Append(m)
}

func (s *vectorSpool) path() string { return filepath.Join(s.dir, "vectors.npy") }

// mapMatrix completes the file and maps it. The matrix is valid until Close.
func (s *vectorSpool) mapMatrix() (rerank.Matrix, error) {
	if s.writer == nil {
		return rerank.Matrix{}, nil
	}
	if err := s.writer.Close(); err != nil {
		return rerank.Matrix{}, err
	}
	mapped, err := npy.Open(s.path())
	if err != nil {
		return rerank.Matrix{}, err
	}
	s.mapped = mapped
	// The mapping keeps the content, so a killed process leaves no file behind. Where
	// a system refuses to remove a mapped file, Close removes it.
	_ = os.Remove(s.path())
	return mapped.Matrix, nil
}

// Close removes the file. A second Close does nothing.
func (s *vectorSpool) Close() error {
	var failed []error
	if s.writer != nil {
		failed = append(failed, s.writer.Abort())
	}
	if s.mapped != nil {
		failed = append(failed, s.mapped.Close())
	}
	if s.dir != "" {
		failed = append(failed, os.RemoveAll(s.dir))
	}
	*s = vectorSpool{}
	return errors.Join(failed...)
}

func hashFloats(w io.Writer, v []float32) error { return binary.Write(w, binary.LittleEndian, v) }
