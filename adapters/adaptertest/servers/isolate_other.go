//go:build !linux

package servers

import (
	"errors"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func runIsolated() (int, error) { return 0, errors.New("network namespaces are Linux's") }

func loopbackUp() error { return nil }
