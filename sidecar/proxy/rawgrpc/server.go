package rawgrpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/drain"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// Options configure a Server. Only Upstream is required.
type Options struct {
	// Upstream gets every call. The caller closes it after Drain.
	Upstream *Upstream
	// Services are those whose unary methods are known to be so, which makes them
	// cheaper; every other method is forwarded as a stream both ways.
	Services []grpc.ServiceDesc
	// TLS, if not nil, is the listener's.
	TLS *tls.Config
	// MaxStreams bounds the calls in flight of one connection; 0 is no limit.
	MaxStreams int
	// MaxUnpacked bounds a compressed message, unpacked; 0 is the limit of any other.
	MaxUnpacked int
	// Gate, if set, receives the requests.
	Gate *gate.Gate
	// Intercept, by method of Services, sees a request before it goes on.
	Intercept map[string]Interceptor
}

// Interceptor may answer a call in the database's stead. The context is the
// call's, with its metadata as outgoing; the request is not to be changed.
type Interceptor func(ctx context.Context, request []byte) Reply

// Reply is what an interceptor says. Without Message and Err the request goes on
// to the database as it came, and Trailer joins that of the answer.
type Reply struct {
	Message         []byte
	Err             error
	Header, Trailer metadata.MD
	// Passed, if set, is told how long the database took for a request that went on.
	Passed func(took time.Duration)
	// Ended, if set, is told the answer to a request that went on, or its error, as
	// soon as there is one; the answer is nobody else's.
	Ended func(answer []byte, err error)
	// Outlives lets a request go on for a while when its client goes away, so that
	// Ended is told what the database says to it.
	Outlives bool
	// Denies, if set, reports whether an answer without an error refuses the caller, as
	// an error of the codes of Denied does. Such an answer gets no Trailer.
	Denies func(answer []byte) bool
}

// outlives is how long a request goes on after its client went away.
const outlives = time.Second

// Denied reports whether the database refuses the caller by an error.
func Denied(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// Unsent reports whether a call failed before the database got it: grpc-go says so
// where no connection could be made.
func Unsent(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.HasPrefix(status.Convert(err).Message(), "connection error: ")
}

// Server forwards every call it gets. It is safe for concurrent use.
type Server struct {
	grpc      *grpc.Server
	listener  atomic.Pointer[drain.Listener]
	upstream  *Upstream
	unary     map[string]bool
	gzip      *gate.Gunzip
	receiver  *gate.Receiver
	intercept map[string]Interceptor
}

// NewServer makes a server that has no service of its own: every method is the
// database's, health and reflection among them.
func NewServer(o Options) *Server {
	s := &Server{
		upstream: o.Upstream, unary: map[string]bool{}, intercept: o.Intercept,
		gzip: gate.NewGunzip(o.Gate.MaxMessageBytes(cmp.Or(o.MaxUnpacked, maxMessageBytes))),
	}
	s.receiver = &gate.Receiver{Gate: o.Gate, Codec: codec{}, Gunzip: s.gzip, MaxBytes: maxMessageBytes}
	for _, service := range o.Services {
		for _, m := range service.Methods {
			s.unary["/"+service.ServiceName+"/"+m.MethodName] = true
		}
	}
	options := []grpc.ServerOption{
		grpc.UnknownServiceHandler(s.handle),
		grpc.ForceServerCodecV2(codec{}),
		s.gzip.Option(),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(cmp.Or(uint32(o.MaxStreams), math.MaxUint32)),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		// Clients ping as often as the database lets them: pymilvus every ten
		// seconds, without a call too.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 500 * time.Millisecond, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(4),
		grpc.StaticStreamWindowSize(gate.StreamWindowBytes), grpc.StaticConnWindowSize(connectionWindow),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	return s
}

// Serve answers calls until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	own := drain.Listen(listener)
	s.listener.Store(own)
	if err := s.grpc.Serve(own); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("gRPC on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Drain takes no more calls and waits for those in flight until ctx is done;
// then it cuts them. It reports whether it had to.
func (s *Server) Drain(ctx context.Context) (cut bool) {
	return drain.Server(ctx, s.grpc, s.listener.Load())
}
