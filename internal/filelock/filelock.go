// Package filelock protects files that only one process at a time may write.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld: another process, or another holder in this process, has the lock.
var ErrHeld = errors.New("another process holds the lock")

// Lock is held until Close or until the process ends.
type Lock struct{ file *os.File }

// Close releases the lock. The file stays: removing it could remove a file that another
// process has just locked.
func (l *Lock) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
