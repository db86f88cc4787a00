//go:build !linux

package plugins

import "errors"

// reap waits for the end of the process. Unlike on Linux, the group can only be killed
// after the process is reaped.
func (p *process) reap() {
	_ = p.cmd.Wait()
	p.forget()
}

// residentBytes is not supported on this system.
func residentBytes(int) (int64, error) { return 0, errors.ErrUnsupported }
