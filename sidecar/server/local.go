package server

import (
	"errors"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// Errors that a gateway finds before a call is one of gRPC; see StatusOf.
var (
	// ErrMessage: what was sent is not the message of the method.
	ErrMessage = errMessage
	// ErrMessageSize: it is larger than limits.max_message_bytes.
	ErrMessageSize = errMessageSize
	// ErrPath: there is no such path, or no such method on it.
	ErrPath = errors.New("path not found")
	// ErrForeign: a page of another site asks, through a browser.
	ErrForeign = errors.New("not for pages of other sites")
)

// StatusOf returns the status, with its details, that a caller gets for an error of the
// server. For nil it is OK.
func StatusOf(err error) *status.Status { return statusOf(err) }

// Local makes a gRPC server of likeness's services for a listener inside this
// process. It has every interceptor and limit but three: TLS, the limit of a connection's
// streams, since a gateway has one connection for all its callers, and Options.Gate, since a
// gateway receives the messages of its callers itself. The caller serves and stops it.
func (s *Server) Local() *grpc.Server {
	options := append(append([]grpc.ServerOption(nil), s.options...), grpc.MaxConcurrentStreams(math.MaxUint32))
	to := grpc.NewServer(options...)
	s.register(to)
	return to
}

// Authenticate returns an error, for StatusOf, unless a call with these headers
// authorization is served: there is no tokens file, or one of them has a token of it.
func (s *Server) Authenticate(authorization []string) error {
	tokens := s.shared.tokens.Load()
	if tokens == nil {
		return nil
	}
	_, err := tokens.get().caller(authorization)
	return err
}

// RequestID is the caller's id of a request, if it is a short printable one, or a new one.
func RequestID(given string) string { return telemetry.RequestID(given) }
