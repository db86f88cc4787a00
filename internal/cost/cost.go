// Package cost tests that reading an input takes memory in proportion to its length.
package cost

import (
	"runtime"
	"testing"
)

// Bound is what a reader may allocate, all together: Fixed bytes, and PerByte for each byte
// of its input.
type Bound struct{ Fixed, PerByte uint64 }

// lengths are the lengths of the inputs that Linear makes, each twice the one before.
var lengths = []int{64 << 10, 128 << 10, 256 << 10}

// Linear reads inputs of a family, each about twice as long as the one before, and fails the
// test where one allocates more than its bound, or beyond Fixed much more than twice what
// the one before did. Nothing else may run meanwhile.
func Linear(t testing.TB, family string, bound Bound, input func(length int) []byte, read func(input []byte)) {
	t.Helper()
	var before uint64
	for _, length := range lengths {
		text := input(length)
		allocated := Allocated(func() { read(text) })
		if most := bound.Fixed + bound.PerByte*uint64(len(text)); allocated > most {
			t.Errorf("%s: %d bytes were allocated for an input of %d, at most %d", family, allocated, len(text), most)
			return
		}
		if before > 0 && allocated > before*5/2+bound.Fixed {
			t.Errorf("%s: %d bytes were allocated for an input of %d, %d for one half as long", family, allocated, len(text), before)
			return
		}
		before = allocated
	}
}

// Allocated returns how many bytes the process allocates while f runs.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Repeated makes an input of about the given length: prefix, as many parts as fit with commas
// between them, and suffix. part makes the part of a number.
func Repeated(prefix string, part func(i int) string, suffix string) func(length int) []byte {
	return func(length int) []byte {
		b := append(make([]byte, 0, length+64), prefix...)
		for i := 0; len(b)+len(suffix) < length; i++ {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, part(i)...)
		}
		return append(b, suffix...)
	}
}
