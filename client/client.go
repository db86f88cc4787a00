// Package client asks likeness sidecars for searches, in plain Go types. A Client
// balances over all sidecars that it is given, leaves out those that are not
// ready, tries a search again elsewhere within a budget, and turns statuses into
// errors that can be told apart.
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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // the service configuration asks for health checks
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// ErrOptions: the address or the options cannot be used.
var ErrOptions = errors.New("client options are not valid")

// Defaults of Options.
const (
	DefaultTimeout         = 10 * time.Second
	DefaultMaxMessageBytes = 64 << 20
)

// Options say how sidecars are reached. The zero value is plain text, without a token.
type Options struct {
	// TLS secures the connections; with a certificate in it the client presents one. nil is plain text.
	TLS *tls.Config
	// Token is asked for the bearer token of each call; StaticToken is one that never changes. It must be quick and
	// safe for concurrent use; its error ends the call. nil sends none.
	Token func(context.Context) (string, error)
	// AllowPlainToken lets a token cross a network in plain text. Without it that is an error, but to an address of
	// this machine.
	AllowPlainToken bool
	// Timeout bounds a call whose context has no deadline; 0 is DefaultTimeout, less than 0 none.
	Timeout time.Duration
	// MaxMessageBytes bounds an answer; 0 is DefaultMaxMessageBytes.
	MaxMessageBytes int
	// NoRetry makes every call once. Otherwise a call that a sidecar could not take (UNAVAILABLE) is made up to three
	// times, until a few have failed in a row: then at most one retry for ten calls that succeed.
	NoRetry bool
	// Dial are more options of gRPC, as interceptors or a statistics handler; they come last.
	Dial []grpc.DialOption
}

// StaticToken is a token that never changes, for Options.Token.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// Client asks sidecars. Its methods are safe for concurrent use.
type Client struct {
	conn    *grpc.ClientConn
	search  likenessv1.SearchServiceClient
	catalog likenessv1.CatalogServiceClient
	timeout time.Duration
}

// Dial makes a client of the sidecars at host:port, or several of them separated by
// commas, or at a target of gRPC as dns:///likeness.example:7600, whose addresses
// are all used. It makes no connection before the first call. It returns
// ErrOptions.
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
		timeout: o.Timeout,
	}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	return c, nil
}

// Close closes the connections. Calls in flight end with ErrClosed.
func (c *Client) Close() error { return c.conn.Close() }

// Conn is the client's connection, for the methods that this package does not have:
// likenessv1.NewAdminServiceClient(c.Conn()).
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// addresses are those of a list; nil where the target is gRPC's to resolve.
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

// serviceConfig: every address takes its turn while its health says that searches
// are answered. The throttle is gRPC's (A6): a failure takes one token of ten, a
// success gives back a tenth, and below half of them nothing is tried again.
const serviceConfig = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"healthCheckConfig": {"serviceName": "likeness.v1.SearchService"},
	"methodConfig": [{
		"name": [{"service": "likeness.v1.SearchService"}, {"service": "likeness.v1.CatalogService"}],
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
		// A connection whose other end is gone without a word is found within half a minute. Sidecars take pings every five
		// seconds at most.
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

// ownMachine reports whether all addresses of a target are this machine's.
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

// bearer sends a token with every call. Whether it may without TLS was decided by dialOptions.
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

// WithRequestID gives the calls of a context an id, which the sidecar's log then has.
// Up to 128 printable characters are kept; otherwise the sidecar makes its own.
func WithRequestID(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, requestIDHeader, id)
}

// call makes one call: with a deadline, and with an error of this package.
func call[Request, Response any](
	ctx context.Context, c *Client, r Request, method func(context.Context, Request, ...grpc.CallOption) (Response, error),
) (Response, string, error) {
	if _, ok := ctx.Deadline(); !ok && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	var header metadata.MD
	response, err := method(ctx, r, grpc.Header(&header))
	var id string
	if ids := header.Get(requestIDHeader); len(ids) > 0 {
		id = ids[0]
	}
	return response, id, fromStatus(err, id)
}
