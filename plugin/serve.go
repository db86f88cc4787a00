package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/internal/wirecount"
	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
)

// ErrNotHosted: a plugin was started by hand and not by a host.
var ErrNotHosted = errors.New("not started by a host")

// Option changes how a plugin is served.
type Option func(*serving)

type serving struct {
	handshake goplugin.HandshakeConfig
	newest    int
	server    func([]grpc.ServerOption) *grpc.Server
	listen    *listening // nil: by handshake
	log       hclog.Logger
}

// Agreed serves hosts of another handshake than Handshake.
func Agreed(h goplugin.HandshakeConfig) Option { return func(s *serving) { s.handshake = h } }

// Protocol speaks another newest protocol version than ProtocolVersion, and the one
// before it: it is how a test sees two releases meet.
func Protocol(newest int) Option { return func(s *serving) { s.newest = newest } }

// Server makes the gRPC server, with the options given and maybe others. go-plugin puts
// health, reflection and services of its own on it.
func Server(f func([]grpc.ServerOption) *grpc.Server) Option {
	return func(s *serving) { s.server = f }
}

// Serve serves a scorer that is one function, until the host ends or is gone; see
// ServeScorer.
func Serve(d Description, score func(ctx context.Context, q Query, items []Item) ([]float32, error), options ...Option) error {
	return ServeScorer(context.Background(), function{d, score}, options...)
}

// function is a Scorer that is one function.
type function struct {
	description Description
	score       func(ctx context.Context, q Query, items []Item) ([]float32, error)
}

func (f function) Describe(context.Context) (Description, error) { return f.description, nil }

func (f function) Score(ctx context.Context, q Query, items []Item) ([]float32, error) {
	return f.score(ctx, q, items)
}

// ServeScorer serves a scorer to the host that started this process, or at an address
// (Listen), until the host ends or ctx is done. It is called once in a process.
//
// A panic of the scorer is written to stderr with its stack and answered with an error.
// stderr is the host's log of the plugin. It returns ErrNotHosted, with how to use the
// program, if nobody started it as a plugin.
func ServeScorer(ctx context.Context, s Scorer, options ...Option) error {
	o := newServing(options)
	d, err := s.Describe(ctx)
	if err != nil {
		return fmt.Errorf("the scorer cannot be described: %w", err)
	}
	if err := d.validate(); err != nil {
		return err
	}
	service := newScorerService(d, s, func(cause any, stack []byte) {
		o.log.Error("the scorer panicked", "cause", fmt.Sprint(cause), "stack", string(stack))
	})
	return o.serve(ctx, fmt.Sprintf("the scorer %q, version %s", cmp.Or(d.Name, "without a name"), d.Version), Service{
		Name:     ScorerSet,
		Register: func(r grpc.ServiceRegistrar) { pluginv1.RegisterScorerServiceServer(r, service) },
	})
}

// ServeServices is ServeScorer for any services; name says what they are, for people.
func ServeServices(ctx context.Context, name string, services []Service, options ...Option) error {
	return newServing(options).serve(ctx, name, services...)
}

func newServing(options []Option) *serving {
	// go-plugin changes os.Stderr for a pipe that not every host reads.
	s := &serving{handshake: Handshake(), newest: ProtocolVersion, server: newServer}
	s.log = hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Info, JSONFormat: true})
	for _, option := range options {
		option(s)
	}
	return s
}

// requestLimits are what a request of a host may have inside: 131,072 items with their
// payloads, which decoding takes some tens of megabytes for.
func requestLimits() wirecount.Limits {
	return wirecount.Limits{Messages: 1 << 17, Fields: 1 << 19, Depth: 32}
}

// newServer makes a server for messages as great as the host said.
func newServer(options []grpc.ServerOption) *grpc.Server {
	most, err := strconv.Atoi(os.Getenv(MaxMessageEnv))
	if err != nil || most <= 0 {
		most = MaxMessageBytes
	}
	return grpc.NewServer(append(options, grpc.ForceServerCodecV2(wirecount.NewCodec(requestLimits())),
		grpc.MaxRecvMsgSize(most), grpc.MaxSendMsgSize(most),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<24))...)
}

func (s *serving) serve(ctx context.Context, name string, services ...Service) error {
	if s.listen != nil && s.listen.address != "" {
		return s.listen.serve(ctx, s, name, services)
	}
	if !Hosted(s.handshake) {
		return fmt.Errorf("%w: %s\n%s", ErrNotHosted, name, s.usage())
	}
	if os.Getenv("PLUGIN_CLIENT_CERT") == "" {
		return fmt.Errorf("%s: the host offers no mutual TLS; set AutoMTLS in its go-plugin ClientConfig", name)
	}
	s.logVersionMismatch(name)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.watchParent(ctx, cancel)
	var made atomic.Bool
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  s.handshake,
		VersionedPlugins: Versions(s.newest, services...),
		Logger:           s.log,
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			made.Store(true)
			server := s.server(options)
			context.AfterFunc(ctx, server.Stop)
			return server
		},
	})
	if !made.Load() {
		return fmt.Errorf("%s could not be served; its log says why", name)
	}
	return nil
}

// Hosted reports whether a host of this handshake started the process.
func Hosted(h goplugin.HandshakeConfig) bool {
	return os.Getenv(h.MagicCookieKey) == h.MagicCookieValue
}

// usage says what to do with a plugin.
func (s *serving) usage() string {
	if s.handshake != Handshake() {
		return "See docs/how-to/embed-likeness.md."
	}
	text := fmt.Sprintf("likeness starts it. Name it under plugins in likeness.yaml, as path: %s, or try it with\n  likeness plugin check %s", os.Args[0], os.Args[0])
	if s.listen != nil {
		text += fmt.Sprintf("\nIt also serves at an address, which the configuration then names instead:\n  %s -listen unix:///path/to/folder/scorer.sock", os.Args[0])
	}
	return text
}

// logVersionMismatch writes what both sides speak if they have nothing in common: go-plugin
// tells the host no more than the lower of this side's versions.
func (s *serving) logVersionMismatch(name string) {
	hostVersions := os.Getenv("PLUGIN_PROTOCOL_VERSIONS")
	if hostVersions == "" {
		return
	}
	ours := slices.Sorted(maps.Keys(Versions(s.newest)))
	for text := range strings.SplitSeq(hostVersions, ",") {
		if v, err := strconv.Atoi(text); err == nil && slices.Contains(ours, v) {
			return
		}
	}
	s.log.Error("no protocol version in common; build the older of the two against the newer release of likeness",
		"plugin", name, "plugin_speaks", joinVersions(ours), "host_speaks", strings.ReplaceAll(hostVersions, ",", " and "))
}

// watchParent calls gone when the process that started this one is gone. A host on
// Linux has the plugin killed by the system; elsewhere, and with other hosts, this is
// what ends it.
func (s *serving) watchParent(ctx context.Context, gone func()) {
	parent, tick := os.Getppid(), time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if os.Getppid() != parent {
			s.log.Warn("the host is gone")
			gone()
			return
		}
	}
}
