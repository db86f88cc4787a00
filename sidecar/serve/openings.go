package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
)

// openings tracks which routes were checked against their stores. The sidecar is ready when
// every route was tried and at least one can be served. A store that fails later does not
// change that: otherwise one failing store would take all replicas out of service.
type openings struct {
	mu      sync.Mutex
	pending map[string]string // route → why it is not open
	tried   map[string]bool
	routes  int
	closed  bool
	rest    error // why the proxy cannot use the database's REST API; nil: it can, or it was not tried yet
	// rankers returns the states of the plugins. A route is ready even if its plugin is
	// down: its failure policy says how it answers then.
	rankers func() []plugins.State
	// devices returns the states of the devices. While one is down the sidecar scores.
	devices func() []offload.Status
	// troubles returns a line for each problem of routes that are open.
	troubles func() []string
}

func newOpenings(routes []string) *openings {
	o := &openings{pending: map[string]string{}, tried: map[string]bool{}, routes: len(routes)}
	for _, r := range routes {
		o.pending[r] = "not checked yet"
	}
	return o
}

// recordTry records a try and reports whether the sidecar is ready.
func (o *openings) recordTry(route string, err error) (ready bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried[route] = true
	if err == nil {
		delete(o.pending, route)
	} else {
		o.pending[route] = err.Error()
	}
	return o.isReady()
}

func (o *openings) isReady() bool {
	return !o.closed && len(o.tried) == o.routes && len(o.pending) < o.routes
}

// recordREST records whether the proxy can use the database's REST API.
func (o *openings) recordREST(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest = err
}

func (o *openings) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// reasonNotOpen returns why a route is not open, or "" if it is.
func (o *openings) reasonNotOpen(route string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending[route]
}

// ready returns the answer of /readyz.
func (o *openings) ready() (ok bool, detail string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := []string{"not ready"}
	switch {
	case o.closed:
		lines[0] = "draining"
	case o.isReady():
		lines[0] = "ok"
	}
	for _, route := range slices.Sorted(maps.Keys(o.pending)) {
		lines = append(lines, fmt.Sprintf("route %s: %s", route, o.pending[route]))
	}
	if o.rest != nil {
		lines = append(lines, o.rest.Error())
	}
	if o.troubles != nil {
		lines = append(lines, o.troubles()...)
	}
	if o.rankers != nil {
		for _, p := range o.rankers() {
			if p.Status != plugins.Ready {
				lines = append(lines, strings.TrimSpace(fmt.Sprintf("plugin %s: %s %s", p.Name, p.Status, p.LastError)))
			}
		}
	}
	if o.devices != nil {
		for _, d := range o.devices() {
			if d.State != offload.Ready {
				lines = append(lines, strings.TrimSpace(fmt.Sprintf("device %s of route %s: %s %s", d.Plugin, d.Route, d.State, d.Detail)))
			}
		}
	}
	return o.isReady(), strings.Join(lines, "\n")
}

// openRoutes checks every route until it can be served or ctx is done.
func (s *sidecar) openRoutes(ctx context.Context, routes []string, at Addresses) {
	var announce sync.Once
	var group sync.WaitGroup
	for _, route := range routes {
		group.Go(func() {
			s.openRoute(ctx, route, func() {
				announce.Do(func() {
					s.server.SetServing(true)
					if s.options.Ready != nil {
						s.options.Ready(at)
					}
					s.options.Logger.Info("ready", "routes", len(routes))
				})
			})
		})
	}
	group.Wait()
}

// openTimeout bounds one try to reach a store.
const openTimeout = 10 * time.Second

// openBackOff waits between two tries to reach a store.
func openBackOff() backoff.BackOff {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 15*time.Second
	return wait
}

func (s *sidecar) openRoute(ctx context.Context, route string, ready func()) {
	lastError := ""
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		try, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		err := s.engine.OpenRoute(try, route)
		if ctx.Err() != nil {
			return struct{}{}, backoff.Permanent(ctx.Err())
		}
		s.server.SetRouteServing(route, err == nil)
		s.metrics.RouteOpen(route, err == nil)
		if err != nil && err.Error() != lastError {
			lastError = err.Error()
			s.options.Logger.Warn("route not open; will retry", "route", route, "error", err)
		}
		if err == nil {
			s.options.Logger.Info("route open", "route", route)
		}
		if s.openings.recordTry(route, err) {
			ready()
		}
		return struct{}{}, err
	}, backoff.WithBackOff(openBackOff()), backoff.WithMaxElapsedTime(0))
}
