package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/proxy/milvus"
	"github.com/likenessdb/likeness/sidecar/proxy/qdrant"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// openProxy makes the proxy that a configuration describes, without listening. It returns nil if
// the configuration has no proxy.
func (s *sidecar) openProxy(c *config.Config) (*proxy.Proxy, error) {
	p := c.Proxy
	if !c.Proxy.Listens() {
		return nil, nil
	}
	store := c.Stores[p.Store]
	isOpen := store.APIKeyFile == "" && store.APIKeyEnv == "" && store.Username == ""
	answering := routing.Options{Store: p.Store, Open: isOpen, Names: p.Routes, Gate: s.gate, Logger: s.requestLog, Recorder: s.metrics, Events: s.events, Trials: s.engine}
	if f := s.followers[p.Store]; f != nil {
		answering.Follower, answering.WriteBudget = f, longestBudget(c, p.Store)
	}
	routes, err := routing.New(s.searcher, answering)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	s.switches = routes
	s.admin.Handle("GET /proxy", showSwitches(routes))
	s.admin.Handle("POST /proxy/off", switchRoutes(routes, true, s.options.Logger))
	s.admin.Handle("POST /proxy/on", switchRoutes(routes, false, s.options.Logger))
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
		Router: router, Logger: s.requestLog, Grace: c.Shutdown.Grace,
		MaxStreams: c.Limits.MaxConcurrentStreams, MaxUnpacked: int(c.Limits.MaxMessageBytes), Gate: s.gate,
	}
	if p.ListenGRPC != "" {
		o.GRPC = proxy.Endpoint{Listen: p.ListenGRPC, Upstream: store.Address, TLS: secure, ListenTLS: forGRPC}
	}
	made, err := proxy.New(o)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return made, nil
}

// longestBudget returns the longest write_budget of a store's routes. The follower applies the
// shorter budgets of single collections.
func longestBudget(c *config.Config, store string) time.Duration {
	var longest time.Duration
	for _, r := range c.Routes {
		if r.StoreName == store {
			longest = max(longest, r.WriteBudget)
		}
	}
	return longest
}

// tryREST checks whether proxy.rest_url is the database's REST API, if the proxy forwards REST
// calls.
func (s *sidecar) tryREST(ctx context.Context) error {
	if s.proxy == nil {
		return nil
	}
	err := s.proxy.CheckREST(ctx)
	switch {
	case errors.Is(err, rest.ErrURL):
		return fmt.Errorf("%w: proxy.rest_url: %w", route.ErrSetup, err)
	case err != nil:
		return fmt.Errorf("%w: proxy.rest_url: %w", adapters.ErrUnavailable, err)
	}
	return nil
}

// checkREST calls the database's REST API until it answers. Until then the log and /readyz say why
// it does not; the sidecar serves meanwhile.
func (s *sidecar) checkREST(ctx context.Context) {
	if s.proxy == nil {
		return
	}
	lastError := ""
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		try, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		err := s.tryREST(try)
		if ctx.Err() != nil {
			return struct{}{}, backoff.Permanent(ctx.Err())
		}
		s.openings.recordREST(err)
		if err != nil && err.Error() != lastError {
			lastError = err.Error()
			s.options.Logger.WarnContext(ctx, "proxy cannot reach the REST API; will retry", "error", err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(openBackOff()), backoff.WithMaxElapsedTime(0))
}
