package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// dialFlags say how to reach a sidecar.
type dialFlags struct {
	credentialFlags
	address         string
	tls             bool
	maxMessageBytes int
}

func (f *dialFlags) add(cmd *cobra.Command) {
	f.credentialFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.address, "address", "a", "127.0.0.1:7600", "address of the sidecar")
	flags.BoolVar(&f.tls, "tls", false, "use TLS; implied by the other --tls flags")
	flags.IntVar(&f.maxMessageBytes, "max-message-bytes", 64<<20, "largest message, either way")
}

// credentialFlags say who calls a sidecar, and how to know the sidecar.
type credentialFlags struct {
	tokenFile, caFile, certFile, keyFile, hostname string
	// stderr returns the writer for warnings.
	stderr func() io.Writer
}

func (f *credentialFlags) add(cmd *cobra.Command) {
	f.stderr = cmd.ErrOrStderr
	flags := cmd.Flags()
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the bearer token")
	flags.StringVar(&f.caFile, "tls-ca", "", "authorities of the sidecar, PEM; empty is the system's")
	flags.StringVar(&f.certFile, "tls-cert", "", "client certificate, PEM")
	flags.StringVar(&f.keyFile, "tls-key", "", "client key, PEM")
	flags.StringVar(&f.hostname, "tls-server-name", "", "name to verify, where it is not the address")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}

// connect returns a connection, which dials at the first call.
func (f *dialFlags) connect() (*grpc.ClientConn, error) {
	if scheme, rest, found := strings.Cut(f.address, "://"); found && (scheme == "http" || scheme == "https") {
		return nil, usagef("%s is a URL; give the host:port of the sidecar's listen.grpc, as in %s, and --tls if it speaks TLS", f.address, rest)
	}
	secure, err := f.credentials()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(f.address, grpc.WithTransportCredentials(secure), grpc.WithUserAgent("likeness-query"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(f.maxMessageBytes), grpc.MaxCallSendMsgSize(f.maxMessageBytes)))
}

// secure reports whether the flags ask for TLS.
func (f *dialFlags) secure() bool {
	return f.tls || f.caFile != "" || f.certFile != "" || f.hostname != ""
}

func (f *dialFlags) credentials() (credentials.TransportCredentials, error) {
	if !f.secure() {
		return insecure.NewCredentials(), nil
	}
	c, err := f.tlsConfig()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// tlsConfig returns the settings of a connection with TLS.
func (f *credentialFlags) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.hostname}
	if f.caFile != "" {
		pem, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca: %s holds no certificate", f.caFile)
		}
	}
	if f.certFile != "" {
		pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// readToken returns the bearer token of the file that --token-file names, or "" for no file.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	if len(bytes.TrimSpace(token)) == 0 {
		return "", usagef("--token-file: %s is empty", file)
	}
	return string(bytes.TrimSpace(token)), nil
}

// warnPlainToken warns of each address, host:port or a URL, at which a token leaves this machine in plain text.
func warnPlainToken(w io.Writer, addresses ...string) {
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			if u.Scheme == "https" {
				continue
			}
			address = u.Host
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() && !strings.HasPrefix(address, "unix:") {
			_, _ = fmt.Fprintf(w, "warning: the token goes to %s in plain text, readable on the way; use TLS\n", address)
		}
	}
}

// callOptions returns the option that sends the token.
func (f *dialFlags) callOptions() ([]grpc.CallOption, error) {
	token, err := readToken(f.tokenFile)
	if err != nil || token == "" {
		return nil, err
	}
	if !f.secure() {
		warnPlainToken(f.stderr(), f.address)
	}
	return []grpc.CallOption{grpc.PerRPCCredentials(bearer(token))}, nil
}

// bearer sends a token with every call, over plain text too, because a loopback address needs no
// TLS.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// rpcError is the error of a call. Its text includes the details of the status.
type rpcError struct {
	address string
	err     error
}

func callError(address string, err error) error { return &rpcError{address, err} }

func (e *rpcError) Unwrap() error { return e.err }

func (e *rpcError) Error() string {
	s := status.Convert(e.err)
	text := []string{fmt.Sprintf("%s: %s: %s", e.address, s.Code(), s.Message())}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				if violation := v.GetField() + ": " + v.GetDescription(); !strings.Contains(s.Message(), violation) {
					text = append(text, "  "+violation)
				}
			}
		case *errdetails.ErrorInfo:
			text[0] += " (" + d.GetReason() + ")"
		case *errdetails.RetryInfo:
			text = append(text, "  try again in "+d.GetRetryDelay().AsDuration().String())
		}
	}
	for _, r := range remedies {
		if strings.Contains(s.Message(), r.said) {
			text = append(text, "  "+r.do)
			break
		}
	}
	if strings.HasPrefix(s.Message(), `connection error: desc = "transport: Error while dialing`) { //nolint:misspell // the library's word; a store's error, which the sidecar passes on, begins in another way
		text = append(text, "  nothing answers there: start the sidecar with `likeness serve`, or give the address of its listen.grpc")
	}
	if s.Code() == codes.Unimplemented && !strings.Contains(s.Message(), "unknown method") {
		text = append(text, "  a gRPC server that is no sidecar answers there, such as a database: give the address of the sidecar's listen.grpc")
	}
	if s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max") {
		text = append(text, "  the limit is limits.max_message_bytes of the sidecar, or --max-message-bytes of this command")
	}
	return strings.Join(text, "\n")
}

// remedies tells what to do about a refused connection or token, by a part of the error's text.
var remedies = []struct{ said, do string }{
	{"certificate required", "the sidecar asks for a client certificate of an authority that it knows: give --tls-cert and --tls-key"},
	{"looked like an HTTP/1.1 header", "an HTTP server answers there: give the address of the sidecar's listen.grpc, not of listen.rest, listen.admin or a database"},
	{"error reading server preface", "the sidecar may speak TLS: give --tls-ca, or --tls"},
	{"first record does not look like a TLS handshake", "the sidecar speaks plain text: leave out the --tls flags"},
	{"signed by unknown authority", "the sidecar's certificate is of an authority that is not known here: name it with --tls-ca"},
	{"no valid token", "--token-file names a file with the token"},
}
