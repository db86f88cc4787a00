// Package proxy stands where a database's clients expect the database: it
// listens for them, forwards what they send, and lets routes answer searches.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/internal/openfiles"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// ErrOptions says which option of a proxy is missing, or contradicts another one.
var ErrOptions = errors.New("proxy cannot be made")

// Endpoint is where a proxy listens and what it forwards to.
type Endpoint struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string
	// Upstream is the database's address: host:port for gRPC, the base URL for REST.
	Upstream string
	// TLS is the configuration towards the database. nil means plain text, or the system's
	// certificates for https.
	TLS *tls.Config
	// ListenTLS is the configuration towards clients; nil means plain text.
	ListenTLS *tls.Config
}

// Router answers calls in place of the database.
type Router interface {
	// Intercept returns the interceptors that may answer calls, by method.
	Intercept(upstream *rawgrpc.Upstream) map[string]rawgrpc.Interceptor
	// Close ends the router's background work.
	Close() error
}

// RESTRouter also answers REST requests in place of the database.
type RESTRouter interface {
	// WantsREST reports whether InterceptREST has to see requests of that method and
	// target.
	WantsREST(method, target string) bool
	InterceptREST(in *http.Request, body []byte, forward rest.Forward) rest.Reply
}

// Options say what a proxy forwards. An endpoint without an upstream is not served.
type Options struct {
	GRPC, REST Endpoint
	// Router, if not nil, answers searches that a route covers; over REST too, if
	// it is a RESTRouter.
	Router Router
	Logger *slog.Logger
	// MaxStreams limits the concurrent calls on one gRPC connection; MaxUnpacked limits the
	// uncompressed length of a compressed message. 0 means no limit.
	MaxStreams, MaxUnpacked int
	// Gate, if set, receives the requests that the Router reads.
	Gate *gate.Gate
	// Grace is how long calls in flight may take once the proxy stops.
	Grace time.Duration
}

func (o Options) check() error {
	if o.GRPC.Upstream == "" && o.REST.Upstream == "" {
		return fmt.Errorf("%w: it has no database to forward to", ErrOptions)
	}
	for name, e := range map[string]Endpoint{"gRPC": o.GRPC, "REST": o.REST} {
		if (e.Upstream == "") != (e.Listen == "") {
			return fmt.Errorf("%w: %s needs both the database's address and one to listen on", ErrOptions, name)
		}
	}
	return nil
}

// Addresses are the addresses at which a proxy listens. They are empty for endpoints that are not
// served.
type Addresses struct {
	GRPC string `json:"grpc,omitempty"`
	REST string `json:"rest,omitempty"`
}

// server forwards the connections of a listener.
type server interface {
	Serve(listener net.Listener) error
	Drain(ctx context.Context) (cut bool)
}

// endpoint is one listener and the server that answers on it.
type endpoint struct {
	name     string // name of the protocol, for errors
	address  string // address to listen on
	server   server
	listener net.Listener // nil before Listen
}

// Proxy forwards calls and requests. Close it if Run was never called.
type Proxy struct {
	options   Options
	addresses Addresses
	upstream  *rawgrpc.Upstream // nil without gRPC
	rest      *rest.Server      // nil without REST
	endpoints []endpoint
	running   atomic.Bool // set by Run, which drains the servers
	closeOnce func() error
}

// Listen creates a proxy and opens its listeners. It does not call the database. It returns the
// errors of New and Proxy.Listen.
func Listen(ctx context.Context, o Options) (*Proxy, error) {
	p, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := p.Listen(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// New creates a proxy without listeners. It does not call the database. It returns ErrOptions,
// rest.ErrURL, or the error of an invalid address.
func New(o Options) (*Proxy, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{options: o}
	p.closeOnce = sync.OnceValue(p.closeAll)
	if err := errors.Join(p.addGRPC(), p.addREST()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Listen opens the listeners. It must be called before Run. It returns the error of the first
// listener that cannot be opened.
func (p *Proxy) Listen(ctx context.Context) error {
	for i := range p.endpoints {
		e := &p.endpoints[i]
		listener, err := listen(ctx, e.name, e.address)
		if err != nil {
			return err
		}
		e.listener = openfiles.Listener(listener, p.options.Logger)
		if e.name == restName {
			p.addresses.REST = listener.Addr().String()
		} else {
			p.addresses.GRPC = listener.Addr().String()
		}
	}
	return nil
}

// CheckREST asks whether the database's REST address serves HTTP. It returns rest.ErrURL if the
// address speaks another protocol, or the network's error. Without REST it does nothing.
func (p *Proxy) CheckREST(ctx context.Context) error {
	if p.rest == nil {
		return nil
	}
	return p.rest.Check(ctx)
}

// The protocols of the endpoints, as errors name them.
const (
	grpcName = "gRPC"
	restName = "REST"
)

func (p *Proxy) addGRPC() error {
	e := p.options.GRPC
	if e.Upstream == "" {
		return nil
	}
	var err error
	if p.upstream, err = rawgrpc.Dial(e.Upstream, e.TLS, p.options.Gate); err != nil {
		return err
	}
	o := rawgrpc.Options{Upstream: p.upstream, TLS: e.ListenTLS, MaxStreams: p.options.MaxStreams, MaxUnpacked: p.options.MaxUnpacked, Gate: p.options.Gate, Logger: p.options.Logger}
	if p.options.Router != nil {
		o.Intercept = p.options.Router.Intercept(p.upstream)
	}
	p.endpoints = append(p.endpoints, endpoint{name: grpcName, address: e.Listen, server: rawgrpc.NewServer(o)})
	return nil
}

func (p *Proxy) addREST() error {
	e := p.options.REST
	if e.Upstream == "" {
		return nil
	}
	o := rest.Options{Upstream: e.Upstream, UpstreamTLS: e.TLS, ServerTLS: e.ListenTLS, Logger: p.options.Logger, Gate: p.options.Gate}
	if r, ok := p.options.Router.(RESTRouter); ok {
		o.Intercept, o.Wants = r.InterceptREST, r.WantsREST
	}
	server, err := rest.NewServer(o)
	if err != nil {
		return err
	}
	p.rest = server
	p.endpoints = append(p.endpoints, endpoint{name: restName, address: e.Listen, server: server})
	return nil
}

func listen(ctx context.Context, what, address string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s of the proxy: %w", what, err)
	}
	return l, nil
}

// Addresses returns the addresses at which the proxy listens.
func (p *Proxy) Addresses() Addresses { return p.addresses }

// Run forwards until ctx ends or a listener fails, and then drains. It may be called once.
func (p *Proxy) Run(ctx context.Context) error {
	p.running.Store(true)
	group, ctx := errgroup.WithContext(ctx)
	for _, e := range p.endpoints {
		group.Go(func() error { return e.server.Serve(e.listener) })
	}
	group.Go(func() error {
		<-ctx.Done()
		p.drain()
		return nil
	})
	return errors.Join(group.Wait(), p.Close())
}

// drain drains all endpoints concurrently.
func (p *Proxy) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), p.options.Grace)
	defer cancel()
	cut := make([]bool, len(p.endpoints))
	var group errgroup.Group
	for i, e := range p.endpoints {
		group.Go(func() error {
			cut[i] = e.server.Drain(ctx)
			return nil
		})
	}
	_ = group.Wait()
	if slices.Contains(cut, true) {
		p.options.Logger.Warn("calls were cut after the grace period", "grace", p.options.Grace.String())
	}
}

// Close releases the listeners, the router and the connections, once.
func (p *Proxy) Close() error { return p.closeOnce() }

func (p *Proxy) closeAll() (err error) {
	if !p.running.Load() { // the servers have started workers, but serve no calls
		p.drain()
	}
	for _, e := range p.endpoints {
		if e.listener != nil {
			_ = e.listener.Close() // Serve has usually closed it already
		}
	}
	if p.options.Router != nil {
		err = p.options.Router.Close()
	}
	if p.upstream != nil {
		err = errors.Join(err, p.upstream.Close())
	}
	return err
}
