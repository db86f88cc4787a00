//go:build unix

package hosted

import (
	"os"
	"syscall"
)

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
