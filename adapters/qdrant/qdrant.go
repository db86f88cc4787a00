// Package qdrant searches collections of a Qdrant server over gRPC.
package qdrant

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/wire"
	"github.com/likenessdb/likeness/internal/recent"
	"github.com/likenessdb/likeness/internal/traceparent"
	"github.com/likenessdb/likeness/internal/uncompressed"
)

var (
	_ adapters.Store      = (*Store)(nil)
	_ adapters.Fetcher    = (*Store)(nil)
	_ adapters.Scanner    = (*Store)(nil)
	_ adapters.Describer  = (*Store)(nil)
	_ adapters.Writer     = (*Store)(nil)
	_ adapters.Deleter    = (*Store)(nil)
	_ adapters.Matcher    = (*Store)(nil)
	_ adapters.Excluder   = (*Store)(nil)
	_ adapters.Aliaser    = (*Store)(nil)
	_ adapters.Identifier = (*Store)(nil)
	_ adapters.Inspector  = (*Store)(nil)
)

// Defaults of Options. Qdrant itself limits neither the depth of a list nor the number
// of probes or vectors. A collection in strict mode does, and so lowers these limits.
const (
	DefaultMaxDepth        = 65_536
	DefaultMaxProbes       = 1_024
	DefaultMaxVectorFields = 256
	DefaultMaxMessageBytes = 1 << 30
	DefaultConnections     = 4
	DefaultTimeout         = 30 * time.Second
	DefaultDescribeFor     = 5 * time.Second
)

// Options configures the connection to a server. Only Address is required.
type Options struct {
	// Address is host:port of the gRPC port, usually 6334.
	Address string
	// APIKey is sent with every call. Without TLS it is sent unencrypted.
	APIKey string
	// TLS, if not nil, encrypts the connections.
	TLS *tls.Config
	// Limits replaces the defaults with its non-zero fields. MaxMessageBytes limits
	// requests and answers.
	Limits adapters.Limits
	// Connections is the number of HTTP/2 connections, which calls use in turn. Qdrant
	// closes a connection on which many calls were cancelled, and so fails the other
	// calls on it; a retry then uses another connection.
	Connections int
	// Timeout limits a call whose context has no deadline.
	Timeout time.Duration
	// DescribeFor is how long a collection's description is cached. If a collection is
	// replaced by one of another metric under the same name, the adapter notices after
	// this time. It notices another dimension, a missing field, or an alias switched
	// through this Store at once.
	DescribeFor time.Duration
	// DialOptions are added after the adapter's own.
	DialOptions []grpc.DialOption
}

func (o Options) completed() Options {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&o.Limits.MaxDepth, DefaultMaxDepth)
	set(&o.Limits.MaxProbes, DefaultMaxProbes)
	set(&o.Limits.MaxVectorFields, DefaultMaxVectorFields)
	set(&o.Limits.MaxMessageBytes, DefaultMaxMessageBytes)
	set(&o.Connections, DefaultConnections)
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.DescribeFor == 0 {
		o.DescribeFor = DefaultDescribeFor
	}
	return o
}

func (o Options) dialOptions() []grpc.DialOption {
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	dial := append(traceparent.DialOptions(),
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.Limits.MaxMessageBytes), grpc.MaxCallSendMsgSize(o.Limits.MaxMessageBytes), uncompressed.Answers()),
		// Detects a dead link within half a minute, even when idle. Qdrant allows such
		// pings.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		// Reconnects within a second after a server returns, not within two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
	if o.APIKey != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(apiKey(o.APIKey)))
	}
	return append(dial, o.DialOptions...)
}

// apiKey adds Qdrant's key header to a call, unless the call uses a caller's own
// credentials.
type apiKey string

func (k apiKey) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if adapters.IsAsCaller(ctx) {
		return nil, nil
	}
	return map[string]string{"api-key": string(k)}, nil
}

func (apiKey) RequireTransportSecurity() bool { return false }

// Store is a connection to a Qdrant server. It is safe for concurrent use.
type Store struct {
	options Options
	clients []*qdrant.GrpcClient
	next    atomic.Uint64
	wire    grpc.CallOption             // decodes a *reply
	infos   recent.Cache[string, *info] // by collection or alias
}

// Open prepares the connections to a server without calling it, so a server that is
// down is no error. It returns ErrStore if the address or a limit is invalid.
func Open(o Options) (*Store, error) {
	if o.Address == "" {
		return nil, fmt.Errorf("%w: the address of Qdrant is empty; give host:port of its gRPC port", adapters.ErrStore)
	}
	l := o.Limits
	if min(l.MaxDepth, l.MaxProbes, l.MaxVectorFields, l.MaxMessageBytes, o.Connections) < 0 || o.Timeout < 0 || o.DescribeFor < 0 {
		return nil, fmt.Errorf("%w: a limit, the connections or a time of Qdrant at %s is negative: %+v", adapters.ErrStore, o.Address, l)
	}
	o = o.completed()
	s := &Store{options: o, infos: recent.Cache[string, *info]{Keep: o.DescribeFor}, wire: wire.CallOption()}
	for range o.Connections {
		conn, err := grpc.NewClient(o.Address, o.dialOptions()...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: address %q: %w", adapters.ErrStore, o.Address, err), s.Close())
		}
		s.clients = append(s.clients, qdrant.NewGrpcClientFromConn(conn))
	}
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() error {
	var errs []error
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Ping lists the collections, which needs the same key as searches.
func (s *Store) Ping(ctx context.Context) error {
	_, err := call(ctx, s, "ping", "", func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.ListCollectionsResponse, error) {
		return c.Collections().List(ctx, &qdrant.ListCollectionsRequest{})
	})
	return err
}

// call makes one call on the next connection. It does not retry; package guard retries
// reads within a budget.
func call[T any](ctx context.Context, s *Store, what, collection string, do func(context.Context, *qdrant.GrpcClient) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("qdrant at %s, %s: %w", s.options.Address, what, err)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.Timeout)
		defer cancel()
	}
	answer, err := do(ctx, s.client())
	if err != nil {
		return none, s.translate(ctx, err, what, collection)
	}
	return answer, nil
}

func (s *Store) client() *qdrant.GrpcClient {
	return s.clients[s.next.Add(1)%uint64(len(s.clients))]
}

// timeoutSeconds converts the remaining time of the context to Qdrant's own timeout, in whole
// seconds rounded up. A gRPC deadline does not stop the work in Qdrant; this timeout
// does.
func (s *Store) timeoutSeconds(ctx context.Context) *uint64 {
	left := s.options.Timeout
	if deadline, has := ctx.Deadline(); has {
		left = time.Until(deadline)
	}
	return qdrant.PtrOf(uint64(max(1, (left+time.Second-1)/time.Second)))
}
