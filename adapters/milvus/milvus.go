// Package milvus is the adapter for Milvus 2.3 and later and for milvus-lite, based on
// milvus-sdk-go.
//
// The SDK connects, authenticates and defines collections. Searches, queries and
// writes use the SDK's raw stub, because the SDK's typed calls cache a collection's
// schema by name (which an alias switch makes stale) and check only the old error
// code. One interceptor converts every refusal, from either kind of call, to the
// sentinel errors of package adapters (status.go).
//
// A companion collection (Create) has one vector column for each field if the server
// allows so many, and otherwise one row for each field of an item. The collection's
// description records the layout (layout.go). Payloads are in the dynamic field, so
// that filters work as on the user's collection.
package milvus

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	grpc_retry "github.com/grpc-ecosystem/go-grpc-middleware/retry"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/wire"
	"github.com/likenessdb/likeness/internal/recent"
	"github.com/likenessdb/likeness/internal/traceparent"
)

// Default limits, used if neither Options nor the server gives others.
const (
	// DefaultMaxDepth is Milvus's quotaAndLimits.limits.topK and maxQueryResultWindow.
	DefaultMaxDepth = 16384
	// DefaultMaxProbes is Milvus's limit of query vectors in one search (nq).
	DefaultMaxProbes = 16384
	// DefaultMaxVectorFields is Milvus's proxy.maxVectorFieldNum.
	DefaultMaxVectorFields = 4
	// DefaultMaxMessageBytes is Milvus's proxy.grpc.serverMaxRecvSize.
	DefaultMaxMessageBytes = 64 << 20
	// DefaultMaxInFlight limits the concurrent calls, because milvus-lite starts a
	// thread for each.
	DefaultMaxInFlight = 64
	// DefaultSchemaTTL is how long a collection's schema is cached.
	DefaultSchemaTTL = 5 * time.Second
)

// Options configures the connection to a Milvus server. Only Address is required.
type Options struct {
	// Address is host:port. The prefix https:// selects TLS with the system's root
	// certificates.
	Address            string
	Username, Password string
	APIKey             string
	// TLS, if set, secures the connection.
	TLS *tls.Config
	// Database is the database of every call. If empty, it is the server's default.
	Database string
	// Limits replaces the default limits with its non-zero fields.
	Limits adapters.Limits
	// MaxInFlight limits the concurrent calls. If 0, it is DefaultMaxInFlight.
	MaxInFlight int
	// SchemaTTL is how long a schema is cached. If 0, it is DefaultSchemaTTL. An alias
	// that another program switches is noticed after at most this time.
	SchemaTTL time.Duration
	// SearchParams are the index parameters of every search, such as {"ef": 256} for
	// HNSW or {"nprobe": 64} for IVF.
	SearchParams map[string]any
	// Companion is the index of the fields that Create makes. The zero value is FLAT.
	Companion Index
	// DialOptions are added to the adapter's own.
	DialOptions []grpc.DialOption
}

// Index is an index type and its parameters, in Milvus's words.
type Index struct {
	Type   string            // FLAT, HNSW, IVF_FLAT, AUTOINDEX, ...
	Params map[string]string // {"M": "16", "efConstruction": "200"}
}

func (o Options) withDefaults() Options {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&o.Limits.MaxDepth, DefaultMaxDepth)
	set(&o.Limits.MaxProbes, DefaultMaxProbes)
	set(&o.Limits.MaxVectorFields, DefaultMaxVectorFields)
	set(&o.Limits.MaxMessageBytes, DefaultMaxMessageBytes)
	set(&o.MaxInFlight, DefaultMaxInFlight)
	if o.SchemaTTL <= 0 {
		o.SchemaTTL = DefaultSchemaTTL
	}
	if o.Companion.Type == "" {
		o.Companion.Type = "FLAT"
	}
	return o
}

// Store is a Milvus server. It is safe for concurrent use.
type Store struct {
	options Options
	sdk     client.Client
	raw     milvuspb.MilvusServiceClient
	conn    *grpc.ClientConn // connection of raw
	wire    grpc.CallOption  // decodes a *reply
	slots   *semaphore.Weighted
	schemas recent.Cache[string, *collection] // by collection or alias
	norms   recent.Cache[normsOf, float64]    // estimates of the greatest norm

	mu            sync.Mutex      // guards loweredLimits
	loweredLimits adapters.Limits // Options.Limits, lowered to the limits that the server has told
}

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

// New returns a store without calling the server, so that a server that is down does
// not keep a program from starting. Ping reports whether the server is up.
func New(ctx context.Context, o Options) (*Store, error) {
	if o.Address == "" {
		return nil, fmt.Errorf("%w: no address of a Milvus server; give host:port", adapters.ErrStore)
	}
	o = o.withDefaults()
	s := &Store{
		options:       o,
		loweredLimits: o.Limits,
		slots:         semaphore.NewWeighted(int64(o.MaxInFlight)),
		schemas:       recent.Cache[string, *collection]{Keep: o.SchemaTTL},
		norms:         recent.Cache[normsOf, float64]{Keep: normTTL},
	}
	sdk, err := client.NewClient(ctx, client.Config{
		Address:        o.Address,
		DBName:         o.Database,
		DisableConn:    true,
		RetryRateLimit: &client.RetryRateLimitOption{MaxRetry: 0},
		DialOptions:    s.dialOptions(),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: milvus at %s: %w", adapters.ErrUnavailable, o.Address, err)
	}
	grpcClient, ok := sdk.(*client.GrpcClient)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%w: the SDK returned a %T", adapters.ErrStore, sdk), sdk.Close())
	}
	s.sdk, s.raw, s.conn, s.wire = sdk, grpcClient.Service, grpcClient.Conn, wire.CallOption()
	return s, nil
}

// authorize adds the store's credentials to a call, as the SDK would, unless the call
// uses a caller's own credentials.
func (s *Store) authorize(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	secret := s.options.APIKey
	if s.options.Username != "" || s.options.Password != "" {
		secret = s.options.Username + ":" + s.options.Password
	}
	if secret != "" && !adapters.IsAsCaller(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// dialOptions replaces the SDK's defaults: no blocking dial, keepalive pings only
// during a call (milvus-lite answers other pings with too_many_pings), no retries, the
// adapter's own error conversion, and TLS with the given configuration, where the SDK
// only supports an empty tls.Config.
func (s *Store) dialOptions() []grpc.DialOption {
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

// Ping asks the server for its version. A server that does not implement the call
// counts as up.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.raw.GetVersion(ctx, &milvuspb.GetVersionRequest{})
	if errors.Is(err, adapters.ErrUnsupported) {
		return nil
	}
	return err
}

// Close closes the connection.
func (s *Store) Close() error { return s.sdk.Close() }

// SwitchAlias points the alias at the collection, creating the alias if need be. It
// returns ErrUnsupported on milvus-lite before version 3, which has no aliases.
func (s *Store) SwitchAlias(ctx context.Context, alias, collection string) error {
	defer s.forget(alias)
	err := s.sdk.AlterAlias(ctx, collection, alias)
	if errors.Is(err, errNoAlias) || errors.Is(err, adapters.ErrNotFound) { // milvus-lite calls both collections
		err = s.sdk.CreateAlias(ctx, collection, alias)
	}
	if err != nil {
		return fmt.Errorf("switch alias %q to %q: %w", alias, collection, err)
	}
	return nil
}

// limits returns the configured limits, lowered to the limits that the server has
// told.
func (s *Store) limits() adapters.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loweredLimits
}
