// Package rest forwards HTTP requests to a database's REST API as they came:
// paths, queries, headers and bodies are not interpreted.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

const (
	// maxBuffered is the largest body that is read before it is sent on; it is
	// Qdrant's own limit. Greater ones are streamed.
	maxBuffered = 32 << 20
	// maxHeaderBytes bounds a request's head: a path may name many points.
	maxHeaderBytes = 256 << 10
	// lastBytes is how long a body that nobody wants any more may still come.
	lastBytes = 5 * time.Second
	// idleConnections outlive no keep-alive of Qdrant, which is five seconds.
	idleConnections = 4 * time.Second
)

// ErrURL reports an address that is not the URL of a REST API.
var ErrURL = errors.New("not the URL of a REST API")

// Options configure a Server. Only Upstream is required.
type Options struct {
	// Upstream is the database's base URL, http or https, without a path.
	Upstream string
	// ServerTLS, if not nil, is the listener's; UpstreamTLS that towards the database.
	ServerTLS, UpstreamTLS *tls.Config
	Logger                 *slog.Logger
	// Gate, if set, receives the bodies that are read before they go on.
	Gate *gate.Gate
	// Intercept, if not nil, sees each request before it goes on.
	Intercept Interceptor
}

// Server forwards every request it gets. It is safe for concurrent use.
type Server struct {
	http      *http.Server
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	upstream  *url.URL
	log       *slog.Logger
	gate      *gate.Gate
	most      int64 // the largest body that is read before it goes on
	intercept Interceptor
}

// NewServer makes a server; it calls nothing. It returns ErrURL.
func NewServer(o Options) (*Server, error) {
	upstream, err := url.Parse(o.Upstream)
	if err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" || strings.Trim(upstream.Path, "/") != "" {
		return nil, fmt.Errorf("%w; write http://host:port, or https, without a path", ErrURL)
	}
	most, _ := o.Gate.MaxMessageBytes(maxBuffered)
	s := &Server{upstream: upstream, log: o.Logger, intercept: o.Intercept, gate: o.Gate, most: int64(most)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.transport = newTransport(o.UpstreamTLS)
	s.proxy = &httputil.ReverseProxy{
		Rewrite: s.rewrite, Transport: retry{s.transport}, ErrorHandler: s.unreachable, BufferPool: newBuffers(),
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // answers that either side cut
		ModifyResponse: func(a *http.Response) error {
			if p := passingOf(a.Request.Context()); p != nil {
				return p.answered(a)
			}
			return nil
		},
	}
	s.http = newHTTPServer(s, o.ServerTLS)
	return s, nil
}

// Check asks the database for the root of its API, which Qdrant shows without
// credentials. It returns ErrURL if what answers does not speak HTTP, as a port of gRPC
// does not, or the error of the network if nothing answers.
func (s *Server) Check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.upstream.Scheme+"://"+s.upstream.Host+"/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := s.transport.RoundTrip(request)
	if err == nil {
		return response.Body.Close()
	}
	var dial *net.OpError
	if ctx.Err() != nil || errors.As(err, &dial) {
		return fmt.Errorf("the REST API at %s does not answer: %w", s.upstream.Host, err)
	}
	return fmt.Errorf("%w: %s does not speak HTTP/1.1: %w; name the port of the REST API, which is not that of gRPC (Qdrant's are 6333 and 6334)",
		ErrURL, s.upstream.Host, err)
}

func newTransport(secure *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: secure, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression: true, // Accept-Encoding is the client's
		MaxIdleConns:       0, MaxIdleConnsPerHost: 256, IdleConnTimeout: idleConnections,
		ReadBufferSize: 32 << 10, WriteBufferSize: 32 << 10,
	}
}

func newHTTPServer(s *Server, secure *tls.Config) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s, TLSConfig: secure, Protocols: protocols, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxReceiveBufferPerStream: gate.BodyWindowBytes, MaxReceiveBufferPerConnection: gate.BodiesWindowBytes},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients that went away
	}
}

// ServeHTTP forwards one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !cutFragment(r) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	// The database's headers are the answer's: nothing is guessed in their place.
	w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
	var body []byte
	if s.streamed(r) {
		// An answer may begin before the body has ended. HTTP/2 always can.
		_ = http.NewResponseController(w).EnableFullDuplex()
		paceBody(w, r)
		// What an early answer leaves of the body is read by net/http, in that time.
		defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lastBytes)) }()
	} else {
		taken, err := s.receive(w, r)
		defer taken.Release()
		if err == nil {
			body, err = s.buffer(r)
		}
		if err != nil {
			s.notReceived(w, r, err)
			return
		}
		taken.Shrink(int64(len(body)))
		if s.gate.CountsBytes() {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
	}
	if s.intercept != nil {
		s.intercepted(w, r, body)
		return
	}
	s.proxy.ServeHTTP(w, r)
}

// paceBody makes reading a body fail where its client is too slow.
func paceBody(w http.ResponseWriter, r *http.Request) *gate.Body {
	body := gate.NewBody(r.Body, http.NewResponseController(w))
	r.Body = struct {
		io.Reader
		io.Closer
	}{body, r.Body}
	return body
}

// receive lets a body come that is read before it goes on.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) (*gate.Grant, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	return s.gate.ReceiveBody(r.Context(), paceBody(w, r), r.ContentLength, s.most)
}

// cutFragment removes what lies behind a # in a request's target, which is no part of
// a request and which databases ignore: net/http takes it for a part of the path or of
// the query. What is forwarded is then what interceptors read.
func cutFragment(r *http.Request) (ok bool) {
	target, _, found := strings.Cut(r.RequestURI, "#")
	if !found {
		return true
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	r.RequestURI, r.URL = target, u
	return true
}

// EscapedPath is the path of a request as it is forwarded, byte for byte.
func EscapedPath(r *http.Request) string {
	if path, ok := rawPath(r); ok {
		return path
	}
	return r.URL.EscapedPath()
}

// rawPath is the path as the client wrote it, if it can be forwarded so.
func rawPath(r *http.Request) (path string, ok bool) {
	path = r.RequestURI
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = path[:end]
	}
	return path, strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//")
}

// streamed reports whether a body goes on while it is read: uploads of
// snapshots, and what is longer than the database takes otherwise.
func (s *Server) streamed(r *http.Request) bool {
	return r.ContentLength > s.most || strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/") ||
		r.Header.Get("Upgrade") != ""
}

// buffer reads the body, so that an answer that comes early finds it whole and
// a connection that the database had closed costs one more try. It returns no
// body that is too long to be held.
func (s *Server) buffer(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		replace(r, nil)
		return nil, nil
	}
	var b bytes.Buffer
	if r.ContentLength > 0 {
		known := r.ContentLength
		if !s.gate.CountsBytes() { // what is only claimed is not believed at once
			known = min(known, gate.BodyWindowBytes)
		}
		b.Grow(int(known) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(r.Body, s.most+1))
	if err != nil {
		return nil, err
	}
	if n > s.most { // its length was not told
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&b, r.Body), r.Body}
		return nil, nil
	}
	replace(r, b.Bytes())
	return b.Bytes(), nil
}

// replace gives a request a body that can be read again.
func replace(r *http.Request, body []byte) {
	r.GetBody = func() (io.ReadCloser, error) {
		if len(body) == 0 {
			return http.NoBody, nil
		}
		return io.NopCloser(bytes.NewReader(body)), nil
	}
	r.Body, _ = r.GetBody()
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
}

// rewrite sends a request to the database as it came; ReverseProxy has removed
// what belongs to one connection, and more, which comes back here.
func (s *Server) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = s.upstream.Scheme, s.upstream.Host, ""
	p.Out.URL.RawQuery, p.Out.URL.ForceQuery = p.In.URL.RawQuery, p.In.URL.ForceQuery
	if path, ok := rawPath(p.In); ok {
		p.Out.URL.Opaque = path // not escaped again
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
	if p.In.GetBody != nil {
		p.Out.GetBody = p.In.GetBody
		if p.Out.Body != nil {
			p.Out.Body, _ = p.In.GetBody() // unlike ReverseProxy's own, net/http sends it in one piece with the headers
		}
		p.Out.Header.Del("Expect") // the body is here already
	}
}

// notReceived answers a request whose body did not come, or was not let in.
func (s *Server) notReceived(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lastBytes)) // net/http reads what is left
	switch {
	case errors.Is(err, gate.ErrFull):
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusTooManyRequests, err.Error())
		return
	case errors.Is(err, gate.ErrStalled):
		writeError(w, http.StatusRequestTimeout, err.Error())
		return
	}
	s.log.DebugContext(r.Context(), "the request body ended early", "error", err)
	w.WriteHeader(http.StatusBadRequest)
}

// unreachable answers where the database did not.
func (s *Server) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if p := passingOf(r.Context()); p != nil {
		dial := (*net.OpError)(nil)
		p.end(Ending{Unsent: errors.As(err, &dial) && dial.Op == "dial" || p.body != nil && p.body.cut.Load()})
		if p.reply.Status != "" {
			w.Header()[StatusHeader] = []string{p.reply.Status}
		}
	}
	if errors.Is(err, gate.ErrStalled) { // it is the client that is silent
		writeError(w, http.StatusRequestTimeout, err.Error())
		return
	}
	if r.Context().Err() == nil { // otherwise the client went away
		s.log.WarnContext(r.Context(), "the database does not answer", "error", err)
	}
	answerError(w, http.StatusBadGateway, Unreachable(s.upstream.Host))
}

// writeError answers in the form of the database's errors.
func writeError(w http.ResponseWriter, status int, problem string) {
	answerError(w, status, errorBody(problem))
}

func answerError(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Unreachable is the body of an answer with the status 502, in the form of the
// database's errors: the database at this host does not answer.
func Unreachable(host string) []byte {
	return errorBody("the database at " + host + " does not answer")
}

func errorBody(problem string) []byte {
	var body struct {
		Status struct {
			Error string `json:"error"`
		} `json:"status"`
		Time float64 `json:"time"`
	}
	body.Status.Error = "likeness: " + problem
	b, _ := json.Marshal(body) // of a string and a number
	return append(b, '\n')
}

// Plain is the database's host:port where it speaks HTTP without TLS, or empty.
func (s *Server) Plain() string {
	if s.upstream.Scheme != "http" {
		return ""
	}
	return net.JoinHostPort(s.upstream.Hostname(), cmp.Or(s.upstream.Port(), "80"))
}

// Serve answers requests until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("REST on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Drain takes no more requests and waits for those in flight until ctx is done;
// then it cuts them. It reports whether it had to.
func (s *Server) Drain(ctx context.Context) (cut bool) {
	defer s.transport.CloseIdleConnections()
	if err := s.http.Shutdown(ctx); err == nil {
		return false
	}
	_ = s.http.Close() // listeners are closed already
	return true
}
