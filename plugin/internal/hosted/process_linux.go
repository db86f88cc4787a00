package hosted

import "syscall"

// attributes: the process leads a group of its own, and is killed when the thread that
// started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
