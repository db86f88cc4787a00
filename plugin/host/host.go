// Package host runs likeness as a child process of a Go program. It starts the process,
// calls it through go-plugin with mutual TLS, and restarts it when it fails.
//
//	sidecar, err := host.Start(ctx, host.Options{Config: "likeness.yaml"})
//	...
//	defer sidecar.Close()
//	answer, err := sidecar.Search(ctx, &likenessv1.SearchRequest{Route: "products", Query: q, K: 10})
//
// Requests and answers are the same messages of likeness.v1 as over the network. No port is
// opened.
//
// A program that uses go-plugin directly needs Handshake, plugin.Versions(ProtocolVersion,
// plugin.Service{Name: Set}) as VersionedPlugins, AutoMTLS, and the command
// `likeness plugin serve --config FILE`. It has to do three things that this package does:
// kill a process that hangs before it calls go-plugin's Kill, which would wait for it
// without limit; ask the health service, since go-plugin's Ping has no deadline; and set
// Pdeathsig from a thread that stays, so that the process ends with the program.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/internal/hosted"
)

// What host and sidecar agree on before they connect, for hosts that use go-plugin
// directly.
const (
	// ProtocolVersion is the newest version that this package supports. It also supports
	// the previous version, if there is one.
	ProtocolVersion = 1
	// CookieKey and CookieValue tell likeness that a host started it.
	CookieKey   = "LIKENESS_SIDECAR"
	CookieValue = "3e90d6b4-likeness"
	// Set names the services of likeness.v1.
	Set = "likeness"
)

// Handshake returns the go-plugin handshake.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{MagicCookieKey: CookieKey, MagicCookieValue: CookieValue}
}

var (
	// ErrClosed: the Sidecar was closed.
	ErrClosed = errors.New("the sidecar is closed")
	// ErrVersion: host and sidecar have no protocol version in common.
	ErrVersion = plugin.ErrVersion
	// ErrNotReady: the sidecar started but did not become ready for searches in time.
	ErrNotReady = errors.New("the sidecar answers no searches")
)

// Options describes the sidecar. Config is required.
type Options struct {
	// Config is the path of the sidecar's configuration.
	Config string
	// Command is the likeness binary, searched for in PATH. Empty means "likeness".
	Command string
	// Args are additional arguments of `likeness plugin serve`, such as --set
	// limits.max_k=100.
	Args []string
	// Env is the sidecar's environment. nil means the environment of this program.
	Env []string
	// StartTimeout limits the time until the sidecar answers searches. 0 means 30 s.
	StartTimeout time.Duration
	// HealthTimeout limits the answer to the health check that runs every second. After
	// that the sidecar is killed and restarted. 0 means 10 s.
	HealthTimeout time.Duration
	// Stderr, if not nil, receives the sidecar's log, line by line.
	Stderr io.Writer
	// Logger, if not nil, logs when the sidecar ends or starts.
	Logger *slog.Logger
	// Protocol replaces ProtocolVersion, for tests of two releases. 0 means
	// ProtocolVersion.
	Protocol int
}

func (o Options) withDefaults() Options {
	if o.Command == "" {
		o.Command = "likeness"
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 30 * time.Second
	}
	if o.HealthTimeout == 0 {
		o.HealthTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Protocol == 0 {
		o.Protocol = ProtocolVersion
	}
	return o
}

// Sidecar is a likeness child process, including its restarts. It is safe for concurrent
// use.
type Sidecar struct {
	options Options
	cancel  context.CancelFunc // closes the sidecar
	closed  <-chan struct{}
	ended   chan struct{} // closed when everything has stopped

	mu       sync.Mutex
	process  *hosted.Process // nil while the process is restarting
	changed  chan struct{}   // closed when process changes
	restarts int
}

// Start starts a sidecar and waits until it answers searches. It returns ErrNotReady,
// ErrVersion, the context's error, or why the process ended. The sidecar outlives ctx: it
// runs until Close or until this process ends.
func Start(ctx context.Context, o Options) (*Sidecar, error) {
	s := &Sidecar{options: o.withDefaults(), changed: make(chan struct{}), ended: make(chan struct{})}
	if o.Config == "" {
		return nil, errors.New("host: Options.Config is empty; give the path of a configuration")
	}
	p, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	s.process = p
	closing, cancel := context.WithCancel(context.Background())
	s.cancel, s.closed = cancel, closing.Done()
	go s.supervise(closing, p)
	return s, nil
}

// start starts a process and waits until it answers searches.
func (s *Sidecar) start(ctx context.Context) (*hosted.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.StartTimeout)
	defer cancel()
	p, err := hosted.Start(ctx, hosted.Options{
		Command: append([]string{s.options.Command, "plugin", "serve", "--config", s.options.Config}, s.options.Args...),
		Env:     s.options.Env, Handshake: Handshake(), Set: Set, Protocol: s.options.Protocol,
		StartTimeout: s.options.StartTimeout, Stderr: s.options.Stderr,
	})
	if err != nil {
		return nil, err
	}
	if err := waitReady(ctx, p); err != nil {
		p.Close(0)
		return nil, err
	}
	return p, nil
}

func waitReady(ctx context.Context, p *hosted.Process) error {
	health, tick := grpc_health_v1.NewHealthClient(p.Conn), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		r, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil && r.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Done:
			return fmt.Errorf("%w: it ended; its log says why", ErrNotReady)
		case <-ctx.Done():
			return fmt.Errorf("%w in time: %w; its log says which routes are not open", ErrNotReady, ctx.Err())
		}
	}
}

// grace is how long a sidecar may take to end.
const grace = 5 * time.Second

// supervise restarts the process whenever it ends, until the sidecar is closed.
func (s *Sidecar) supervise(ctx context.Context, p *hosted.Process) {
	defer close(s.ended)
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 15*time.Second
	for p != nil {
		born := time.Now()
		go s.watch(p)
		select {
		case <-ctx.Done():
			p.Close(grace)
			return
		case <-p.Done:
		}
		s.setProcess(nil)
		p.Close(0)
		if lived := time.Since(born); lived > wait.MaxInterval {
			wait.Reset()
		}
		s.options.Logger.Warn("sidecar ended, restarting", "pid", p.PID)
		p = s.restart(ctx, wait)
		s.setProcess(p)
	}
}

// watch kills a process that stops answering health checks.
func (s *Sidecar) watch(p *hosted.Process) {
	health, tick := grpc_health_v1.NewHealthClient(p.Conn), time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.Done:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.options.HealthTimeout)
		_, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		cancel()
		if status.Code(err) == codes.DeadlineExceeded {
			s.options.Logger.Warn("sidecar unresponsive, killing it", "pid", p.PID, "timeout", s.options.HealthTimeout.String())
			p.Signal()
		}
	}
}

// restart starts a new process. It retries with increasing delays until it succeeds. It
// returns nil if the sidecar was closed.
func (s *Sidecar) restart(ctx context.Context, wait *backoff.ExponentialBackOff) *hosted.Process {
	for ctx.Err() == nil {
		p, err := s.start(ctx)
		if err == nil {
			s.options.Logger.Info("sidecar ready again", "pid", p.PID)
			return p
		}
		pause := wait.NextBackOff()
		s.options.Logger.Warn("sidecar start failed, will retry", "error", err, "after", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *Sidecar) setProcess(p *hosted.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != nil {
		s.restarts++
	}
	s.process = p
	close(s.changed)
	s.changed = make(chan struct{})
}

// running waits for a running process and returns it.
func (s *Sidecar) running(ctx context.Context) (*hosted.Process, error) {
	for {
		s.mu.Lock()
		p, changed := s.process, s.changed
		s.mu.Unlock()
		if isClosed(s.closed) {
			return nil, ErrClosed
		}
		if p != nil && !isClosed(p.Done) {
			return p, nil
		}
		select {
		case <-changed:
		case <-s.closed:
		case <-ctx.Done():
			return nil, fmt.Errorf("the sidecar is starting again: %w", ctx.Err())
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// State describes the current process of a Sidecar.
type State struct {
	PID      int // 0 while the process is restarting
	Restarts int
	Protocol int // the negotiated protocol version
}

// State returns the current state.
func (s *Sidecar) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := State{Restarts: s.restarts}
	if s.process != nil && !isClosed(s.process.Done) {
		state.PID, state.Protocol = s.process.PID, s.process.Version
	}
	return state
}

// Close ends the sidecar and waits until it is gone. It kills the process if it has not
// ended after five seconds. Waiting calls return ErrClosed.
func (s *Sidecar) Close() error {
	s.cancel()
	<-s.ended
	return nil
}
