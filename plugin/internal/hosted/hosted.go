// Package hosted starts a plugin's process as a host, and makes sure that it ends: at the
// latest with its host, and even if it hangs.
package hosted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin"
)

// Options describes the process. Command, Handshake and Set are required.
type Options struct {
	Command   []string
	Env       []string // complete environment of the process
	Handshake goplugin.HandshakeConfig
	Set       string // name of its services
	Protocol  int    // newest protocol version that the host supports
	// StartTimeout limits the time until the process reports its address. 0 means ten
	// seconds.
	StartTimeout time.Duration
	// Stderr, if not nil, receives the process's output in lines, from one goroutine at a
	// time.
	Stderr io.Writer
}

// Process is a running plugin process. Its methods are safe for concurrent use.
type Process struct {
	Conn    *grpc.ClientConn
	Version int // negotiated protocol version
	PID     int
	// Done is closed when the process has ended.
	Done <-chan struct{}

	client *goplugin.Client
	cmd    *exec.Cmd
}

// Start starts a process and performs the handshake. It returns plugin.ErrVersion if the
// two have no protocol version in common, the context's error, or, if the process ended, an
// error with its last output.
func Start(ctx context.Context, o Options) (*Process, error) {
	if o.StartTimeout == 0 {
		o.StartTimeout = 10 * time.Second
	}
	cmd := exec.Command(o.Command[0], o.Command[1:]...) //nolint:noctx,gosec // it outlives the call, and is the caller's to choose
	cmd.Env, cmd.SysProcAttr = o.Env, attributes()
	output := &tail{to: o.Stderr}
	set := &connection{}
	client := goplugin.NewClient(&goplugin.ClientConfig{
		Cmd: cmd, HandshakeConfig: o.Handshake, VersionedPlugins: versions(o, set),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, AutoMTLS: true, SkipHostEnv: true,
		StartTimeout: o.StartTimeout,
		// With a logger go-plugin parses lines of JSON, and panics on some of them.
		Logger: hclog.NewNullLogger(), Stderr: output, SyncStdout: output, SyncStderr: output,
	})
	p := &Process{client: client, cmd: cmd}
	if err := p.start(ctx); err != nil {
		if err := plugin.VersionError(err, o.Protocol); errors.Is(err, plugin.ErrVersion) {
			return nil, fmt.Errorf("%s: %w", o.Command[0], err)
		}
		return nil, fmt.Errorf("%s: %w%s", o.Command[0], err, output.quote())
	}
	protocol, err := client.Client()
	if err == nil {
		_, err = protocol.Dispense(o.Set)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("%s: %w%s", o.Command[0], err, output.quote())
	}
	p.Conn, p.Done, p.Version, p.PID = set.conn, set.ended, client.NegotiatedVersion(), cmd.Process.Pid
	return p, nil
}

// start performs the handshake on a thread that lives as long as the process, because Linux
// kills child processes when the thread that started them ends.
func (p *Process) start(ctx context.Context) error {
	shaken := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		_, err := p.client.Start()
		shaken <- err
		if err == nil {
			p.await()
		}
	}()
	select {
	case err := <-shaken:
		return err
	case <-ctx.Done():
		go func() {
			if <-shaken == nil {
				p.kill()
			}
		}()
		return ctx.Err()
	}
}

// await waits until the process has ended.
func (p *Process) await() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !p.client.Exited() {
		<-tick.C
	}
}

// Close asks the process to end. After grace, it kills the process and its descendants. It
// returns when the process is gone.
func (p *Process) Close(grace time.Duration) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.client.Kill() // on its own it would wait for ever for a process that hangs
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
		p.Signal()
		<-gone
	}
	if p.Conn != nil {
		_ = p.Conn.Close()
	}
}

// kill kills the process and reaps it.
func (p *Process) kill() {
	p.Signal()
	p.client.Kill()
}

// Signal kills the process and its descendants without waiting. Done is closed when the
// process is gone.
func (p *Process) Signal() {
	if p.cmd.Process != nil && !p.client.Exited() {
		killGroup(p.cmd.Process)
	}
}

func versions(o Options, set *connection) map[int]goplugin.PluginSet {
	all := plugin.Versions(o.Protocol, plugin.Service{Name: o.Set})
	for version := range all {
		all[version] = goplugin.PluginSet{o.Set: set}
	}
	return all
}

// connection receives a plugin's connection and a channel that is closed when its process
// has ended.
type connection struct {
	goplugin.NetRPCUnsupportedPlugin

	conn  *grpc.ClientConn
	ended <-chan struct{}
}

var _ goplugin.GRPCPlugin = (*connection)(nil)

func (*connection) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host serves nothing")
}

func (c *connection) GRPCClient(ctx context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	c.conn, c.ended = conn, ctx.Done()
	return conn, nil
}

// tail forwards output and remembers the end of it.
type tail struct {
	mu   sync.Mutex
	to   io.Writer
	last []byte
}

// tailBytes is how many bytes of output an error quotes.
const tailBytes = 2 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	if t.to == nil {
		return len(b), nil
	}
	return t.to.Write(b)
}

// quote returns the remembered output, formatted to follow an error text.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(bytes.TrimSpace(t.last)), "?"))
	if text == "" {
		return ""
	}
	return "; it wrote: " + text
}
