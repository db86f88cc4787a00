//go:build unix && !linux

package hosted

import "syscall"

// attributes puts the process into its own process group. The process itself notices when
// its host is gone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
