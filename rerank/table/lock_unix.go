//go:build unix

package table

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileLock keeps other processes away; the system gives it back when this one ends.
type fileLock struct{ file *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process has it live (%s): %w", path, err), f.Close())
	}
	return &fileLock{f}, nil
}

// Close gives the lock back. The file stays: who removed it could remove the one
// that another process has just locked.
func (l *fileLock) Close() error { return l.file.Close() }
