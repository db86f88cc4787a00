// Package gateway serves the API as JSON over HTTP. The google.api.http options in
// proto/likeness/v1 define the paths and bodies. Each request becomes a gRPC call inside this
// process, so that the tokens, limits, metrics and logs of gRPC apply.
package gateway

import (
	"context"
	"crypto/tls"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	gatewayv1 "github.com/likenessdb/likeness/proto/gen/gateway/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/server"
)

// statusHeader marks a degraded answer: "degraded; reason=…".
const statusHeader = "Likeness-Status"

// healthPath serves the health of gRPC: of the process, or of ?service=route/NAME. As in gRPC it
// takes no token.
const healthPath = "/healthz"

// maxHeaderBytes bounds the headers of a request.
const maxHeaderBytes = 64 << 10

// pipeBytes is the buffer size of the connection between the gateway and the server in this
// process.
const pipeBytes = 1 << 20

//go:embed openapi.swagger.json
var schema []byte

// Options configures a Gateway. All but TLS, Private and AllowedHosts are required.
type Options struct {
	Server *server.Server
	// TLS, if it names a certificate, secures the listener.
	TLS server.TLS
	// Private: everybody who reaches the listener is trusted, because only processes on this
	// machine can. A web page in a browser on this machine can reach it too, so the Host header is
	// checked: localhost, addresses, and the names in AllowedHosts pass.
	Private      bool
	AllowedHosts []string
	// MaxMessageBytes limits the JSON of a request, decompressed, and the messages of the calls.
	MaxMessageBytes int
	// MaxConcurrentStreams limits the requests in flight on one HTTP/2 connection.
	MaxConcurrentStreams int
	// Gate, if set, receives the bodies, and limits how many long ones are parsed at a time.
	Gate     *gate.Gate
	Recorder server.Recorder
	Logger   *slog.Logger
}

// Gateway serves JSON over HTTP. Its methods are safe for concurrent use.
type Gateway struct {
	options Options
	paths   []string // methods and paths of the API, as "POST /v1/routes/{route}:search"
	http    *http.Server
	local   *grpc.Server
	pipe    *bufconn.Listener
	conn    *grpc.ClientConn
}

// New makes a gateway to a server. It returns server.ErrTLS if a certificate cannot be used. The
// caller must call Run or Drain, which free the gateway's resources.
func New(o Options) (*Gateway, error) {
	g := &Gateway{options: o, local: o.Server.Local(), pipe: bufconn.Listen(pipeBytes)}
	var secure *tls.Config
	if o.TLS.CertFile != "" {
		var err error
		if secure, err = o.TLS.Listener(o.Logger, "h2", "http/1.1"); err != nil {
			return nil, err
		}
	}
	var err error
	if g.paths, err = listPaths(schema); err != nil {
		return nil, err
	}
	if g.conn, err = dial(g.pipe, o.MaxMessageBytes); err != nil {
		return nil, err
	}
	mux, err := g.mux()
	if err != nil {
		return nil, errors.Join(err, g.conn.Close())
	}
	g.http = &http.Server{
		Handler: g.guard(mux), TLSConfig: secure, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          gate.HTTP2(o.MaxConcurrentStreams),
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), // errors of callers that went away
	}
	return g, nil
}

// listPaths lists the methods and paths of an OpenAPI document, sorted.
func listPaths(document []byte) (paths []string, err error) {
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &api); err != nil {
		return nil, fmt.Errorf("openapi.swagger.json: %w", err)
	}
	for path, methods := range api.Paths {
		for method := range methods {
			paths = append(paths, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

func dial(pipe *bufconn.Listener, maxBytes int) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(pipeBytes), grpc.WithInitialConnWindowSize(16*pipeBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBytes), grpc.MaxCallSendMsgSize(maxBytes)))
}

// mux maps paths to methods.
func (g *Gateway) mux() (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newCodec()),
		runtime.WithIncomingHeaderMatcher(incoming),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithForwardResponseOption(g.answering),
		runtime.WithErrorHandler(g.refuseCall),
		runtime.WithRoutingErrorHandler(g.refusePath),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithHealthEndpointAt(grpc_health_v1.NewHealthClient(g.conn), healthPath),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gatewayv1.RegisterSearchServiceHandler, gatewayv1.RegisterCatalogServiceHandler, gatewayv1.RegisterAdminServiceHandler, gatewayv1.RegisterFeedbackServiceHandler,
	} {
		if err := register(context.Background(), mux, g.conn); err != nil {
			return nil, fmt.Errorf("paths of the API: %w", err)
		}
	}
	for path, form := range map[string]rerankForm{"/v1/rerank": cohereV1, "/v2/rerank": cohereV2, "/rerank": teiForm, "/v1/routes/{route}/rerank": teiForm} {
		if err := mux.HandlePath(http.MethodPost, path, g.rerank(mux, form)); err != nil {
			return nil, fmt.Errorf("paths of rerank: %w", err)
		}
	}
	err := mux.HandlePath(http.MethodGet, "/openapi.json", func(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(schema)
	})
	return mux, err
}

// incoming selects the headers that are passed on to the call, in addition to authorization and
// Grpc-Timeout.
func incoming(header string) (string, bool) {
	switch header {
	case "X-Request-Id", "Traceparent", "Tracestate":
		return header, true
	}
	return "", false
}

// jsonFactor is how many bytes of JSON, and of its buffer, an answer has for each byte of its message, about.
const jsonFactor = 6

// answering sets the headers of an answer, and takes the memory of its JSON, which a client that does not read keeps for a while.
func (g *Gateway) answering(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	if err := g.options.Gate.Reserve(ctx, jsonFactor*int64(proto.Size(m))); err != nil {
		return err
	}
	setAnswerHeaders(ctx, w)
	return nil
}

// setAnswerHeaders sets the headers of an answer.
func setAnswerHeaders(ctx context.Context, w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(gate.StallTimeout))
	if call, ok := runtime.ServerMetadataFromContext(ctx); ok {
		for _, value := range call.TrailerMD.Get(server.StatusTrailer) {
			w.Header().Add(statusHeader, value)
		}
	}
}

// Run answers requests until Drain. It closes the listener.
func (g *Gateway) Run(listener net.Listener) error {
	ended := make(chan error, 1)
	go func() {
		err := g.local.Serve(g.pipe)
		if errors.Is(err, grpc.ErrServerStopped) {
			err = nil
		}
		ended <- err
	}()
	serve := g.http.Serve
	if g.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return g.http.ServeTLS(l, "", "") }
	}
	err := serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		return <-ended // Drain has ended it
	}
	g.local.Stop()
	return errors.Join(fmt.Errorf("HTTP on %s: %w", listener.Addr(), err), g.conn.Close(), <-ended)
}

// Drain accepts no more requests and waits up to grace for those in flight. Then it cuts them.
func (g *Gateway) Drain(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := g.http.Shutdown(ctx); err != nil {
		g.options.Logger.Warn("requests are cut after the grace period; raise shutdown.grace to give them more", "grace", grace.String())
		_ = g.http.Close()
	}
	_ = g.conn.Close()
	g.local.Stop()
}
