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

// drain is how long the output of a process is read after its end: a child of its own
// may hold the pipe open.
const drain = 100 * time.Millisecond

// errKilled: the process was to end before it began.
var errKilled = errors.New("killed before it was started")

// process is an operating system's process in a group of its own, as go-plugin runs one.
type process struct {
	cmd    *exec.Cmd
	stdout *io.PipeReader
	stderr *lines
	exited chan struct{} // closed when it is reaped and its output read

	mu     sync.Mutex
	pid    int // 0 before the start
	killed bool
	reaped bool // its number may be another's
	err    error
}

var _ runner.Runner = (*process)(nil)

// newProcess describes a process; stderr gets what it says before go-plugin's own
// stream begins, and what its runtime says later.
func newProcess(path, argv0, dir string, args []string, stderr *lines) *process {
	stdout, w := io.Pipe()
	p := &process{stdout: stdout, stderr: stderr, exited: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path, Args: append([]string{argv0}, args...), Dir: dir,
		Stdout: w, Stderr: stderr, WaitDelay: drain, SysProcAttr: groupOfItsOwn(),
	}
	return p
}

// Start implements runner.Runner. The thread that starts the process stays until it
// ends: on Linux the process is killed when that thread is gone, so with the host.
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

// forget ends what is left of the group, whose number is nobody's from here on.
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

// lastWords adds what the process said last to an error of it.
func (p *process) lastWords(err error) error {
	if last := p.stderr.lastLine(); last != "" {
		return fmt.Errorf("%w; its last words: %s", err, last)
	}
	return err
}

// cause is how the process ended, after exited.
func (p *process) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// kill ends the process and its group, now or as soon as it would begin.
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

// Stdout implements runner.Runner: the line of the handshake is read there.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner. The lines go to the log without go-plugin, which
// would show plain text to nobody.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *process) Name() string { return p.cmd.Path }

// ID implements runner.Runner.
func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strconv.Itoa(p.pid)
}

// Diagnose implements runner.Runner; the process's last words say more.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner: both see the same files.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
