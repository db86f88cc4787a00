package plugins

import (
	"errors"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// groupOfItsOwn: the terminal's signals do not reach it, and what it starts ends with
// it; it ends with the thread that started it.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end. Until the process is reaped its number is taken, so that no
// other group is killed.
func (p *process) reap() {
	for errors.Is(unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	p.forget()
	_ = p.cmd.Wait()
}

// residentBytes is the resident memory of a process.
func residentBytes(pid int) (int64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := proc.Stat()
	return int64(s.ResidentMemory()), err
}
