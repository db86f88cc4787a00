//go:build unix && !linux

package plugins

import "syscall"

// groupOfItsOwn puts the process into its own group, so that signals of the terminal do not
// reach it. The plugin SDK makes the process end with its parent.
func groupOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
