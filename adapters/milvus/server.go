package milvus

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"regexp"
	"sync"
	"time"

	grpc_retry "github.com/grpc-ecosystem/go-grpc-middleware/retry"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/wire"
	"github.com/likenessdb/likeness/internal/traceparent"
)

// server is a connection to a Milvus server, with the limits that the server has told. It is safe for
// concurrent use.
type server struct {
	options Options
	sdk     client.Client
	raw     milvuspb.MilvusServiceClient
	conn    *grpc.ClientConn // connection of raw
	wire    grpc.CallOption  // decodes a *reply
	slots   *semaphore.Weighted

	mu            sync.Mutex      // guards loweredLimits
	loweredLimits adapters.Limits // Options.Limits, lowered to the limits that the server has told
}

// connect opens the connection without calling the server. options are set, with their defaults.
func (s *server) connect(ctx context.Context) error {
	o := s.options
	s.loweredLimits, s.slots = o.Limits, semaphore.NewWeighted(int64(o.MaxInFlight))
	sdk, err := client.NewClient(ctx, client.Config{
		Address:        o.Address,
		DBName:         o.Database,
		DisableConn:    true,
		RetryRateLimit: &client.RetryRateLimitOption{MaxRetry: 0},
		DialOptions:    s.dialOptions(),
	})
	if err != nil {
		return fmt.Errorf("%w: milvus at %s: %w", adapters.ErrUnavailable, o.Address, err)
	}
	grpcClient, ok := sdk.(*client.GrpcClient)
	if !ok {
		return errors.Join(fmt.Errorf("%w: the SDK returned a %T", adapters.ErrStore, sdk), sdk.Close())
	}
	s.sdk, s.raw, s.conn, s.wire = sdk, grpcClient.Service, grpcClient.Conn, wire.CallOption()
	return nil
}

// dialOptions replaces the SDK's defaults: no blocking dial, keepalive pings only
// during a call (milvus-lite answers other pings with too_many_pings), no retries, the
// adapter's own error conversion, and TLS with the given configuration, where the SDK
// only supports an empty tls.Config.
func (s *server) dialOptions() []grpc.DialOption {
	o := s.options
	options := append(traceparent.DialOptions(),
		grpc.WithChainUnaryInterceptor(s.intercept, s.authorize),
		grpc.WithDefaultCallOptions(grpc_retry.Disable(), grpc.MaxCallRecvMsgSize(o.Limits.MaxMessageBytes)),
		// Detects a dead link within half a minute.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 8 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 3 * time.Second,
		}))
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(o.TLS)))
	}
	return append(options, o.DialOptions...)
}

// authorize adds the store's credentials to a call, as the SDK would, unless the call
// uses a caller's own credentials.
func (s *server) authorize(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	secret := s.options.APIKey
	if s.options.Username != "" || s.options.Password != "" {
		secret = s.options.Username + ":" + s.options.Password
	}
	if secret != "" && !adapters.IsAsCaller(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// intercept wraps every call of the connection, including the SDK's. It limits the
// calls in flight and the size of requests, and is the only place that converts
// Milvus's refusals to errors.
func (s *server) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := path.Base(method)
	if m, ok := req.(proto.Message); ok {
		if size := proto.Size(m); size > s.options.Limits.MaxMessageBytes {
			return fmt.Errorf("milvus %s: %w", call, s.messageLimit(int64(size)))
		}
	}
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("milvus %s: %w", call, err)
	}
	defer s.slots.Release(1)
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return fmt.Errorf("milvus %s: %w", call, s.callError(ctx, err))
	}
	if err := statusError(replyStatus(reply)); err != nil {
		s.lowerLimit(err)
		return fmt.Errorf("milvus %s: %w", call, err)
	}
	return nil
}

// limits returns the configured limits, lowered to the limits that the server has
// told.
func (s *server) limits() adapters.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loweredLimits
}

// lowerLimit lowers a limit to the value that the server has told.
func (s *server) lowerLimit(err error) {
	var told *adapters.LimitError
	if !errors.As(err, &told) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]*int{
		limitDepth: &s.loweredLimits.MaxDepth, limitProbes: &s.loweredLimits.MaxProbes, limitVectorFields: &s.loweredLimits.MaxVectorFields,
	}[told.Limit]
	if known != nil && told.Max > 0 && told.Max < int64(*known) {
		*known = int(told.Max)
	}
}

func (s *server) messageLimit(size int64) error {
	return &adapters.LimitError{
		Limit: limitMessage, Value: size, Max: int64(s.options.Limits.MaxMessageBytes),
		Remedy: "ask for fewer rows or vectors at a time, or raise the limit here and on the server (proxy.grpc.serverMaxRecvSize)",
	}
}

var tooLarge = regexp.MustCompile(`larger than max \((\d+) vs\.? \d+\)`)

// callError converts the error of a call without a reply.
func (s *server) callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	st := status.Convert(err)
	switch st.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Unavailable:
		if wire.AnsweredHTTP1(st.Message()) {
			return fmt.Errorf("%w: the server at %s speaks HTTP/1.1, and not gRPC; give Milvus's gRPC port, 19530 by default", adapters.ErrUnavailable, s.options.Address)
		}
		return fmt.Errorf("%w: %s at %s", adapters.ErrUnavailable, st.Message(), s.options.Address)
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%w: %s; check user, password or API key", adapters.ErrRefused, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: this server has no such call", adapters.ErrUnsupported)
	case codes.ResourceExhausted:
		if m := tooLarge.FindStringSubmatch(st.Message()); m != nil {
			return s.messageLimit(parseNumber(m[1]))
		}
		return fmt.Errorf("%w: %s", adapters.ErrUnavailable, st.Message())
	default:
		return fmt.Errorf("%w: %s: %s", adapters.ErrStore, st.Code(), st.Message())
	}
}

// sdkError wraps an error of the SDK itself in a sentinel error.
func (s *server) sdkError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", adapters.ErrStore, err)
}

var sentinels = []error{
	adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric, adapters.ErrFilter, adapters.ErrID,
	adapters.ErrLimit, adapters.ErrUnsupported, adapters.ErrUnavailable, adapters.ErrRefused, adapters.ErrStore,
}
