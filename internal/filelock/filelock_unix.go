//go:build unix

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Take locks the file at path, creating it if necessary. It returns ErrHeld, or the error
// of the file.
func Take(path string) (*Lock, error) { return lock(path, os.O_RDWR|os.O_CREATE, unix.LOCK_EX) }

// Share keeps every process from taking the lock at path, while others may share it. It returns
// ErrHeld if a process has taken the lock, or the error of the file, which must exist.
func Share(path string) (*Lock, error) { return lock(path, os.O_RDONLY, unix.LOCK_SH) }

func lock(path string, open, how int) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, open, 0o644)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrHeld
		}
		var isCurrent bool
		if err == nil {
			isCurrent, err = isAt(f, path)
		}
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
		case isCurrent:
			return &Lock{f}, nil
		}
		// The holder removed the file between the opening and the locking here. A lock on that
		// file keeps nobody out.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// isAt reports whether the file at path is f.
func isAt(f *os.File, path string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(own, there), err
}
