package server

import (
	"errors"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// Errors of requests that a gateway refuses before they become gRPC calls; see StatusOf.
var (
	// ErrMessage: the body is not a message of the method.
	ErrMessage = errMessage
	// ErrMessageSize: the body is larger than limits.max_message_bytes.
	ErrMessageSize = errMessageSize
	// ErrPath: there is no such path, or no such method on it.
	ErrPath = errors.New("path not found")
	// ErrForeign: the request comes from a page of another site, through a browser.
	ErrForeign = errors.New("not for pages of other sites")
)

// StatusOf returns the status, with details, that a caller gets for an error of the server. It is
// OK for nil.
func StatusOf(err error) *status.Status { return statusOf(err) }

// Local makes a gRPC server of likeness's services and of health for a listener inside this process. It has all
// interceptors and limits except TLS, the limit of streams per connection (a gateway has one
// connection for all its callers), and Options.Gate (a gateway receives its callers' messages
// itself). The caller serves and stops it.
func (s *Server) Local() *grpc.Server {
	options := append(append([]grpc.ServerOption(nil), s.options...), grpc.MaxConcurrentStreams(math.MaxUint32))
	to := grpc.NewServer(options...)
	s.register(to)
	s.registerHealth(to)
	return to
}

// Authenticate returns an error, for StatusOf, unless a call with these authorization headers may
// be served: because one of them has a valid token, or because there is no tokens file.
func (s *Server) Authenticate(authorization []string) error {
	tokens := s.shared.tokens.Load()
	if tokens == nil {
		return nil
	}
	_, err := tokens.get().caller(authorization)
	return err
}

// RequestID returns the id that the caller sent if it is short and printable, or a new id.
func RequestID(given string) string { return telemetry.RequestID(given) }
