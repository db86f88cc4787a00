package trial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

// Access says where a server is and with which credentials it is asked.
type Access struct {
	// URL is http://host:port, https://host:port or host:port, of Qdrant's REST or gRPC
	// port or of Milvus.
	URL string
	// GRPC is host:port of Qdrant's gRPC port, if URL names its REST port and the gRPC
	// port is not the next one.
	GRPC string
	// KeyEnv and KeyFile name an environment variable or a file with the API key of
	// Qdrant or the token of Milvus. Both may be empty.
	KeyEnv, KeyFile string
	// Database is the database of Milvus.
	Database string
	// CAFile holds the authorities that sign the server's certificate, PEM. If empty, they
	// are the system's.
	CAFile string
}

// Server is a server that Find has recognised.
type Server struct {
	Kind    string `json:"kind"`              // qdrant or milvus
	Version string `json:"version,omitempty"` // if the server tells it
	Address string `json:"address"`           // host:port of its gRPC API
	REST    string `json:"rest,omitempty"`    // URL of Qdrant's REST API, if the trial was given its port
	TLS     bool   `json:"tls,omitempty"`
}

// String names the server as a sentence begins.
func (s Server) String() string {
	name := map[string]string{qdrantKind: "Qdrant", milvusKind: "Milvus"}[s.Kind]
	if s.Version != "" {
		name += " " + s.Version
	}
	return name + " at " + s.Address
}

const (
	qdrantKind = "qdrant"
	milvusKind = "milvus"
	// qdrantREST and milvusPort are tried if the URL names no port.
	qdrantREST = 6333
	milvusPort = 19530
	// probeWithin limits each question to an unknown server.
	probeWithin = 5 * time.Second
	// greeting is the most that is read of a server's answer.
	greeting = 1 << 16
)

// Find recognises the server at a URL: Qdrant by its REST port or its gRPC port, or
// Milvus. It writes nothing and sends the credentials only to a server that it has
// recognised. It returns a *RefusalError that says what answers instead.
func Find(ctx context.Context, a Access) (Server, error) {
	host, ports, secure, err := parseURL(a.URL)
	if err != nil {
		return Server{}, err
	}
	var failed error
	for _, port := range ports {
		address := net.JoinHostPort(host, strconv.Itoa(port))
		if failed = dial(ctx, address); failed != nil {
			continue
		}
		return a.recognise(ctx, host, port, secure)
	}
	return Server{}, &RefusalError{fmt.Sprintf("nothing answers at %s (%v); start the server, or give the address of Qdrant's REST or gRPC port (6333, 6334) or of Milvus (19530)",
		a.URL, reason(failed)), fmt.Errorf("%w: %w", adapters.ErrUnavailable, failed)}
}

// reason returns the part of a network error that a reader needs.
func reason(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}

// parseURL takes a URL apart. Without a port it returns the usual ones.
func parseURL(text string) (host string, ports []int, secure bool, err error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "grpc://" + text
	}
	u, err := url.Parse(full)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return "", nil, false, &RefusalError{fmt.Sprintf("%q is no server's address; write http://host:port, https://host:port or host:port, and the collection after it", text), err}
	}
	switch u.Scheme {
	case "http", "grpc", "tcp":
	case "https", "grpcs":
		secure = true
	default:
		return "", nil, false, &RefusalError{fmt.Sprintf("%q begins with %s://; write http://, https:// or host:port", text, u.Scheme), nil}
	}
	if u.Port() == "" {
		return u.Hostname(), []int{qdrantREST, milvusPort}, secure, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return "", nil, false, &RefusalError{fmt.Sprintf("%q has no port from 1 to 65535", text), err}
	}
	return u.Hostname(), []int{int(port)}, secure, nil
}

func dial(ctx context.Context, address string) error {
	d := net.Dialer{Timeout: probeWithin}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// recognise asks a port in HTTP what it is, and then in gRPC.
func (a Access) recognise(ctx context.Context, host string, port int, secure bool) (Server, error) {
	at := Server{Address: net.JoinHostPort(host, strconv.Itoa(port)), TLS: secure}
	said, err := a.greet(ctx, at)
	if err != nil {
		return Server{}, err
	}
	switch {
	case said.wrongScheme == "https":
		return Server{}, &RefusalError{fmt.Sprintf("the server at %s speaks TLS; write https://%s", at.Address, at.Address), nil}
	case said.wrongScheme == "http":
		return Server{}, &RefusalError{fmt.Sprintf("the server at %s does not speak TLS; write http://%s", at.Address, at.Address), nil}
	case said.certificate != nil:
		return Server{}, &RefusalError{fmt.Sprintf("the certificate of %s cannot be verified (%v); give its authority with --ca-file", at.Address, said.certificate), said.certificate}
	case said.qdrant != "":
		return a.findGRPC(ctx, host, port, secure, said.qdrant)
	}
	for _, kind := range []string{qdrantKind, milvusKind} {
		at.Kind = kind
		version, err := a.version(ctx, at)
		if err == nil {
			at.Version = version
			return at, nil
		}
		if ctx.Err() != nil {
			return Server{}, ctx.Err()
		}
	}
	if said.http != "" {
		return Server{}, &RefusalError{fmt.Sprintf("%s answers HTTP as %s, and is neither Qdrant nor Milvus; give the address of Qdrant's REST or gRPC port (6333, 6334) or of Milvus (19530)", a.URL, said.http), nil}
	}
	return Server{}, &RefusalError{fmt.Sprintf("the server at %s answers, but neither as Qdrant nor as Milvus; give the address of Qdrant's REST or gRPC port (6333, 6334) or of Milvus (19530)", at.Address), nil}
}

// findGRPC finds the gRPC port of a Qdrant whose REST port answered.
func (a Access) findGRPC(ctx context.Context, host string, restPort int, secure bool, version string) (Server, error) {
	rest := url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(restPort))}
	if secure {
		rest.Scheme = "https"
	}
	s := Server{Kind: qdrantKind, Version: version, TLS: secure, Address: a.GRPC, REST: rest.String()}
	if s.Address == "" {
		s.Address = net.JoinHostPort(host, strconv.Itoa(restPort+1))
	}
	if _, err := a.version(ctx, s); err != nil {
		return Server{}, &RefusalError{fmt.Sprintf("Qdrant %s answers at %s, but its gRPC port does not at %s; publish it (docker run -p 6334:6334), or say where it is with --grpc host:port",
			version, a.URL, s.Address), err}
	}
	return s, nil
}

// version asks the server in gRPC, as the kind that s names. It sends no credentials to
// another kind of server than Qdrant, whose version needs none.
func (a Access) version(ctx context.Context, s Server) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	anonymous := a
	anonymous.KeyEnv, anonymous.KeyFile = "", ""
	parts, err := open(ctx, anonymous, s)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	inspect := adapters.AbilitiesOf(parts.Stores[storeName]).Inspect
	version, err = inspect.Version(ctx)
	if s.Kind == milvusKind && errors.Is(err, adapters.ErrUnsupported) { // milvus-lite tells no version
		_, err = inspect.Collections(ctx)
	}
	if s.Kind == milvusKind && errors.Is(err, adapters.ErrRefused) {
		err = nil // a server that knows the call and wants a token
	}
	return version, err
}

// greetings describes the answer of a server to an HTTP request.
type greetings struct {
	qdrant      string // version of a Qdrant's REST port
	http        string // name and status of another HTTP server
	wrongScheme string // the scheme that the server speaks instead
	certificate error  // why the server's certificate is not trusted
}

// greet sends an HTTP request and reads what the answer says about the server.
func (a Access) greet(ctx context.Context, s Server) (g greetings, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	scheme := "http"
	transport := &http.Transport{DisableKeepAlives: true}
	if s.TLS {
		scheme = "https"
		if transport.TLSClientConfig, err = a.tls(); err != nil {
			return g, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+s.Address+"/", http.NoBody)
	if err != nil {
		return g, &RefusalError{fmt.Sprintf("%q is no server's address", a.URL), err}
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return describeFailure(err), nil
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, greeting))
	if strings.Contains(string(body), "HTTP request to an HTTPS") || strings.Contains(string(body), "plain HTTP request was sent to HTTPS") {
		return greetings{wrongScheme: "https"}, nil
	}
	var told struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	}
	if json.Unmarshal(body, &told) == nil && strings.HasPrefix(told.Title, "qdrant") {
		return greetings{qdrant: told.Version}, nil
	}
	name := answer.Header.Get("Server")
	if name == "" {
		name = "a server without a name"
	}
	return greetings{http: fmt.Sprintf("%.60s (status %d)", name, answer.StatusCode)}, nil
}

// describeFailure says what a failed HTTP request shows about the server. A gRPC server closes the connection,
// or answers in HTTP/2.
func describeFailure(err error) (g greetings) {
	var unverified *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unverified):
		g.certificate = unverified.Err
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		g.wrongScheme = "http"
	case strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // an alert of TLS
		g.wrongScheme = "https"
	}
	return g
}

func (a Access) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, &RefusalError{fmt.Sprintf("--ca-file: %v", err), err}
	}
	if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, &RefusalError{fmt.Sprintf("--ca-file: %s holds no certificate", a.CAFile), nil}
	}
	return c, nil
}
