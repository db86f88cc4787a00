// Package disk defines the file operations on which durable files depend, so that tests can
// substitute a disk that loses power (package powerloss).
//
// Only operations that change something are included. Files are read through package os.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// Disk creates, renames and removes files. Paths are as in package os.
type Disk interface {
	// OpenFile opens a file as os.OpenFile does.
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	// CreateTemp creates a file as os.CreateTemp does.
	CreateTemp(dir, pattern string) (File, error)
	// Rename renames a file as os.Rename does. The new name is durable after SyncDir.
	Rename(from, to string) error
	// Remove removes a file as os.Remove does. The removal is durable after SyncDir.
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// File is an open file. *os.File is one.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Truncate(size int64) error
	// Sync makes the content durable, but not the name.
	Sync() error
}

// OS is the operating system's Disk.
type OS struct{}

var _ Disk = OS{}

// OrOS returns d, or the operating system's Disk if d is nil.
func OrOS(d Disk) Disk {
	if d == nil {
		return OS{}
	}
	return d
}

// OpenFile implements Disk.
func (OS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	return opened(os.OpenFile(path, flag, perm))
}

// CreateTemp implements Disk.
func (OS) CreateTemp(dir, pattern string) (File, error) { return opened(os.CreateTemp(dir, pattern)) }

// opened avoids returning a nil *os.File as a File that is not nil.
func opened(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Rename implements Disk.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Disk.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements Disk.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
