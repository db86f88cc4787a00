// Package regular opens regular files only. Opening a pipe would block until it has a
// writer, and a device has no size.
package regular

import (
	"errors"
	"fmt"
	"os"
)

// ErrNotRegular: the path names a directory, pipe, socket or device.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a regular file for reading and returns its size. It returns ErrNotRegular or
// the system's error.
func Open(path string) (*os.File, int64, error) {
	return open(path, os.Stat, os.Open)
}

// OpenIn is Open for a name inside the directory root.
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
