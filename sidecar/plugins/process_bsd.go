//go:build unix && !linux

package plugins

import "syscall"

// groupOfItsOwn: the terminal's signals do not reach it. The SDK sees to it that it
// ends with its parent.
func groupOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
