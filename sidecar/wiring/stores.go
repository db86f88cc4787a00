package wiring

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/sidecar/config"
)

// openStore makes a store of a configuration; Close closes it.
func (a *Assembly) openStore(ctx context.Context, c *config.Config, name string) (adapters.Store, error) {
	s := c.Stores[name]
	var (
		store adapters.Store
		err   error
	)
	switch s.Kind {
	case "embedded":
		store, err = a.openEmbedded(s)
	case "qdrant":
		store, err = openQdrant(c, name)
	case "milvus":
		store, err = openMilvus(ctx, c, name)
	default:
		err = fmt.Errorf("%w: there is no store of kind %q", config.ErrConfig, s.Kind)
	}
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, store)
	return store, nil
}

func limits(l config.StoreLimits) adapters.Limits {
	return adapters.Limits{
		MaxDepth: l.MaxDepth, MaxProbes: l.MaxProbes,
		MaxVectorFields: l.MaxVectorFields, MaxMessageBytes: int(l.MaxMessageBytes),
	}
}

func openMilvus(ctx context.Context, c *config.Config, name string) (adapters.Store, error) {
	s := c.Stores[name]
	key, err := c.APIKey(name)
	if err != nil {
		return nil, err
	}
	password, err := c.Password(name)
	if err != nil {
		return nil, err
	}
	secure, err := StoreTLS(s.TLS)
	if err != nil {
		return nil, err
	}
	return milvus.New(ctx, milvus.Options{
		Address: s.Address, APIKey: key.Reveal(), Username: s.Username, Password: password.Reveal(),
		Database: s.Database, TLS: secure, Limits: limits(s.Limits),
	})
}

// StoreTLS is the TLS towards a store; nil without.
func StoreTLS(s config.StoreTLS) (*tls.Config, error) {
	if !s.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: tls.ca_file: %w", config.ErrConfig, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: tls.ca_file: %s holds no certificate", config.ErrConfig, s.CAFile)
		}
	}
	if s.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: tls.cert_file: %w", config.ErrConfig, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
