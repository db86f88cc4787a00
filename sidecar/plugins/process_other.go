//go:build !linux

package plugins

import "errors"

// reap waits for the end; only Linux can before the process is reaped.
func (p *process) reap() {
	_ = p.cmd.Wait()
	p.forget()
}

// residentBytes is not known here.
func residentBytes(int) (int64, error) { return 0, errors.ErrUnsupported }
