// Package server is the gRPC API. It turns messages into requests of a Searcher, and errors into
// statuses, and does nothing else. It also holds what every server needs: TLS, tokens, limits,
// health, reflection and an orderly end.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"buf.build/go/protovalidate"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/likenessdb/likeness/internal/drain"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Limits are the server's limits; see config.Limits.
type Limits struct {
	MaxMessageBytes, MaxConcurrentStreams, MaxBatch, BatchParallelism int
}

// Options configures a Server. Searcher, Logger, Recorder and Limits are required.
type Options struct {
	Searcher search.Searcher
	Models   func() []*model.Model // by name
	Limits   Limits
	// Admin, if set, changes which versions are served. OpenAdmin lets every caller use it if there
	// is no TokensFile, because only callers on this machine can connect.
	Admin     Admin
	OpenAdmin bool
	// Reconcile, if set, repairs the data that a route derives from its collection, also for
	// AdminService. It returns route.ErrUnknown, follow.ErrRoute or the context's error.
	Reconcile func(ctx context.Context, route string) (follow.Drift, error)
	// Events keeps what people did with answers.
	Events events.Book
	// Gate, if set, decides which calls of searches are read, and receives their messages.
	Gate *gate.Gate
	// TLS, if a certificate is named, secures the listener.
	TLS TLS
	// TokensFile, if set, lists the callers that are served, with their tokens.
	TokensFile string
	Logger     *slog.Logger
	Recorder   Recorder
	// TracerProvider, if set, gets a span for each call.
	TracerProvider trace.TracerProvider
}

// Server is a gRPC server. Its methods are safe for concurrent use.
type Server struct {
	grpc atomic.Pointer[grpc.Server]
	// listener is the listener of Serve, or nil if another server accepts the connections.
	listener atomic.Pointer[drain.Listener]
	health   *health.Server
	drained  context.CancelFunc
	log      *slog.Logger
	shared   *services
	options  []grpc.ServerOption
	receiver *gate.Receiver
	// credentials secures the listener of Serve.
	credentials []grpc.ServerOption
}

// services holds what all gRPC services of the server share.
type services struct {
	searcher  search.Searcher
	models    func() []*model.Model
	admin     Admin
	openAdmin bool
	reconcile func(ctx context.Context, route string) (follow.Drift, error)
	events    events.Book
	gate      *gate.Gate              // nil if no call is refused
	refusal   atomic.Pointer[refusal] // the last refusal of a call that arrived
	limits    atomic.Pointer[Limits]
	validator protovalidate.Validator
	recorder  Recorder
	tracer    trace.Tracer // of calls that no gRPC server receives
	log       *slog.Logger
	failures  *failures
	tokens    atomic.Pointer[watched[*tokens]] // nil if everybody is served
	draining  context.Context                  // its context is done when the server drains
}

// New makes a server that reports NOT_SERVING until SetServing. It returns
// ErrTLS or ErrTokens if a file cannot be used.
func New(o Options) (*Server, error) {
	validator, err := protovalidate.New(protovalidate.WithFailFast())
	if err != nil {
		return nil, fmt.Errorf("rules of the API: %w", err)
	}
	draining, end := context.WithCancel(context.Background())
	s := &services{
		searcher: o.Searcher, models: o.Models, admin: o.Admin, openAdmin: o.OpenAdmin, reconcile: o.Reconcile, events: o.Events, gate: o.Gate,
		validator: validator, recorder: o.Recorder, tracer: noop.Tracer{}, log: o.Logger, draining: draining,
	}
	if o.TracerProvider != nil {
		s.tracer = o.TracerProvider.Tracer("likeness")
	}
	s.limits.Store(&o.Limits)
	s.failures = newFailures(o.Logger, func() int { return s.limits.Load().MaxMessageBytes })
	var secure []grpc.ServerOption
	if err = s.setTokens(o.TokensFile); err == nil {
		secure, err = listenerCredentials(o)
	}
	if err != nil {
		end()
		return nil, err
	}
	receiver := newReceiver(o)
	server := &Server{health: health.NewServer(), drained: end, log: o.Logger, shared: s, options: s.options(o, receiver), receiver: receiver, credentials: secure}
	server.SetServing(false)
	server.setHealth(likenessv1.CatalogService_ServiceDesc.ServiceName, true)
	server.grpc.Store(server.make())
	return server, nil
}

// newReceiver returns the receiver of the server's messages.
func newReceiver(o Options) *gate.Receiver {
	gunzip := gate.NewGunzip(o.Gate.MaxMessageBytes(o.Limits.MaxMessageBytes))
	return &gate.Receiver{Gate: o.Gate, Codec: newCodec(gunzip), Gunzip: gunzip, MaxBytes: o.Limits.MaxMessageBytes}
}

// maxHeaderBytes bounds the headers of a call: tokens and trace ids are short.
const maxHeaderBytes = 64 << 10

// maxIdle is how long a client may keep a connection without a call. The server then closes it, and
// the client opens another with its next call.
const maxIdle = 30 * time.Minute

func (s *services) options(o Options, receiver *gate.Receiver) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(receiver.Codec),
		receiver.Gunzip.Option(),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxRecvMsgSize(o.Limits.MaxMessageBytes),
		grpc.MaxSendMsgSize(o.Limits.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(o.Limits.MaxConcurrentStreams)),
		// With gRPC's small windows, the messages of many simultaneous calls wait for window space
		// behind the headers of further calls. When those have used up the connection's streams,
		// nothing is read any more, and every call waits for its deadline.
		grpc.InitialWindowSize(gate.StreamWindowBytes),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.WaitForHandlers(true),
		grpc.ChainStreamInterceptor(s.observe, s.authenticate, s.ending),
		grpc.InTapHandle(s.arrive),
	}
	if o.TracerProvider != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(o.TracerProvider), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	return options
}

// listenerCredentials returns the TLS credentials of the listener, or nil for plain text.
// It returns ErrTLS.
func listenerCredentials(o Options) ([]grpc.ServerOption, error) {
	if o.TLS.CertFile == "" {
		return nil, nil
	}
	credentials, err := transportCredentials(o.TLS, o.Logger)
	if err != nil {
		return nil, err
	}
	return []grpc.ServerOption{grpc.Creds(credentials)}, nil
}

// make returns the gRPC server for Serve.
func (s *Server) make() *grpc.Server {
	to := grpc.NewServer(append(append([]grpc.ServerOption{}, s.options...), append(s.credentials, s.receiving())...)...)
	s.register(to)
	s.registerHealth(to)
	reflection.Register(to)
	return to
}

// register adds likeness's own services to a gRPC server.
func (s *Server) register(to *grpc.Server) {
	shared, most := s.shared, s.shared.limits.Load().MaxMessageBytes
	to.RegisterService(asStreams(likenessv1.SearchService_ServiceDesc, shared.checked, most), searchService{services: shared})
	to.RegisterService(asStreams(likenessv1.CatalogService_ServiceDesc, shared.checked, most), catalog{services: shared})
	to.RegisterService(asStreams(likenessv1.FeedbackService_ServiceDesc, shared.checked, most), feedback{services: shared})
	if shared.admin != nil {
		to.RegisterService(asStreams(likenessv1.AdminService_ServiceDesc, shared.checked, most), admin{services: shared})
	}
}

// registerHealth adds health checking, where no host of the server adds its own.
func (s *Server) registerHealth(to *grpc.Server) {
	to.RegisterService(asStreams(grpc_health_v1.Health_ServiceDesc, nil, s.shared.limits.Load().MaxMessageBytes), s.health)
}

// Adjustment is a change of those settings that can change while a server runs.
type Adjustment struct {
	server *Server
	limits Limits
	tokens *watched[*tokens]
}

// Adjust prepares new limits of a batch and a new tokens file ("" for none). Apply puts them in
// force for the calls that begin later. Adjust returns ErrTokens.
func (s *Server) Adjust(limits Limits, tokensFile string) (*Adjustment, error) {
	watched, err := s.shared.watchTokens(tokensFile)
	if err != nil {
		return nil, err
	}
	now := *s.shared.limits.Load()
	now.MaxBatch, now.BatchParallelism = limits.MaxBatch, limits.BatchParallelism
	return &Adjustment{server: s, limits: now, tokens: watched}, nil
}

// Apply puts the adjustment in force.
func (a *Adjustment) Apply() {
	a.server.shared.limits.Store(&a.limits)
	a.server.shared.tokens.Store(a.tokens)
}

// SetServing sets whether searches are answered, in the health of the process ("") and of
// SearchService.
func (s *Server) SetServing(serving bool) {
	s.setHealth("", serving)
	s.setHealth(likenessv1.SearchService_ServiceDesc.ServiceName, serving)
}

// SetRouteServing sets whether a route is open, in the health of "route/<name>".
func (s *Server) SetRouteServing(route string, serving bool) { s.setHealth("route/"+route, serving) }

func (s *Server) setHealth(name string, serving bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if serving {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, status)
}

// Serve answers calls until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	own := drain.Listen(s.shared.gate.Listener(listener))
	s.listener.Store(own)
	if err := s.grpc.Load().Serve(own); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("gRPC on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Leave reports NOT_SERVING, and goes on answering calls.
func (s *Server) Leave() { s.health.Shutdown() }

// Drain reports NOT_SERVING, accepts no more calls and waits up to grace for those in flight. Then
// it cuts them. It reports whether it had to cut any.
func (s *Server) Drain(grace time.Duration) (cut bool) {
	s.health.Shutdown()
	s.drained()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if cut = drain.Server(ctx, s.grpc.Load(), s.listener.Load()); cut {
		s.log.Warn("calls were cut after the grace period; raise shutdown.grace to give them more", "grace", grace.String())
	}
	return cut
}
