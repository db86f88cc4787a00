package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/likenessdb/likeness/internal/half"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// dtype is a number type, as the header names it.
type dtype string

const (
	f64  dtype = "F64"
	f32  dtype = "F32"
	f16  dtype = "F16"
	bf16 dtype = "BF16"
	i64  dtype = "I64"
	i32  dtype = "I32"
)

// size returns the length of a number in bytes, or 0 for an unknown type.
func (t dtype) size() int64 {
	switch t {
	case f64, i64:
		return 8
	case f32, i32:
		return 4
	case f16, bf16:
		return 2
	default:
		return 0
	}
}

// chunk is the number of bytes read at a time. It is a multiple of every number's size.
const chunk = 1 << 16

// load reads the tensor that e describes from r.
func (f *File) load(e entry, r io.Reader) error {
	if e.dtype == i64 || e.dtype == i32 {
		data := make([]int64, e.elements())
		f.Ints[e.name] = Ints{Shape: e.shape, Data: data}
		return decode(e, r, func(i int, b []byte) error {
			if e.dtype == i64 {
				data[i] = int64(binary.LittleEndian.Uint64(b))
			} else {
				data[i] = int64(int32(binary.LittleEndian.Uint32(b)))
			}
			return nil
		})
	}
	data := make([]float32, e.elements())
	f.Tensors[e.name] = tensor.Tensor{Shape: e.shape, Data: data}
	return decode(e, r, func(i int, b []byte) error {
		data[i] = decodeFloat(e.dtype, b)
		if x := float64(data[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			return notFinite(e, i, b)
		}
		return nil
	})
}

// decode calls put with the bytes of every number of the tensor.
func decode(e entry, r io.Reader, put func(i int, b []byte) error) error {
	size := int(e.dtype.size())
	buf := make([]byte, min(chunk, e.end-e.begin))
	for i, n := 0, e.elements(); i < n; {
		part := buf[:min(len(buf), (n-i)*size)]
		if _, err := io.ReadFull(r, part); err != nil {
			return fmt.Errorf("reading tensor %q: %w", e.name, err)
		}
		for ; len(part) > 0; part, i = part[size:], i+1 {
			if err := put(i, part[:size]); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeFloat decodes a floating-point number.
func decodeFloat(t dtype, b []byte) float32 {
	switch t {
	case f64:
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case f32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case f16:
		return half.Float16(binary.LittleEndian.Uint16(b))
	default:
		return half.BFloat16(binary.LittleEndian.Uint16(b))
	}
}

// notFinite returns the error for a number that is NaN, infinite, or too large for float32.
func notFinite(e entry, i int, b []byte) error {
	var value any = decodeFloat(e.dtype, b)
	if e.dtype == f64 {
		value = math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return fmt.Errorf("%w: tensor %q: element %d is %v; every number must be finite and within ±%g",
		ErrFormat, e.name, i, value, math.MaxFloat32)
}
