package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// Write writes f, float32 tensors as F32 and integers as I64, in the order of their names,
// so that equal content gives equal bytes. Reading and writing a file again gives the same
// content. Write returns ErrFormat for a tensor whose data do not fill its shape, for a
// name used twice, and for a header longer than MaxHeader.
func Write(w io.Writer, f *File) error {
	entries, err := f.entries()
	if err != nil {
		return err
	}
	header, err := encodeHeader(f.Metadata, entries)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, e := range entries {
		if err := writeData(w, f, e); err != nil {
			return fmt.Errorf("writing tensor %q: %w", e.name, err)
		}
	}
	return nil
}

// entries assigns a position in the data to each tensor.
func (f *File) entries() ([]entry, error) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(f.Tensors)), maps.Keys(f.Ints))
	slices.Sort(names)
	entries := make([]entry, len(names))
	var at int64
	for i, name := range names {
		if name == metadataKey || i > 0 && name == names[i-1] {
			return nil, fmt.Errorf("%w: the tensor name %q is taken", ErrFormat, name)
		}
		e, n := entry{name: name, dtype: f32, shape: f.Tensors[name].Shape}, len(f.Tensors[name].Data)
		if ints, ok := f.Ints[name]; ok {
			e.dtype, e.shape, n = i64, ints.Shape, len(ints.Data)
		}
		e.begin, e.end = at, at+int64(n)*e.dtype.size()
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%w: tensor %q: %w", ErrFormat, name, err)
		}
		entries[i], at = e, e.end
	}
	return entries, nil
}

// encodeHeader returns the length and the JSON of the header: first __metadata__, then the
// tensors in the order of their data, padded with blanks to a multiple of 8 bytes.
func encodeHeader(metadata map[string]string, entries []entry) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 8))
	b.WriteByte('{')
	if len(metadata) > 0 {
		if err := writeMember(b, metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		if err := writeMember(b, e.name, e.header()); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	length := b.Len() - 8
	if length > MaxHeader {
		return nil, fmt.Errorf("%w: the header has %d bytes, at most %d", ErrFormat, length, MaxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(length))
	return b.Bytes(), nil
}

// headerEntry is the JSON form of an entry.
type headerEntry struct {
	DType   dtype    `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

func (e entry) header() headerEntry {
	shape := e.shape
	if shape == nil {
		shape = []int{}
	}
	return headerEntry{DType: e.dtype, Shape: shape, Offsets: [2]int64{e.begin, e.end}}
}

// writeMember appends a key and its value to a JSON object.
func writeMember(b *bytes.Buffer, key string, value any) error {
	k, err := json.Marshal(key)
	if err != nil {
		return err
	}
	v, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if b.Len() > 9 {
		b.WriteByte(',')
	}
	b.Write(k)
	b.WriteByte(':')
	b.Write(v)
	return nil
}

func writeData(w io.Writer, f *File, e entry) error {
	if e.dtype == i64 {
		return writeNumbers(w, f.Ints[e.name].Data)
	}
	return writeNumbers(w, f.Tensors[e.name].Data)
}

func writeNumbers[T float32 | int64](w io.Writer, v []T) error {
	if b, ok := mmap.AsBytes(v); ok {
		_, err := w.Write(b)
		return err
	}
	return binary.Write(w, binary.LittleEndian, v)
}
