package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/proxy/milvus"
	"github.com/likenessdb/likeness/sidecar/proxy/qdrant"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// openProxy opens the proxy of a configuration; nil if it has none.
func (s *sidecar) openProxy(ctx context.Context, c *config.Config) (*proxy.Proxy, error) {
	p := c.Proxy
	if p.ListenGRPC == "" && p.ListenREST == "" {
		return nil, nil
	}
	answering := routing.Options{Store: p.Store, Names: p.Routes, Parsing: s.parsing, Logger: s.options.Logger, Recorder: s.metrics}
	if f := s.followers[p.Store]; f != nil {
		answering.Follower, answering.WriteBudget = f, longestBudget(c, p.Store)
	}
	routes, err := routing.New(s.admission, answering)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	s.switches = routes
	s.admin.Handle("GET /proxy", switches(routes))
	s.admin.Handle("POST /proxy/off", switching(routes, true, s.options.Logger))
	s.admin.Handle("POST /proxy/on", switching(routes, false, s.options.Logger))
	store := c.Stores[p.Store]
	var router proxy.Router = qdrant.New(routes)
	if store.Kind == "milvus" {
		router = milvus.New(routes, store.Database)
	}
	secure, err := wiring.StoreTLS(store.TLS)
	if err != nil {
		return nil, fmt.Errorf("stores.%s: %w", p.Store, err)
	}
	var forGRPC, forREST *tls.Config
	if p.TLS.CertFile != "" {
		forGRPC, err = s.watchedTLS(p.TLS, "proxy_grpc").Listener(s.options.Logger, "h2")
		if err == nil {
			forREST, err = s.watchedTLS(p.TLS, "proxy_rest").Listener(s.options.Logger, "h2", "http/1.1")
		}
		if err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	o := proxy.Options{
		REST:   proxy.Endpoint{Listen: p.ListenREST, Upstream: p.RESTURL, TLS: secure, ListenTLS: forREST},
		Router: router, Logger: s.options.Logger, Grace: c.Shutdown.Grace,
		MaxStreams: c.Limits.MaxConcurrentStreams, MaxUnpacked: int(c.Limits.MaxMessageBytes), Intake: s.intake,
	}
	if p.ListenGRPC != "" {
		o.GRPC = proxy.Endpoint{Listen: p.ListenGRPC, Upstream: store.Address, TLS: secure, ListenTLS: forGRPC}
	}
	return proxy.Listen(ctx, o)
}

// longestBudget is the greatest time that a route of the store lets a write wait;
// the follower keeps to each collection's own.
func longestBudget(c *config.Config, store string) time.Duration {
	var longest time.Duration
	for _, r := range c.Routes {
		if r.Store == store {
			longest = max(longest, r.WriteBudget)
		}
	}
	return longest
}
