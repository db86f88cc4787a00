//go:build linux

package largepages

import "golang.org/x/sys/unix"

// Size is the size of a large page on amd64, and on arm64 with pages of 4 KiB.
const Size = 2 << 20

func advise(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
