package plugin

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// littleEndian reports whether this machine stores floats in the byte order of the wire.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// appendVector appends v in little-endian order.
func appendVector(b []byte, v []float32) []byte {
	if littleEndian {
		return append(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))...)
	}
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// floats decodes little-endian float32 numbers, without copying if the machine allows it.
func floats(b []byte) []float32 {
	first := unsafe.SliceData(b)
	if littleEndian && uintptr(unsafe.Pointer(first))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(first)), len(b)/4)
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// bytesOf returns the bytes of s without copying. They must not be modified.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// stringOf returns b as a string without copying. b must not be modified while the string
// is used.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
