package plugin

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// littleEndian: this machine has floats in memory as they cross the connection.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// appendVector appends v, little-endian.
func appendVector(b []byte, v []float32) []byte {
	if littleEndian {
		return append(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))...)
	}
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// floats reads b as float32, little-endian, in place where the machine can.
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

// bytesOf is s as bytes that must not be written to.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// stringOf is b as a string, while nobody writes to b.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
