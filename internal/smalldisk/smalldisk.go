// Package smalldisk creates very small file systems, for tests that fill one.
package smalldisk

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// New creates a file system with the given number of bytes, and with room for one file per
// 4,096 bytes. The returned path works in this process, and in others as long as this one
// lives. The file system is mounted nowhere, so it disappears however the test ends. New
// returns errors.ErrUnsupported, or why the machine does not permit it.
func New(t testing.TB, bytes int64) (path string, err error) {
	t.Helper()
	root, err := mount(bytes)
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = root.Close() })
	return root.Name(), nil
}

// Fill writes a file until the file system is full, and returns the file's path.
func Fill(t testing.TB, disk string) (filler string) {
	t.Helper()
	filler = filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 16; size > 0; { // finally byte by byte, so that no page has room left
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	_ = f.Close()
	return filler
}

// FillNames creates empty files until the file system allows no more, and returns their
// folder.
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
