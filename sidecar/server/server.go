// Package server is the gRPC API: it turns messages into requests of a pipeline
// and errors into statuses, and does nothing else. It also holds what every
// server needs: TLS, tokens, limits, health, reflection and a graceful end.
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// Limits are the server's limits; see config.Limits.
type Limits struct {
	MaxMessageBytes, MaxConcurrentStreams, MaxBatch, BatchParallelism int
}

// Options are what a Server is made of. Searcher, Logger, Recorder and Limits are required.
type Options struct {
	Searcher pipeline.Searcher
	Models   func() []*model.Model // by name
	Limits   Limits
	// Admin, if set, changes the versions that are served. OpenAdmin lets everybody do
	// so where there is no TokensFile: those who can connect are on this machine.
	Admin     Admin
	OpenAdmin bool
	// Reconcile, if set, brings what a route derives in step with its collection, for
	// AdminService too: it returns pipeline.ErrRoute, follow.ErrRoute or the context's error.
	Reconcile func(ctx context.Context, route string) (follow.Drift, error)
	// TLS, if a certificate is named, secures the listener.
	TLS TLS
	// TokensFile, if set, names the callers that are served.
	TokensFile string
	Logger     *slog.Logger
	Recorder   Recorder
	// TracerProvider, if set, gets a span a call.
	TracerProvider trace.TracerProvider
}

// Server is a gRPC server. Its methods are safe for concurrent use.
type Server struct {
	grpc    atomic.Pointer[grpc.Server]
	health  *health.Server
	drain   context.CancelFunc
	log     *slog.Logger
	shared  *services
	options []grpc.ServerOption
}

// services is what the services share.
type services struct {
	searcher  pipeline.Searcher
	models    func() []*model.Model
	admin     Admin
	openAdmin bool
	reconcile func(ctx context.Context, route string) (follow.Drift, error)
	limits    Limits
	validator protovalidate.Validator
	recorder  Recorder
	log       *slog.Logger
	tokens    *watched[*tokens] // nil: everybody is served
	draining  context.Context   // done when the server drains
}

// New makes a server that reports NOT_SERVING until SetServing. It returns
// ErrTLS or ErrTokens if a file cannot be used.
func New(o Options) (*Server, error) {
	validator, err := protovalidate.New(protovalidate.WithFailFast())
	if err != nil {
		return nil, fmt.Errorf("rules of the API: %w", err)
	}
	draining, drain := context.WithCancel(context.Background())
	s := &services{
		searcher: o.Searcher, models: o.Models, admin: o.Admin, openAdmin: o.OpenAdmin, reconcile: o.Reconcile, limits: o.Limits,
		validator: validator, recorder: o.Recorder, log: o.Logger, draining: draining,
	}
	if o.TokensFile != "" {
		s.tokens, err = watch(o.Logger, func() (*tokens, error) { return readTokens(o.TokensFile) }, o.TokensFile)
	}
	var options []grpc.ServerOption
	if err == nil {
		options, err = s.options(o)
	}
	if err != nil {
		drain()
		return nil, err
	}
	server := &Server{health: health.NewServer(), drain: drain, log: o.Logger, shared: s, options: options}
	server.SetServing(false)
	server.setHealth(likenessv1.CatalogService_ServiceDesc.ServiceName, true)
	server.grpc.Store(server.make())
	return server, nil
}

func (s *services) options(o Options) ([]grpc.ServerOption, error) {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(o.Limits.MaxMessageBytes),
		grpc.MaxSendMsgSize(o.Limits.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(o.Limits.MaxConcurrentStreams)),
		// With gRPC's small windows the messages of many calls at once wait for room
		// behind the headers of more of them; when those fill the connection's
		// streams nothing is read any more, and every call waits for its deadline.
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.WaitForHandlers(true),
		grpc.ChainStreamInterceptor(s.observe, s.authenticate, s.ending),
	}
	if o.TracerProvider != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(o.TracerProvider), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	if o.TLS.CertFile != "" {
		credentials, err := transportCredentials(o.TLS, o.Logger)
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.Creds(credentials))
	}
	return options, nil
}

// make makes the gRPC server that Serve serves.
func (s *Server) make() *grpc.Server {
	to := grpc.NewServer(s.options...)
	s.register(to)
	to.RegisterService(asStreams(grpc_health_v1.Health_ServiceDesc, nil, s.shared.limits.MaxMessageBytes), s.health)
	reflection.Register(to)
	return to
}

// register puts likeness's own services on a gRPC server.
func (s *Server) register(to *grpc.Server) {
	shared, most := s.shared, s.shared.limits.MaxMessageBytes
	to.RegisterService(asStreams(likenessv1.SearchService_ServiceDesc, shared.checked, most), search{services: shared})
	to.RegisterService(asStreams(likenessv1.CatalogService_ServiceDesc, shared.checked, most), catalog{services: shared})
	if shared.admin != nil {
		to.RegisterService(asStreams(likenessv1.AdminService_ServiceDesc, shared.checked, most), admin{services: shared})
	}
}

// SetServing says whether searches are answered, in the health of the process
// ("") and of SearchService.
func (s *Server) SetServing(serving bool) {
	s.setHealth("", serving)
	s.setHealth(likenessv1.SearchService_ServiceDesc.ServiceName, serving)
}

// SetRouteServing says whether a route was opened, in the health of "route/<name>".
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
	if err := s.grpc.Load().Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("gRPC on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Drain reports NOT_SERVING, takes no more calls and waits for those in flight,
// at most for grace; then it cuts them. It reports whether it had to.
func (s *Server) Drain(grace time.Duration) (cut bool) {
	s.health.Shutdown()
	s.drain()
	done, server := make(chan struct{}), s.grpc.Load()
	go func() {
		defer close(done)
		server.GracefulStop()
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-timer.C:
		s.log.Warn("calls are cut after the grace period; raise shutdown.grace to give them more", "grace", grace.String())
		server.Stop()
		<-done
		return true
	}
}
