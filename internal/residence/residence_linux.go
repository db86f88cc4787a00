// Package residence tells tests how much of a file is in the memory of the process.
package residence

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// OfMapped returns the bytes of a mapped file that are in the process's memory. It fails the test if the file is not
// mapped, and skips it where the kernel does not tell.
func OfMapped(t *testing.T, path string) (bytes int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, after, ok := strings.Cut(string(text), path)
	if !ok {
		t.Fatalf("%s is not mapped", path)
	}
	_, after, _ = strings.Cut(after, "Rss:")
	var kib int
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
