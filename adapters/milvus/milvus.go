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
	"errors"
	"fmt"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/recent"
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
	server
	schemas recent.Cache[string, *collection] // by collection or alias
	norms   recent.Cache[normsOf, float64]    // estimates of the greatest norm
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
		server:  server{options: o},
		schemas: recent.Cache[string, *collection]{Keep: o.SchemaTTL},
		norms:   recent.Cache[normsOf, float64]{Keep: normTTL},
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	return s, nil
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
