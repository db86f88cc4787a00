package wiring

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/sidecar/config"
)

// openStore opens a store without calling it. Closing the assembly closes it.
func (a *Assembly) openStore(ctx context.Context, c *config.Config, name string) (adapters.Store, error) {
	s := c.Stores[name]
	var (
		store  adapters.Store
		server guard.Server
		err    error
	)
	switch s.Kind {
	case "embedded":
		store, err = a.openEmbedded(name, s)
	case "qdrant":
		server, err = openQdrant(c, name)
	case "milvus":
		server, err = openMilvus(ctx, c, name)
	default:
		err = fmt.Errorf("%w: there is no store of kind %q", config.ErrConfig, s.Kind)
	}
	if err != nil {
		return nil, err
	}
	if server != nil {
		store = guard.New(server, guardOptions(name, s.Guard))
	}
	a.closers = append(a.closers, store)
	return store, nil
}

// Watch reports the calls of all stores to an observer.
func (a *Assembly) Watch(o guard.Observer) {
	for _, store := range a.Stores {
		if guarded, ok := store.(interface{ Watch(o guard.Observer) }); ok {
			guarded.Watch(o)
		}
	}
}

func limits(l config.StoreLimits) adapters.Limits {
	return adapters.Limits{
		MaxDepth: l.MaxDepth, MaxProbes: l.MaxProbes,
		MaxVectorFields: l.MaxVectorFields, MaxMessageBytes: int(l.MaxMessageBytes),
	}
}

func guardOptions(name string, g config.StoreGuard) guard.Options {
	return guard.Options{Name: name, BreakAfter: g.BreakAfter, BreakFor: g.BreakFor, RetryBudget: g.RetryBudget, HedgeAfter: g.HedgeAfter}
}

func openMilvus(ctx context.Context, c *config.Config, name string) (guard.Server, error) {
	o, err := milvusOptions(c, name)
	if err != nil {
		return nil, err
	}
	return milvus.New(ctx, o)
}

func milvusOptions(c *config.Config, name string) (o milvus.Options, err error) {
	s := c.Stores[name]
	key, err := c.APIKey(name)
	if err != nil {
		return o, err
	}
	password, err := c.Password(name)
	if err != nil {
		return o, err
	}
	secure, err := StoreTLS(s.TLS)
	return milvus.Options{
		Address: s.Address, APIKey: key.Reveal(), Username: s.Username, Password: password.Reveal(),
		Database: s.Database, TLS: secure, Limits: limits(s.Limits),
	}, err
}

// presented returns a callback for tls.Config that reads the client certificate at every
// handshake, so that new connections use a renewed certificate. While the files cannot be
// read, as in the middle of a renewal, it presents the last certificate.
func presented(read func() (*tls.Certificate, error), last *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var kept atomic.Pointer[tls.Certificate]
	kept.Store(last)
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := read(); err == nil {
			kept.Store(now)
		}
		return kept.Load(), nil
	}
}

// StoreTLS returns the TLS configuration for a connection to a store or a plugin, or nil if
// TLS is not enabled. The client certificate is read again at every handshake, the file of
// authorities only now.
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
		pair := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
			return &pair, err
		}
		last, err := pair()
		if err != nil {
			return nil, fmt.Errorf("%w: tls.cert_file: %w", config.ErrConfig, err)
		}
		c.GetClientCertificate = presented(pair, last)
	}
	return c, nil
}
