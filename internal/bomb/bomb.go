// Package bomb tests that readers of untrusted input refuse a small input that declares a
// large size, before they allocate memory of that size.
package bomb

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// Most is how many bytes a reader may allocate in total for an input of some kilobytes.
const Most = 64 << 20

// Refused fails the test unless read returns an error that wraps want and contains all of
// the texts, and allocates at most Most bytes. Nothing else may run at the same time.
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

// Bounded returns the error of read. It fails the test if read allocates more than Most
// bytes.
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
