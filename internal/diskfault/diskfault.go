// Package diskfault distinguishes faults of a file system, which may go away by themselves,
// from errors of a file or its user.
package diskfault

import (
	"errors"
	"slices"
	"syscall"
)

// Is reports whether err means that a file system is full, over a quota, limited in file
// length, read-only, or failing.
func Is(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS, syscall.EIO},
		func(target error) bool { return errors.Is(err, target) })
}
