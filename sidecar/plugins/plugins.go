// Package plugins hosts plugins: processes that serve likeness.plugin.v1. Each is
// started from files that were checked, asked whether it is well, killed when it is
// not, started again, and left alone for a while when it keeps ending. A plugin that
// runs already is reached by its address and watched the same way.
//
// A Plugin has lives. A life is a session: of a process and the connection to it, or
// of a connection to an address. What asks a plugin sees one connection over all of
// its lives, which fails at once between two of them.
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

// ErrOptions wraps what is wrong with Options.
var ErrOptions = errors.New("plugin options not valid")

// Options say what a plugin is and how it is kept. A zero duration, number or
// function is the default.
type Options struct {
	// Name is for errors, logs and metrics.
	Name string

	// Path is the executable, Args are its arguments. It runs in the sidecar's working
	// directory, or in the checked copy of the manifest's folder, to which names in Args
	// are relative then.
	Path string
	Args []string
	// Env is its environment, NAME=value; it sees nothing of the sidecar's own.
	Env []string
	// SHA256 of the executable, hexadecimal. A checked copy is started: files that the
	// executable looks for beside itself belong into a manifest.
	SHA256 string
	// Manifest is a file with a line "SHA-256  path" for each file that belongs to the
	// plugin, relative to that file. It is started from a copy of those files.
	Manifest string
	// TempDir is where copies and sockets lie while a process lives; os.TempDir by default.
	TempDir string

	// Address, in place of Path, is where a plugin runs already: unix:///folder/socket in
	// a folder of ours that others cannot enter, or host:port with TLS.
	Address string
	// TLS has our certificate and the authorities of the plugin's.
	TLS *tls.Config

	// StartTimeout bounds a start, up to the plugin's description of itself: 10 s.
	StartTimeout time.Duration
	// HealthInterval is the time between two questions whether it is well, 200 ms, and
	// HealthTimeout how long the answer, or that to any other call, may take: 500 ms.
	HealthInterval time.Duration
	HealthTimeout  time.Duration
	// Memory is the resident memory above which it is killed; 0 is no limit.
	Memory int64
	// MaxMessageBytes is the greatest message either way: 64 MiB.
	MaxMessageBytes int
	// QuarantineAfter ends within a minute, 5, it is left alone for Quarantine, a minute.
	QuarantineAfter int
	Quarantine      time.Duration

	// Describe asks a plugin what it is, and ends its start: the version of a scorer or
	// device by default.
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

// describe asks a scorer or, where there is none, a device.
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

// Plugin is one plugin over all of its lives. It is safe for concurrent use.
type Plugin struct {
	options Options
	live    atomic.Pointer[session] // nil between lives
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed at the next change of the status
}

// Start begins to keep a plugin, and does not wait for it: Ready does. Whatever keeps
// the plugin from running is in its State and tried again; the only error is
// ErrOptions. It lives until ctx is done or Close.
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

// Close ends the plugin and waits until nothing of it is left.
func (p *Plugin) Close() error {
	p.cancel()
	<-p.done
	return nil
}

// Ready waits until the plugin answers. It returns the context's error, or
// plugin.ErrUnavailable with the reason once the plugin is quarantined or stopped.
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

// Conn is the connection to the plugin, whichever life it is in. While the plugin is
// down, calls fail at once with plugin.ErrUnavailable and the state; so do those in
// flight when it ends.
func (p *Plugin) Conn() grpc.ClientConnInterface { return conn{p} }

// Scorer asks the plugin for scores.
func (p *Plugin) Scorer() plugin.Scorer { return plugin.NewClient(p.Conn()) }
