//go:build !unix

package hosted

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { _ = p.Kill() }
