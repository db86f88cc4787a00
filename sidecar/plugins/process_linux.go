package plugins

import (
	"errors"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// groupOfItsOwn puts the process into its own group, so that signals of the terminal do not
// reach it and its descendants can be killed with it. The system kills it when the thread
// that started it ends.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the process. It kills the group before the process is reaped,
// while the group's id cannot belong to others.
func (p *process) reap() {
	for errors.Is(unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	p.forget()
	_ = p.cmd.Wait()
}

// residentBytes returns the resident memory of a process.
func residentBytes(pid int) (int64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := proc.Stat()
	return int64(s.ResidentMemory()), err
}
