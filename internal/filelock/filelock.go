// Package filelock keeps a second process away from files that one at a time may
// write.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld says that another process, or another holder in this one, has the lock.
var ErrHeld = errors.New("another process holds the lock")

// Lock is held until Close or the end of the process, however that comes.
type Lock struct{ file *os.File }

// Close gives the lock back. The file stays: who removed it could remove the one
// that another process has just locked.
func (l *Lock) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
