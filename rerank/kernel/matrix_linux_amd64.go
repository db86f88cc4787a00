//go:build !noasm

package kernel

import (
	"sync"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// hasMatrixUnit reports whether the processor has AMX for bfloat16 and the system lets this
// process use it. Linux saves the unit's registers only for processes that request it.
var hasMatrixUnit = sync.OnceValue(func() bool {
	const (
		askPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		matrixData    = 18     // XFEATURE_XTILEDATA
	)
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return false
	}
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, askPermission, matrixData, 0)
	return err == 0
})
