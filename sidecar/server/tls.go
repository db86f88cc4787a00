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
}

// transportCredentials read the files again at the first handshake after they
// changed; connections that stand go on.
func transportCredentials(t TLS, log *slog.Logger) (credentials.TransportCredentials, error) {
	files := []string{t.CertFile, t.KeyFile}
	if t.ClientCAFile != "" {
		files = append(files, t.ClientCAFile)
	}
	current, err := watch(log, t.config, files...)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion:         max(t.MinVersion, tls.VersionTLS12),
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.get(), nil },
	}), nil
}

func (t TLS) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	c := &tls.Config{
		MinVersion:   max(t.MinVersion, tls.VersionTLS12),
		NextProtos:   []string{"h2"},
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
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s holds no certificate", ErrTLS, t.ClientCAFile)
	}
	return c, nil
}
