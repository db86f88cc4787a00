// Package safetensors reads and writes files of named tensors in the safetensors format:
// the length of a JSON header (8 bytes, little-endian), the header, and the numbers to
// which it refers.
//
// Files are not trusted. Lengths are checked against the file's size before memory is
// allocated. Tensors must fill the data without gaps, overlaps or trailing bytes, names
// must be unique, and floating-point numbers must be finite and fit float32. Besides the
// header, reading allocates at most twice the file's size.
package safetensors

import (
	"errors"
	"fmt"
	"io"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/rerank/internal/regular"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// ErrFormat: the bytes are not a safetensors file, are damaged, or contain a number that is
// not finite.
var ErrFormat = errors.New("safetensors file is not valid")

// File is the content of a safetensors file. It is read-only once built.
type File struct {
	// Metadata is the header's free text (__metadata__).
	Metadata map[string]string
	// Tensors holds the tensors of type F64, F32, F16 and BF16, converted to float32.
	Tensors tensor.Set
	// Ints holds the tensors of type I64 and I32.
	Ints map[string]Ints
}

// Ints is a dense row-major array of integers.
type Ints struct {
	Shape []int
	Data  []int64
}

// Int returns an integer tensor of the given shape, in which −1 matches any dimension. It
// returns tensor.ErrShape if the tensor is missing or has another shape.
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

// Read reads a file of the given size from r. It returns ErrFormat, or the error of r.
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

// WriteFile writes a file in one step: path keeps its old content until the new content is
// complete.
func WriteFile(path string, f *File) error {
	return atomicfile.Write(path, func(w io.Writer) error { return Write(w, f) })
}
