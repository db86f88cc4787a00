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

// ErrNotHosted: the plugin was started by hand, not by a host.
var ErrNotHosted = errors.New("not started by a host")

// Option changes how a plugin is served.
type Option func(*serving)

type serving struct {
	handshake goplugin.HandshakeConfig
	newest    int
	server    func([]grpc.ServerOption) *grpc.Server
	listen    *listening // nil to serve by handshake
	log       hclog.Logger
}

// Agreed makes the plugin use another handshake than Handshake.
func Agreed(h goplugin.HandshakeConfig) Option { return func(s *serving) { s.handshake = h } }

// Protocol makes the plugin support another newest protocol version than ProtocolVersion,
// and the previous one. Tests use it to combine two releases.
func Protocol(newest int) Option { return func(s *serving) { s.newest = newest } }

// Server creates the gRPC server. It receives the required options and may add others.
// go-plugin registers health, reflection and its own services on the server.
func Server(f func([]grpc.ServerOption) *grpc.Server) Option {
	return func(s *serving) { s.server = f }
}

// Serve serves a scorer that consists of one function, until the host ends. See
// ServeScorer.
func Serve(d Description, score func(ctx context.Context, q Query, items []Item) ([]float32, error), options ...Option) error {
	return ServeScorer(context.Background(), function{d, score}, options...)
}

// function is a Scorer that consists of one function.
type function struct {
	description Description
	score       func(ctx context.Context, q Query, items []Item) ([]float32, error)
}

func (f function) Describe(context.Context) (Description, error) { return f.description, nil }

func (f function) Score(ctx context.Context, q Query, items []Item) ([]float32, error) {
	return f.score(ctx, q, items)
}

// ServeScorer serves a scorer to the host that started this process, or at an address
// (Listen), until the host ends or ctx is done. It must be called only once per process.
//
// If the scorer panics, the stack is written to stderr, which the host logs, and the call
// fails. ServeScorer returns ErrNotHosted, with instructions, if the process was not
// started as a plugin.
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
		o.log.Error("scorer panicked", "cause", fmt.Sprint(cause), "stack", string(stack))
	})
	return o.serve(ctx, fmt.Sprintf("the scorer %q, version %s", cmp.Or(d.Name, "without a name"), d.Version), Service{
		Name:     ScorerSet,
		Register: func(r grpc.ServiceRegistrar) { pluginv1.RegisterScorerServiceServer(r, service) },
	})
}

// ServeServices is ServeScorer for arbitrary services. name describes them to people.
func ServeServices(ctx context.Context, name string, services []Service, options ...Option) error {
	return newServing(options).serve(ctx, name, services...)
}

func newServing(options []Option) *serving {
	// go-plugin replaces os.Stderr by a pipe that not every host reads.
	s := &serving{handshake: Handshake(), newest: ProtocolVersion, server: newServer}
	s.log = hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Info, JSONFormat: true})
	for _, option := range options {
		option(s)
	}
	return s
}

// requestLimits limits what a request may contain: 131,072 items with their payloads, for
// which decoding takes some tens of megabytes.
func requestLimits() wirecount.Limits {
	return wirecount.Limits{Messages: 1 << 17, Fields: 1 << 19, Depth: 32}
}

// newServer creates a server with the message size limit that the host has set.
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

// Hosted reports whether a host with this handshake started the process.
func Hosted(h goplugin.HandshakeConfig) bool {
	return os.Getenv(h.MagicCookieKey) == h.MagicCookieValue
}

// usage returns instructions for a user who started the plugin by hand.
func (s *serving) usage() string {
	if s.handshake != Handshake() {
		return "See docs/how-to/call-it.md."
	}
	text := fmt.Sprintf("likeness starts it. Name it under plugins in likeness.yaml, as path: %s, or try it with\n  likeness plugin check %s", os.Args[0], os.Args[0])
	if s.listen != nil {
		text += fmt.Sprintf("\nIt also serves at an address, which the configuration then names instead:\n  %s -listen unix:///path/to/folder/scorer.sock", os.Args[0])
	}
	return text
}

// logVersionMismatch logs the versions of both sides if they have none in common. go-plugin
// tells the host only the lowest version of this side.
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

// watchParent calls gone when the parent process has ended. On Linux the system kills a
// plugin when its host ends. On other systems, and with other hosts, the plugin ends
// because of watchParent.
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
			s.log.Warn("plugin host gone, stopping")
			gone()
			return
		}
	}
}
