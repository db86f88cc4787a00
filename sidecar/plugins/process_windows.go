package plugins

import (
	"io/fs"
	"os"
	"syscall"
)

// groupOfItsOwn: there are no groups here that one signal ends.
func groupOfItsOwn() *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
		_ = p.Release()
	}
}

// ours is left to the system's access rights.
func isOurs(fs.FileInfo) bool { return true }
