package safetensors

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Matrix is a two-dimensional tensor of a file. It is read-only, safe for concurrent use,
// and must not be used after Close.
type Matrix struct {
	rerank.Matrix
	file *mmap.Map // nil if Data is a copy
}

// OpenMatrix opens a two-dimensional tensor of a file. An empty name selects the only
// tensor. F32 numbers stay on disk and are mapped; F64, F16 and BF16 are converted to
// float32 in memory. Unlike Read, it does not check that numbers are finite: use
// rerank.CheckFinite. It returns ErrFormat, tensor.ErrShape or the system's error.
func OpenMatrix(path, name string) (*Matrix, error) {
	file, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening matrix: %w", err)
	}
	m, err := decodeMatrix(file, name)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
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

// Close unmaps the file if it is mapped. A second Close does nothing.
func (m *Matrix) Close() error {
	m.Matrix = rerank.Matrix{}
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

func decodeMatrix(file *mmap.Map, name string) (*Matrix, error) {
	entries, _, start, err := readHeader(bytes.NewReader(file.Bytes), int64(len(file.Bytes)))
	if err != nil {
		return nil, err
	}
	e, err := chooseTensor(entries, name)
	if err != nil {
		return nil, err
	}
	m := &Matrix{Matrix: rerank.Matrix{Rows: e.shape[0], Cols: e.shape[1]}}
	data := file.Bytes[start+e.begin : start+e.end]
	if e.dtype == f32 {
		var aliased bool
		if m.Data, aliased = mmap.View[float32](data); aliased {
			m.file = file
			return m, nil
		}
	}
	size := int(e.dtype.size())
	m.Data = make([]float32, e.elements())
	for i := range m.Data {
		m.Data[i] = decodeFloat(e.dtype, data[i*size:])
	}
	return m, nil
}

// chooseTensor returns the entry with the given name and checks that it can be a matrix.
func chooseTensor(entries []entry, name string) (entry, error) {
	var names []string
	for _, e := range entries {
		names = append(names, e.name)
	}
	i := slices.Index(names, name)
	switch {
	case name == "" && len(entries) == 1:
		i = 0
	case name == "":
		return entry{}, fmt.Errorf("%w: the file has %d tensors (%s); name one of them", tensor.ErrShape, len(names), formatNames(names))
	case i < 0:
		return entry{}, fmt.Errorf("%w: there is no tensor %q; there are %s", tensor.ErrShape, name, formatNames(names))
	}
	switch e := entries[i]; {
	case len(e.shape) != 2:
		return entry{}, fmt.Errorf("%w: tensor %q has shape %v, want two dimensions, one row a vector", tensor.ErrShape, e.name, e.shape)
	case e.dtype == i64 || e.dtype == i32:
		return entry{}, fmt.Errorf("%w: tensor %q has type %s, want floating-point numbers", tensor.ErrShape, e.name, e.dtype)
	default:
		return e, nil
	}
}

// formatNames formats the first few names, for messages.
func formatNames(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("%q and %d more", names[:most], len(names)-most)
	}
	return strings.Trim(fmt.Sprintf("%q", names), "[]")
}
