// Package npy reads and writes matrices in NumPy's .npy format, versions 1 to 3
// (numpy.lib.format). It supports little-endian numbers in C order.
//
// A length in a file is checked against the file's size before memory is allocated for it.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/half"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// ErrFormat: the file is not a .npy file of the required type and shape, or is damaged.
var ErrFormat = errors.New("npy file is not valid")

// Matrix is a matrix read from a file. It is read-only, safe for concurrent
// use, and must not be used after Close.
type Matrix struct {
	rerank.Matrix
	file *mmap.Map // nil if Data is a copy
}

// Open opens a file with a two-dimensional array. float32 numbers stay on disk and are
// mapped. float16 and float64 numbers are converted to float32 in memory, where a float64
// that is too large becomes infinite. Open does not check the values: use
// rerank.CheckFinite. It returns ErrFormat or the system's error.
func Open(path string) (*Matrix, error) { return open(path, false) }

// OpenVectors does what Open does, and reads a one-dimensional array as a single row.
func OpenVectors(path string) (*Matrix, error) { return open(path, true) }

func open(path string, one bool) (*Matrix, error) {
	file, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening matrix: %w", err)
	}
	m, err := decodeMatrix(file, one)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	if m.file == nil {
		if err := file.Close(); err != nil {
			return nil, fmt.Errorf("closing %s: %w", path, err)
		}
	}
	return m, nil
}

// Forget gives the memory of a mapped file back to the system. Its rows are read from the file again when
// they are next used.
func (m *Matrix) Forget() {
	if m.file != nil {
		m.file.ForgetAll()
	}
}

// Close unmaps the file if it is mapped.
func (m *Matrix) Close() error {
	m.Matrix = rerank.Matrix{}
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// decodeMatrix reads a two-dimensional array, and with one also a single vector.
func decodeMatrix(file *mmap.Map, one bool) (*Matrix, error) {
	h, data, err := parse(file.Bytes)
	if err != nil {
		return nil, err
	}
	if one && len(h.shape) == 1 {
		h.shape = []int{1, h.shape[0]}
	}
	if len(h.shape) != 2 {
		return nil, fmt.Errorf("the array has shape %v; save a two-dimensional one, one row a vector", h.shape)
	}
	m := &Matrix{Matrix: rerank.Matrix{Rows: h.shape[0], Cols: h.shape[1]}}
	switch h.descr {
	case "<f4":
		var aliased bool
		if m.Data, aliased = mmap.View[float32](data); aliased {
			m.file = file
			return m, nil
		}
		m.Data = make([]float32, len(data)/4)
		for i := range m.Data {
			m.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case "<f2":
		m.Data = make([]float32, len(data)/2)
		for i := range m.Data {
			m.Data[i] = half.Float16(binary.LittleEndian.Uint16(data[2*i:]))
		}
	case "<f8":
		m.Data = make([]float32, len(data)/8)
		for i := range m.Data {
			m.Data[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		}
	default:
		return nil, fmt.Errorf("numbers have type %q, want \"<f4\", \"<f2\" or \"<f8\"; save the array with astype('<f4')", h.descr)
	}
	return m, nil
}

// ReadInts reads a file with a one-dimensional array of int64 or int32, such as row ids. It
// returns ErrFormat or the system's error.
func ReadInts(path string) ([]int64, error) {
	file, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening integers: %w", err)
	}
	defer file.Close()
	ints, err := decodeInts(file.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	return ints, nil
}

func decodeInts(b []byte) ([]int64, error) {
	h, data, err := parse(b)
	if err != nil {
		return nil, err
	}
	if len(h.shape) != 1 {
		return nil, fmt.Errorf("the array has shape %v, want one dimension", h.shape)
	}
	if h.descr != "<i8" && h.descr != "<i4" {
		return nil, fmt.Errorf("numbers have type %q, want \"<i8\" or \"<i4\"; save the array with astype('<i8')", h.descr)
	}
	ints := make([]int64, h.shape[0])
	for i := range ints {
		if h.descr == "<i8" {
			ints[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
		} else {
			ints[i] = int64(int32(binary.LittleEndian.Uint32(data[4*i:])))
		}
	}
	return ints, nil
}

// Write writes a float32 matrix as version 1.0, in one step: path keeps its old content
// until the new content is complete.
func Write(path string, m rerank.Matrix) error {
	if len(m.Data) != m.Rows*m.Cols {
		return fmt.Errorf("%w: %s: %d numbers do not fill %d x %d", ErrFormat, path, len(m.Data), m.Rows, m.Cols)
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		if _, err := w.Write(encodeHeader(m.Rows, m.Cols, align)); err != nil {
			return err
		}
		return writeFloats(w, m.Data)
	})
}

func writeFloats(w io.Writer, v []float32) error {
	if b, ok := mmap.AsBytes(v); ok {
		_, err := w.Write(b)
		return err
	}
	return binary.Write(w, binary.LittleEndian, v)
}
