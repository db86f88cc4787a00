// Package bomb tests readers of what others made: a small input that declares a great
// size is refused, by name, before memory of that size is taken.
package bomb

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// Most is what reading an input of some kilobytes may allocate, in bytes, all together.
const Most = 64 << 20

// Refused fails the test where read returns no error that is want and holds all of the
// texts, or has allocated more than Most. Nothing else may run meanwhile.
func Refused(t testing.TB, name string, read func() error, want error, texts ...string) {
	t.Helper()
	err := Bounded(t, name, read)
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", name, err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %.300q, want %q in it", name, err, text)
		}
	}
}

// Bounded returns what read does, and fails the test where it has allocated more than Most.
func Bounded(t testing.TB, name string, read func() error) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := read()
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > Most {
		t.Errorf("%s: reading it took %d MiB, at most %d", name, taken>>20, Most>>20)
	}
	return err
}
