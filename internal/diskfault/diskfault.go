// Package diskfault tells what a file system does, which may end by itself, from
// what is wrong with a file or with who asks for it.
package diskfault

import (
	"errors"
	"slices"
	"syscall"
)

// Is reports whether err is of a file system that is full, over a quota or a limit of
// the length of a file, read-only or broken.
func Is(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS, syscall.EIO},
		func(target error) bool { return errors.Is(err, target) })
}
