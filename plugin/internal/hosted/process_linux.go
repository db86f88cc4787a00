package hosted

import "syscall"

// attributes puts the process into its own process group, and has the system kill it when
// the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
