package serve

import (
	"context"
	"errors"
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

// openings tracks which routes were checked against their stores. The sidecar is ready once every
// route was tried and at least one can be served, or once every route is broken and a proxy can
// still forward calls. A store that fails later does not change that, because one failing store
// would otherwise take all replicas out of service.
type openings struct {
	mu      sync.Mutex
	pending map[string]string // why each route is not open
	broken  map[string]bool   // the pending routes whose own files are the reason
	tried   map[string]bool
	routes  int
	passes  bool // a proxy forwards calls
	closed  bool
	rest    error // why the proxy cannot use the database's REST API; nil if it can, or was not tried yet
	// rankers returns the states of the plugins. A route is ready even if its plugin is down; its
	// failure policy then decides how it answers.
	rankers func() []plugins.State
	// devices returns the states of the devices. While a device is down, the sidecar scores by
	// itself.
	devices func() []offload.Status
	// troubles returns a line for each problem of routes that are open.
	troubles func() []string
}

func newOpenings(routes []string, hasProxy bool) *openings {
	o := &openings{pending: map[string]string{}, broken: map[string]bool{}, tried: map[string]bool{}, routes: len(routes), passes: hasProxy}
	for _, r := range routes {
		o.pending[r] = "not checked yet"
	}
	return o
}

// recordTry records a try and reports whether the sidecar is ready. broken says that the
// route's own files are the reason for the error.
func (o *openings) recordTry(route string, err error, broken bool) (ready bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried[route] = true
	delete(o.pending, route)
	delete(o.broken, route)
	if err != nil {
		o.pending[route] = err.Error()
	}
	if broken {
		o.broken[route] = true
	}
	return o.isReady()
}

func (o *openings) isReady() bool {
	serves := len(o.pending) < o.routes || o.passes && len(o.broken) == o.routes
	return !o.closed && len(o.tried) == o.routes && serves
}

// brokenRoutes lists the routes whose files cannot be used.
func (o *openings) brokenRoutes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.broken))
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

// openTimeout bounds one attempt to reach a store.
const openTimeout = 10 * time.Second

// repairTimeout bounds the calls to the store in one attempt to put a repaired route in service.
const repairTimeout = time.Minute

// Only reading a whole table shows whether it is damaged. After a failed attempt to repair a route,
// the next one waits repairPause times as long as the attempt took.
const repairPause = 10

// openBackOff waits between two attempts to reach a store.
func openBackOff() backoff.BackOff {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 15*time.Second
	return wait
}

func (s *sidecar) openRoute(ctx context.Context, route string, ready func()) {
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		isReady, pause, err := s.tryRoute(ctx, route)
		if ctx.Err() != nil {
			return struct{}{}, backoff.Permanent(ctx.Err())
		}
		if isReady {
			ready()
		}
		if err != nil && pause > time.Second {
			return struct{}{}, errors.Join(err, backoff.RetryAfter(int(pause.Seconds())))
		}
		return struct{}{}, err
	}, backoff.WithBackOff(openBackOff()), backoff.WithMaxElapsedTime(0))
}

// tryRoute opens the files of a broken route again, and checks the route against its store. It
// records and logs the result, and reports whether the sidecar is ready now. After an error, the
// next attempt waits at least as long as pause says.
func (s *sidecar) tryRoute(ctx context.Context, route string) (isReady bool, pause time.Duration, err error) {
	before, began := s.openings.reasonNotOpen(route), time.Now()
	repairing, done := context.WithTimeout(ctx, repairTimeout)
	defer done()
	err = s.versions.Repair(repairing, route)
	broken := err != nil
	if broken {
		pause = repairPause * time.Since(began)
	} else {
		try, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		err = s.engine.OpenRoute(try, route)
	}
	if ctx.Err() != nil {
		return false, 0, ctx.Err()
	}
	s.server.SetRouteServing(route, err == nil)
	s.metrics.RouteOpen(route, err == nil)
	switch {
	case err != nil && err.Error() != before:
		s.options.Logger.WarnContext(ctx, "route not open; will retry", "route", route, "error", err)
	case err == nil && before != "":
		s.options.Logger.InfoContext(ctx, "route open", "route", route)
	}
	return s.openings.recordTry(route, err, broken), pause, err
}
