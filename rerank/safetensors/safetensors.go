// Package safetensors reads and writes files of named tensors in the
// safetensors format: the length of a JSON header (8 bytes, little-endian), the
// header, and the numbers it points into.
//
// A file is trusted with nothing. Lengths are checked against the file's size
// before anything is allocated, tensors must fill the data without a gap, an
// overlap or a rest, names must not repeat, and floating-point numbers must be
// finite and within float32. Reading allocates at most twice the file's size,
// beside the header.
package safetensors

import (
	"errors"
	"fmt"
	"io"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrFormat: the bytes are not a safetensors file, are damaged, or hold a
// number that is not finite.
var ErrFormat = errors.New("safetensors file is not valid")

// File is the content of a safetensors file. It is read-only once made.
type File struct {
	// Metadata is the free text of the header (__metadata__).
	Metadata map[string]string
	// Tensors are the tensors of F64, F32, F16 and BF16, as float32.
	Tensors tensor.Set
	// Ints are the tensors of I64 and I32.
	Ints map[string]Ints
}

// Ints is a dense row-major array of integers.
type Ints struct {
	Shape []int
	Data  []int64
}

// Int returns an integer tensor that must exist and have the shape. A dimension
// of −1 matches any. It returns tensor.ErrShape.
func (f *File) Int(name string, shape ...int) (Ints, error) {
	t, ok := f.Ints[name]
	if !ok {
		return Ints{}, fmt.Errorf("%w: integer tensor %q is missing, want shape %v", tensor.ErrShape, name, shape)
	}
	if _, err := (tensor.Set{name: {Shape: t.Shape}}).Get(name, shape...); err != nil {
		return Ints{}, err
	}
	return t, nil
}

// ReadFile reads a file. It returns ErrFormat or the system's error.
func ReadFile(path string) (*File, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := Read(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// Read reads the size bytes of r. It returns ErrFormat, or the error of r.
func Read(r io.ReaderAt, size int64) (*File, error) {
	entries, metadata, start, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	f := &File{Metadata: metadata, Tensors: tensor.Set{}, Ints: map[string]Ints{}}
	for _, e := range entries {
		if err := f.load(e, io.NewSectionReader(r, start+e.begin, e.end-e.begin)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// WriteFile writes a file in one step: path has its old content or all of f.
func WriteFile(path string, f *File) error {
	return atomicfile.Write(path, func(w io.Writer) error { return Write(w, f) })
}
