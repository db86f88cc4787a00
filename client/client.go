// Package client sends searches to likeness sidecars, in plain Go types. A Client
// distributes calls over all its sidecars, leaves out sidecars that are not ready,
// retries a failed call on another sidecar within a budget, and converts statuses to
// distinguishable errors.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // the health checks of the service configuration
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// ErrOptions means that the address or the options are invalid.
var ErrOptions = errors.New("client options are not valid")

// Defaults of Options.
const (
	DefaultTimeout         = 10 * time.Second
	DefaultMaxMessageBytes = 64 << 20
)

// Options configures the connections to sidecars. The zero value uses plain text,
// without a token.
type Options struct {
	// TLS secures the connections. If it holds a certificate, the client presents it.
	// If nil, connections are plain text.
	TLS *tls.Config
	// Token returns the bearer token of a call; see StaticToken for a token that never
	// changes. It must be fast and safe for concurrent use. If it returns an error,
	// the call fails with ErrUnauthenticated. If nil, no token is sent.
	Token func(context.Context) (string, error)
	// AllowPlainToken permits a token on a connection without TLS to another machine,
	// which is otherwise an error.
	AllowPlainToken bool
	// Timeout limits a call whose context has no deadline. 0 means DefaultTimeout; a
	// negative value means no limit.
	Timeout time.Duration
	// MaxMessageBytes limits the size of an answer. 0 means DefaultMaxMessageBytes.
	MaxMessageBytes int
	// NoRetry turns retries off. Otherwise a call that a sidecar could not accept
	// (UNAVAILABLE) is sent up to three times. After several failures in a row, at
	// most one retry is allowed for every ten successful calls.
	NoRetry bool
	// Dial holds further gRPC options, such as interceptors or a statistics handler,
	// which are applied last.
	Dial []grpc.DialOption
}

// StaticToken returns an Options.Token for a token that never changes.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// Client sends calls to sidecars. It is safe for concurrent use.
type Client struct {
	conn    *grpc.ClientConn
	search  likenessv1.SearchServiceClient
	catalog likenessv1.CatalogServiceClient
	events  likenessv1.FeedbackServiceClient
	token   func(context.Context) (string, error) // nil if no token is sent
	timeout time.Duration
}

// Dial creates a client of the sidecars at target: one host:port, several separated by
// commas, or a gRPC target such as dns:///likeness.example:7600, all of whose
// addresses are used. It connects only with the first call. It returns ErrOptions.
func Dial(target string, o Options) (*Client, error) {
	options, err := o.dialOptions(target)
	if err != nil {
		return nil, err
	}
	if static := addresses(target); static != nil {
		r := manual.NewBuilderWithScheme("likeness")
		r.InitialState(resolver.State{Addresses: static})
		options = append(options, grpc.WithResolvers(r))
		target = "likeness:///" + host(static[0].Addr)
	}
	conn, err := grpc.NewClient(target, append(options, o.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	c := &Client{
		conn: conn, search: likenessv1.NewSearchServiceClient(conn), catalog: likenessv1.NewCatalogServiceClient(conn),
		events: likenessv1.NewFeedbackServiceClient(conn),
		token:  o.Token, timeout: o.Timeout,
	}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	return c, nil
}

// Close closes the connections. Calls in flight end with ErrClosed.
func (c *Client) Close() error { return c.conn.Close() }

// Conn returns the connection, for methods that this package lacks:
// likenessv1.NewAdminServiceClient(c.Conn()).
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// addresses parses a list of addresses. It returns nil if gRPC must resolve the
// target.
func addresses(target string) []resolver.Address {
	if strings.Contains(target, "://") || !strings.Contains(target, ",") {
		return nil
	}
	var out []resolver.Address
	for one := range strings.SplitSeq(target, ",") {
		out = append(out, resolver.Address{Addr: strings.TrimSpace(one), ServerName: host(strings.TrimSpace(one))})
	}
	return out
}

func host(address string) string {
	if name, _, err := net.SplitHostPort(address); err == nil {
		return name
	}
	return address
}

// serviceConfig balances calls over the addresses whose health service reports that
// they answer searches. gRPC throttles retries (A6): a failure takes one of ten
// tokens, a success returns a tenth of a token, and with fewer than half of the tokens
// nothing is retried.
const serviceConfig = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"healthCheckConfig": {"serviceName": "likeness.v1.SearchService"},
	"methodConfig": [{
		"name": [{"service": "likeness.v1.SearchService"}, {"service": "likeness.v1.CatalogService"}, {"service": "likeness.v1.FeedbackService"}],
		"retryPolicy": {
			"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}],
	"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
}`

func (o Options) dialOptions(target string) ([]grpc.DialOption, error) {
	most := o.MaxMessageBytes
	if most == 0 {
		most = DefaultMaxMessageBytes
	}
	if most < 0 || most > math.MaxInt32 {
		return nil, fmt.Errorf("%w: MaxMessageBytes is %d, want 1 to %d", ErrOptions, o.MaxMessageBytes, math.MaxInt32)
	}
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(most)),
		// Detects a dead connection within half a minute. Sidecars permit one ping
		// every five seconds.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
	if o.NoRetry {
		options = append(options, grpc.WithDisableRetry())
	}
	if o.Token == nil {
		return options, nil
	}
	if o.TLS == nil && !o.AllowPlainToken && !ownMachine(target) {
		return nil, fmt.Errorf("%w: a token would cross the network in plain text; give TLS, or AllowPlainToken", ErrOptions)
	}
	return append(options, grpc.WithPerRPCCredentials(bearer{o.Token})), nil
}

// ownMachine reports whether every address of a target is on this machine.
func ownMachine(target string) bool {
	for one := range strings.SplitSeq(target, ",") {
		name := host(strings.TrimSpace(one))
		ip := net.ParseIP(name)
		if name != "localhost" && (ip == nil || !ip.IsLoopback()) && !strings.HasPrefix(one, "unix:") {
			return false
		}
	}
	return true
}

// bearer adds a token to every call. dialOptions has checked whether a token may be
// sent without TLS.
type bearer struct {
	token func(context.Context) (string, error)
}

var _ credentials.PerRPCCredentials = bearer{}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

const requestIDHeader = "x-request-id"

// WithRequestID gives the calls of a context an id, which appears in the sidecar's
// log. The sidecar accepts up to 128 printable characters, and otherwise generates an
// id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, requestIDHeader, id)
}

// call makes one call with a deadline, and converts its error to an error of this
// package.
func call[Request, Response any](
	ctx context.Context, c *Client, r Request, method func(context.Context, Request, ...grpc.CallOption) (Response, error),
) (Response, string, error) {
	if _, ok := ctx.Deadline(); !ok && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if c.token != nil { // health checks need the token too: without it no connection becomes ready, and the call would wait in vain
		if _, err := c.token(ctx); err != nil {
			var none Response
			return none, "", fromStatus(status.Error(codes.Unauthenticated, "token: "+err.Error()), "")
		}
	}
	var header metadata.MD
	response, err := method(ctx, r, grpc.Header(&header))
	var id string
	if ids := header.Get(requestIDHeader); len(ids) > 0 {
		id = ids[0]
	}
	return response, id, fromStatus(err, id)
}
