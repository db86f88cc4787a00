package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Hosted makes the gRPC server with the options of a host that serves it, instead of Serve. It adds
// health and reflection, as go-plugin does. Health still knows this server's services and routes.
func (s *Server) Hosted(options []grpc.ServerOption) *grpc.Server {
	all := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(s.ownHealth)}, s.options...)
	all = append(all, s.receiving())
	to := grpc.NewServer(append(all, options...)...)
	s.register(to)
	s.grpc.Store(to)
	return to
}

// ownHealth asks this server's health first, and the host's health about services that it does not
// know.
func (s *Server) ownHealth(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if check, ok := request.(*grpc_health_v1.HealthCheckRequest); ok {
		if r, err := s.health.Check(ctx, check); err == nil {
			return r, nil
		}
	}
	return next(ctx, request)
}
