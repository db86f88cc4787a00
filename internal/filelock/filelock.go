// Package filelock protects files that only one process at a time may write.
package filelock

import (
	"errors"
	"io/fs"
	"os"
)

// ErrHeld: another process, or another holder in this process, has the lock.
var ErrHeld = errors.New("another process holds the lock")

// Lock is held until Close or until the process ends.
type Lock struct{ file *os.File }

// Close releases the lock. The file stays. Only a holder may remove the file, before it closes
// the lock: then a process that waits for the lock makes a new file.
func (l *Lock) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// IsHeld reports whether a process has taken the lock at path. It returns false for a file that
// does not exist. While IsHeld looks, Take can fail with ErrHeld.
func IsHeld(path string) (bool, error) {
	lock, err := Share(path)
	switch {
	case err == nil:
		return false, lock.Close()
	case errors.Is(err, ErrHeld):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, err
}
