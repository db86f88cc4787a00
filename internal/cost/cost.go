// Package cost tests that reading an input allocates memory in proportion to its length.
package cost

import (
	"runtime"
	"testing"

	"github.com/likenessdb/likeness/internal/race"
)

// Bound limits the total allocation of a reader: Fixed bytes, plus PerByte bytes for each
// byte of input.
type Bound struct{ Fixed, PerByte uint64 }

// short and long are the lengths of the inputs that Linear generates.
const short, long = 48 << 10, 4 * short

// Linear reads two inputs, the second four times as long. It fails the test if a reader allocates
// more than its bound, or for the second much more than four times (beyond Fixed) what it allocated
// for the first. Nothing else may run at the same time. It skips the test under the race detector, where
// reading takes minutes and has no second goroutine to race with.
func Linear(t testing.TB, family string, bound Bound, input func(length int) []byte, read func(input []byte)) {
	t.Helper()
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
	var before uint64
	for _, length := range []int{short, long} {
		text := input(length)
		allocated := Allocated(func() { read(text) })
		if most := bound.Fixed + bound.PerByte*uint64(len(text)); allocated > most {
			t.Errorf("%s: %d bytes were allocated for an input of %d, at most %d", family, allocated, len(text), most)
			return
		}
		if before > 0 && allocated > before*5+bound.Fixed {
			t.Errorf("%s: %d bytes were allocated for an input of %d, %d for a quarter of it", family, allocated, len(text), before)
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

// Repeated returns a function that makes an input of about the given length: prefix, as
// many parts as fit, separated by commas, and suffix. part returns the i-th part.
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
