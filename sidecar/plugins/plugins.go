// Package plugins manages plugins, which are processes that serve likeness.plugin.v1. It
// starts a plugin from verified files, checks its health, kills it when it is unhealthy,
// restarts it, and quarantines it for a while if it keeps ending. A plugin that another
// party runs is reached by its address and monitored in the same way.
//
// Each start of a plugin is a session: a process with a connection to it, or just a
// connection to an address. Users of a plugin see a single connection across all sessions.
// Between two sessions, its calls fail at once.
package plugins

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/device"
)

// ErrOptions: the Options are not valid.
var ErrOptions = errors.New("plugin options not valid")

// Options describes a plugin. A zero duration, number or function selects the default.
type Options struct {
	// Name appears in errors, logs and metrics.
	Name string

	// Path is the executable, Args are its arguments. The plugin runs in the sidecar's
	// working directory. With a manifest it runs in the verified copy of the manifest's
	// folder, and relative file names in Args refer to that.
	Path string
	Args []string
	// Env is the plugin's complete environment, as NAME=value. It does not inherit the
	// sidecar's.
	Env []string
	// SHA256 is the digest of the executable, in hexadecimal. If set, a verified copy is
	// started. Files that the executable expects beside itself must then be listed in a
	// manifest.
	SHA256 string
	// Manifest is a file with one line "SHA-256  path" for each file of the plugin,
	// relative to the manifest. The plugin is started from a verified copy of these files.
	Manifest string
	// TempDir is the folder for copies and sockets of a running process. The default is
	// os.TempDir.
	TempDir string

	// Address replaces Path for a plugin that is already running: unix:///folder/socket in
	// a private folder of this user, or host:port with TLS.
	Address string
	// TLS contains this side's certificate and the authorities for the plugin's
	// certificate.
	TLS *tls.Config

	// StartTimeout limits a start, including the plugin's description of itself. The
	// default is 10 s.
	StartTimeout time.Duration
	// HealthInterval is the time between health checks, 200 ms by default. HealthTimeout is
	// how long a plugin may go without answering a health check or any other call, 500 ms
	// by default.
	HealthInterval time.Duration
	HealthTimeout  time.Duration
	// Memory is the limit of resident memory, above which the plugin is killed. 0 means no
	// limit.
	Memory int64
	// MaxMessageBytes limits messages in both directions. The default is 64 MiB.
	MaxMessageBytes int
	// A plugin that ends QuarantineAfter times within a minute (default 5) is not restarted
	// for the time Quarantine (default one minute).
	QuarantineAfter int
	Quarantine      time.Duration

	// Describe calls a plugin for its version, which completes the start. The default works
	// for scorers and devices.
	Describe func(ctx context.Context, conn grpc.ClientConnInterface) (version string, err error)
	Logger   *slog.Logger
}

func (o Options) withDefaults() Options {
	o.StartTimeout = orDefault(o.StartTimeout, 10*time.Second)
	o.HealthInterval = orDefault(o.HealthInterval, 200*time.Millisecond)
	o.HealthTimeout = orDefault(o.HealthTimeout, 500*time.Millisecond)
	o.MaxMessageBytes = orDefault(o.MaxMessageBytes, plugin.MaxMessageBytes)
	o.QuarantineAfter = orDefault(o.QuarantineAfter, 5)
	o.Quarantine = orDefault(o.Quarantine, time.Minute)
	o.TempDir = orDefault(o.TempDir, os.TempDir())
	if o.Describe == nil {
		o.Describe = describe
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("plugin", o.Name)
	return o
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// describe returns the version of a scorer or, if the plugin is not a scorer, of a device.
func describe(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	d, err := plugin.NewClient(conn).Describe(ctx)
	if errors.Is(err, plugin.ErrAnswer) {
		if said, other := device.NewClient(conn).Describe(ctx); other == nil {
			return said.Version, nil
		}
	}
	return d.Version, err
}

// Validate returns ErrOptions for options that Start would refuse.
func (o Options) Validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: plugin %q: %s", ErrOptions, o.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Name == "":
		return wrong("it has no name")
	case (o.Path == "") == (o.Address == ""):
		return wrong("give either path, of an executable, or address, where one runs already")
	case o.Address != "" && (o.SHA256 != "" || o.Manifest != ""):
		return wrong("sha256 and manifest are of an executable, and a plugin at %s is none", o.Address)
	case o.Memory < 0 || o.MaxMessageBytes < 0 || o.QuarantineAfter < 0:
		return wrong("a limit is negative")
	}
	if _, err := digestOf(o.SHA256); o.SHA256 != "" && err != nil {
		return wrong("sha256: %v", err)
	}
	for i, variable := range o.Env {
		if name, _, found := strings.Cut(variable, "="); !found || name == "" {
			return wrong("env[%d] is not NAME=value", i)
		}
	}
	if o.Address != "" {
		if _, err := o.target(); err != nil {
			return wrong("address: %v", err)
		}
	}
	return nil
}

// Plugin is a managed plugin across all its sessions. It is safe for concurrent use.
type Plugin struct {
	options Options
	live    atomic.Pointer[session] // nil between sessions
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed when the status changes
}

// Start starts managing a plugin, without waiting for it (see Ready). Problems that keep
// the plugin from running appear in its State, and starting is retried. The only error is
// ErrOptions. The plugin runs until Close or until ctx is done.
func Start(ctx context.Context, o Options) (*Plugin, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &Plugin{options: o.withDefaults(), done: make(chan struct{}), changed: make(chan struct{})}
	p.state = State{Name: o.Name, Address: o.Address, Status: Starting, Since: time.Now(), Ends: map[Reason]int64{}}
	ctx, p.cancel = context.WithCancel(ctx)
	go p.run(ctx)
	return p, nil
}

// Close ends the plugin and waits until it is completely gone.
func (p *Plugin) Close() error {
	p.cancel()
	<-p.done
	return nil
}

// Ready waits until the plugin answers. It returns the context's error, or
// plugin.ErrUnavailable with the reason if the plugin is quarantined or stopped.
func (p *Plugin) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		status, changed := p.state.Status, p.changed
		p.mu.Unlock()
		switch status {
		case Ready:
			return nil
		case Quarantined, Stopped:
			return p.unavailable(nil)
		default:
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), p.unavailable(nil))
		}
	}
}

// Conn returns a connection to the plugin across all sessions. While the plugin is down,
// calls fail at once with plugin.ErrUnavailable and the plugin's state. Calls that are in
// progress when the plugin ends fail in the same way.
func (p *Plugin) Conn() grpc.ClientConnInterface { return conn{p} }

// Scorer returns a client of the plugin as a scorer.
func (p *Plugin) Scorer() plugin.Scorer { return plugin.NewClient(p.Conn()) }
