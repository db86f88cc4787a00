//go:build unix

package plugins

import (
	"io/fs"
	"os"
	"syscall"
)

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// isOurs reports whether a file belongs to the current user.
func isOurs(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
