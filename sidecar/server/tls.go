package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"google.golang.org/grpc/credentials"
)

// ErrTLS: a certificate, key or authority cannot be used.
var ErrTLS = errors.New("TLS is not configured")

// TLS names the files of a listener's certificate; see config.TLS.
type TLS struct {
	CertFile, KeyFile, ClientCAFile string
	// MinVersion is tls.VersionTLS12 or later; 0 is that.
	MinVersion uint16
	// Optional lets clients in without a certificate; one that they present is verified.
	Optional bool
}

func transportCredentials(t TLS, log *slog.Logger) (credentials.TransportCredentials, error) {
	c, err := t.Listener(log, "h2")
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// Listener is the configuration of a listener that speaks the protocols, as ALPN
// names them. It reads the files again at the first handshake after they
// changed; connections that stand go on. It returns ErrTLS.
func (t TLS) Listener(log *slog.Logger, protocols ...string) (*tls.Config, error) {
	files := []string{t.CertFile, t.KeyFile}
	if t.ClientCAFile != "" {
		files = append(files, t.ClientCAFile)
	}
	current, err := watch(log, func() (*tls.Config, error) { return t.config(protocols) }, files...)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         max(t.MinVersion, tls.VersionTLS12),
		NextProtos:         protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.get(), nil },
	}, nil
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
