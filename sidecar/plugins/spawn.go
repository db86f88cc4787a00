package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/plugin"
)

// spawn starts a process from verified files and performs the handshake.
func (p *Plugin) spawn(ctx context.Context) (*session, error) {
	folder, err := newScratch(p.options.TempDir)
	if err != nil {
		return nil, err
	}
	s, err := p.spawnIn(ctx, folder)
	if err != nil {
		return nil, errors.Join(err, folder.remove())
	}
	return s, nil
}

func (p *Plugin) spawnIn(ctx context.Context, folder *scratch) (*session, error) {
	o := p.options
	as, err := o.check(folder.path)
	if err != nil {
		return nil, err
	}
	stderr := newLines(o.Logger, "stderr")
	proc := newProcess(as.path, o.Path, as.dir, o.Args, stderr)
	client := goplugin.NewClient(p.clientConfig(proc, folder))
	stop := context.AfterFunc(ctx, proc.kill)
	defer stop()
	s := &session{gone: proc.exited, cause: proc.cause, end: func() error { return end(proc, client, folder) }}
	if s.conn, err = dispense(client); err != nil {
		err = plugin.VersionError(err, plugin.ProtocolVersion)
		return nil, errors.Join(proc.startError(ctx, err), endProcess(proc, client))
	}
	s.pid = proc.pid
	return s, nil
}

// clientConfig returns go-plugin's configuration, with mutual TLS and new certificates for
// each session.
func (p *Plugin) clientConfig(proc *process, folder *scratch) *goplugin.ClientConfig {
	o := p.options
	return &goplugin.ClientConfig{
		HandshakeConfig:  plugin.Handshake(),
		VersionedPlugins: plugin.Versions(plugin.ProtocolVersion, plugin.Service{Name: anyService}),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			proc.cmd.Env = slices.Concat(cmd.Env, []string{fmt.Sprintf("%s=%d", plugin.MaxMessageEnv, o.MaxMessageBytes)}, o.Env)
			return proc, nil
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     o.StartTimeout + goneWithin, // later than begin's, which decides and kills the process
		GRPCDialOptions:  o.dialOptions(),
		SyncStdout:       newLines(o.Logger, "stdout"),
		SyncStderr:       proc.stderr,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: folder.path},
		Logger:           hclog.NewNullLogger(),
	}
}

// anyService is requested from go-plugin only to obtain the connection. Callers decide
// which service they use on it.
const anyService = plugin.ScorerSet

func dispense(client *goplugin.Client) (*grpc.ClientConn, error) {
	protocol, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(anyService)
	if err != nil {
		return nil, err
	}
	c, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T", raw)
	}
	return c, nil
}

// startError returns the error of a failed start: the error of ctx, the reason why the
// process ended by itself, or go-plugin's error.
func (p *process) startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return p.lastWords(ctx.Err())
	}
	p.mu.Lock()
	killed, began := p.killed, p.pid != 0
	p.mu.Unlock()
	if !began && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: it has to be executable; if it has a checksum, a copy in the folder for temporary files is started, which must not be mounted noexec", err)
	}
	if !began {
		return err
	}
	if errors.Is(err, plugin.ErrVersion) {
		return err
	}
	oneLine := errors.New(strings.Join(strings.Fields(err.Error()), " ")) // on one line
	select {
	case <-p.exited:
		if !killed && p.stderr.lastLine() != "" {
			return fmt.Errorf("it ended before it was ready: %w", p.cause())
		}
		if !killed {
			return fmt.Errorf("it ended before it was ready: %w; %w", p.cause(), oneLine)
		}
	default:
	}
	return p.lastWords(oneLine)
}

// goneWithin limits the wait for a killed process. A process inside a driver call may never
// end.
const goneWithin = 5 * time.Second

// end kills the process and its group, reaps it, and removes its files.
func end(proc *process, client *goplugin.Client, folder *scratch) error {
	return errors.Join(endProcess(proc, client), folder.remove())
}

// endProcess kills the process before it calls go-plugin's Kill, which first asks the
// plugin to end, and would wait for ever for a stopped one.
func endProcess(proc *process, client *goplugin.Client) error {
	proc.kill()
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		client.Kill()
	}()
	select {
	case <-reaped:
		return nil
	case <-time.After(goneWithin):
		return fmt.Errorf("process %d was killed %s ago and has not ended", proc.pid, goneWithin)
	}
}

// scratch is a private folder for the files of one session. If the sidecar is killed, a
// later one removes its folders.
type scratch struct {
	path string
	lock *filelock.Lock
}

const (
	scratchPrefix = "likeness-host-"
	scratchLock   = "lock"
	scratchAge    = time.Minute // a newer folder may not have its lock yet
)

func newScratch(parent string) (*scratch, error) {
	sweep(parent)
	path, err := os.MkdirTemp(parent, scratchPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Take(filepath.Join(path, scratchLock))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &scratch{path, lock}, nil
}

func (s *scratch) remove() error {
	return errors.Join(os.RemoveAll(s.path), s.lock.Close())
}

// sweep removes folders whose owner is gone.
func sweep(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, scratchPrefix+"*", scratchLock))
	for _, path := range locks {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || !isOurs(info) || time.Since(info.ModTime()) < scratchAge {
			continue
		}
		if lock, err := filelock.Take(path); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
			_ = lock.Close()
		}
	}
}
