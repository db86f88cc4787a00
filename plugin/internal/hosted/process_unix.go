//go:build unix && !linux

package hosted

import "syscall"

// attributes: the process leads a group of its own. It sees itself when its host is gone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
