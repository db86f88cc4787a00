package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyWithin = 2 * time.Minute       // long enough for a first start on a loaded machine
	stopWithin  = 10 * time.Second      // time between SIGTERM and SIGKILL
	pollEvery   = 20 * time.Millisecond // time between two checks of readiness
	logTail     = 8 << 10               // bytes of output that an error shows
)

// Server is a server process, running or killed. It is safe for concurrent use.
type Server struct {
	Name    string // "qdrant", "milvus-lite" or "milvus"
	Version string
	Address string // host:port for gRPC
	REST    string // base URL, "" if the server has no REST interface

	dir    string // directory for data, logs and work
	binary string
	args   []string
	env    []string
	ready  probe

	mu   sync.Mutex
	proc *process // nil while the server does not run
}

// process is one run of the server's binary.
type process struct {
	pid  int
	done chan struct{} // closed when the process has ended
	err  error         // result of Wait; read only after done is closed
}

// Restart starts the server with the same ports and data and waits until it is ready.
// It first stops a server that still runs.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.signalAndWait(syscall.SIGTERM); err != nil {
		return err
	}
	p, err := s.spawn()
	if err != nil {
		return fmt.Errorf("servers: %s %s: %w", s.Name, s.Version, err)
	}
	s.proc = p
	if err := s.awaitReady(ctx, p); err != nil {
		return errors.Join(
			fmt.Errorf("servers: %s %s at %s: %w; its output ends:\n%s", s.Name, s.Version, s.Address, err, s.Log()),
			s.signalAndWait(syscall.SIGKILL))
	}
	return nil
}

// Stop sends SIGTERM and waits. After 10 seconds it kills the server. The data remains
// for Restart.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signalAndWait(syscall.SIGTERM)
}

// Kill sends SIGKILL, as in a crash, and waits until the process is gone. The data
// remains for Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signalAndWait(syscall.SIGKILL)
}

// Signal sends the server a signal. SIGSTOP makes it hang and SIGCONT lets it
// continue.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("servers: %s does not run", s.Name)
	}
	return syscall.Kill(s.proc.pid, sig)
}

// PID returns the server's process id, 0 while it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Close kills the server and removes its data.
func (s *Server) Close() error {
	return errors.Join(s.Kill(), os.RemoveAll(s.dir))
}

// Log returns the end of the server's standard output and standard error, and before it what the
// server printed where it crashed.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	tail := b[max(0, len(b)-logTail):]
	if at := crash.FindIndex(b[:len(b)-len(tail)]); at != nil {
		head := b[at[0]:min(len(b)-len(tail), at[0]+logTail)]
		return strings.TrimSpace(string(head)) + "\n…\n" + strings.TrimSpace(string(tail))
	}
	return strings.TrimSpace(string(tail))
}

// crash matches the first words of a crash of a program in Go, C++ or Rust.
var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |terminate called|thread '.*' panicked)`)

func (s *Server) logPath() string { return filepath.Join(s.dir, "output.log") }

// spawn starts the process from an OS thread that lives as long as the process,
// because the kernel sends the parent-death signal when the starting thread ends.
func (s *Server) spawn() (*process, error) {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.binary, s.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	// Each server has a home of its own: milvus-lite creates ~/.cache/milvus with its first
	// collection, and fails if another milvus-lite creates it at the same moment.
	cmd.Env = append(append(os.Environ(), "HOME="+s.dir), s.env...)
	cmd.SysProcAttr = dieWithParent()
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		defer close(p.done)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
	}()
	return p, <-started
}

// awaitReady polls the server until it is ready, has ended, or the time is over.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := s.ready(ctx)
		if strings.Contains(s.Log(), withoutGRPC) {
			return errors.New("another process has its gRPC port")
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended before it was ready: %w", exitOf(p))
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func exitOf(p *process) error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// signalAndWait sends the signal, waits, and kills a process that does not react. The caller
// holds mu.
func (s *Server) signalAndWait(sig syscall.Signal) error {
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	select {
	case <-p.done: // the process ended by itself, and another process may have its id by now
		return nil
	default:
	}
	if err := syscall.Kill(p.pid, sig); err != nil {
		return fmt.Errorf("servers: %s: %w", s.Name, err)
	}
	if sig == syscall.SIGKILL {
		<-p.done
		return nil
	}
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case <-p.done:
		return nil
	case <-late.C:
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("servers: %s: %w", s.Name, err)
	}
	<-p.done
	return nil
}
