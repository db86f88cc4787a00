package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// drain is how long the output of a process is still read after its end, because one of its
// children may keep the pipe open.
const drain = 100 * time.Millisecond

// errKilled: the process was killed before it was started.
var errKilled = errors.New("killed before it was started")

// process runs an operating system process in its own process group. It implements
// go-plugin's runner.
type process struct {
	cmd    *exec.Cmd
	stdout *io.PipeReader
	stderr *lines
	exited chan struct{} // closed when the process is reaped and its output is read

	mu     sync.Mutex
	pid    int // 0 before the start
	killed bool
	reaped bool // the process id may belong to another process now
	err    error
}

var _ runner.Runner = (*process)(nil)

// newProcess prepares a process. stderr receives its output before go-plugin's own stream
// begins, and later the output of its language runtime.
func newProcess(path, argv0, dir string, args []string, stderr *lines) *process {
	stdout, w := io.Pipe()
	p := &process{stdout: stdout, stderr: stderr, exited: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path, Args: append([]string{argv0}, args...), Dir: dir,
		Stdout: w, Stderr: stderr, WaitDelay: drain, SysProcAttr: groupOfItsOwn(),
	}
	return p
}

// Start implements runner.Runner. The thread that starts the process must exist as long as
// the process: Linux kills the process when that thread ends, and so also when the host
// ends.
func (p *process) Start(context.Context) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.start()
		started <- err
		if err == nil {
			p.reap()
		}
		p.finish(err)
	}()
	return <-started
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return errKilled
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	return nil
}

// forget kills what is left of the process group. Afterwards the group's id may be reused.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.pid)
	p.reaped = true
}

func (p *process) finish(err error) {
	p.stderr.flush()
	if err == nil {
		err = errors.New(p.cmd.ProcessState.String())
	}
	p.mu.Lock()
	p.err = p.lastWords(err)
	p.mu.Unlock()
	close(p.exited)
	_ = p.cmd.Stdout.(*io.PipeWriter).Close() // go-plugin asks why when it sees this
}

// lastWords adds the last line of the process's output to an error.
func (p *process) lastWords(err error) error {
	if last := p.stderr.lastLine(); last != "" {
		return fmt.Errorf("%w; its last words: %s", err, last)
	}
	return err
}

// cause returns how the process ended. It must be called after exited is closed.
func (p *process) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// kill ends the process and its group, or prevents a process that has not started yet.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.killed = true; p.pid != 0 {
		killGroup(p.pid)
	}
}

// Kill implements runner.Runner.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// Wait implements runner.Runner.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return p.cause()
}

// Stdout implements runner.Runner. go-plugin reads the handshake from it.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner. It is empty, because the output goes to the log
// directly; go-plugin would discard plain text.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *process) Name() string { return p.cmd.Path }

// ID implements runner.Runner.
func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strconv.Itoa(p.pid)
}

// Diagnose implements runner.Runner. It adds nothing, because lastWords is more useful.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner. Plugin and host see the same files.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
