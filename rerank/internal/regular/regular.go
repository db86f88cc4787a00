// Package regular opens regular files only: opening a pipe would wait for its
// writer, and a device has no size.
package regular

import (
	"errors"
	"fmt"
	"os"
)

// ErrNotRegular: the path names a directory, pipe, socket or device.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a file for reading and returns its size. It returns ErrNotRegular
// or the system's error.
func Open(path string) (*os.File, int64, error) {
	return open(path, os.Stat, os.Open)
}

// OpenIn is Open for a name in a directory, which it cannot leave.
func OpenIn(root *os.Root, name string) (*os.File, int64, error) {
	return open(name, root.Stat, root.Open)
}

func open(path string, stat func(string) (os.FileInfo, error), openFile func(string) (*os.File, error)) (*os.File, int64, error) {
	info, err := stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	f, err := openFile(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}
