// Package smalldisk makes file systems of few bytes, for tests that fill one.
package smalldisk

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// New makes a file system of that many bytes, with a file for each 4096 of them, and returns its path, for this process
// and for others while it lives. It is mounted nowhere, so that nothing of it is left
// however the test ends. It returns errors.ErrUnsupported, or why the machine does not
// permit it.
func New(t testing.TB, bytes int64) (path string, err error) {
	t.Helper()
	root, err := mount(bytes)
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = root.Close() })
	return root.Name(), nil
}

// Fill writes a file to a file system until nothing more fits, and returns its path.
func Fill(t testing.TB, disk string) (filler string) {
	t.Helper()
	filler = filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 16; size > 0; { // then by the byte, so that no page has room
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	_ = f.Close()
	return filler
}

// FillNames makes empty files until there can be no more of them, and returns their folder.
func FillNames(t testing.TB, disk string) (filler string) {
	t.Helper()
	filler = filepath.Join(disk, "fillers")
	err := os.Mkdir(filler, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; err == nil; n++ {
		err = os.WriteFile(filepath.Join(filler, strconv.Itoa(n)), nil, 0o600)
	}
	return filler
}
