package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// ErrTLS: a certificate, key or authority cannot be used.
var ErrTLS = errors.New("TLS is not configured")

// TLS names the files of a listener's certificate; see config.TLS.
type TLS struct {
	CertFile, KeyFile, ClientCAFile string
	// MinVersion is tls.VersionTLS12 or later; 0 means tls.VersionTLS12.
	MinVersion uint16
	// Optional accepts clients without a certificate. A certificate that a client presents is
	// verified.
	Optional bool
	// Report, if set, is called once for each listener. It gets a function that returns the
	// state of the listener's files.
	Report func(now func() telemetry.Files)
}

func transportCredentials(t TLS, log *slog.Logger) (credentials.TransportCredentials, error) {
	c, err := t.Listener(log, "h2")
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// Listener returns the TLS configuration of a listener for the given protocols (ALPN names). The
// first handshake after a change of the files reads them again; existing connections stay. It
// returns ErrTLS.
func (t TLS) Listener(log *slog.Logger, protocols ...string) (*tls.Config, error) {
	files := []string{t.CertFile, t.KeyFile}
	if t.ClientCAFile != "" {
		files = append(files, t.ClientCAFile)
	}
	current, err := watch(log, func() (*tls.Config, error) { return t.config(protocols) }, files...)
	if err != nil {
		return nil, err
	}
	if t.Report != nil {
		t.Report(func() telemetry.Files {
			c, refused := current.state()
			f := telemetry.Files{Refused: refused}
			f.NotBefore, f.NotAfter = validity(c.Certificates[0])
			return f
		})
	}
	return &tls.Config{
		MinVersion:         max(t.MinVersion, tls.VersionTLS12),
		NextProtos:         protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.get(), nil },
	}, nil
}

// validity returns the validity period of the certificate in the chain that expires first.
func validity(chain tls.Certificate) (from, to time.Time) {
	for _, der := range chain.Certificate {
		if c, err := x509.ParseCertificate(der); err == nil && (to.IsZero() || c.NotAfter.Before(to)) {
			from, to = c.NotBefore, c.NotAfter
		}
	}
	return from, to
}

func (t TLS) config(protocols []string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	c := &tls.Config{
		MinVersion:   max(t.MinVersion, tls.VersionTLS12),
		NextProtos:   protocols,
		Certificates: []tls.Certificate{pair},
	}
	if t.ClientCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if t.Optional {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s holds no certificate", ErrTLS, t.ClientCAFile)
	}
	return c, nil
}
