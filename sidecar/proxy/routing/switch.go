package routing

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoRoute: the proxy has no route of that name.
var ErrNoRoute = errors.New("no such route before the proxy")

// Switch turns a route off or on. Searches of a route that is off pass with reason=off. An empty
// name means every route. It returns ErrNoRoute.
func (r *Router) Switch(route string, off bool) error {
	names := r.Names.routes()
	if route != "" {
		if !slices.Contains(names, route) {
			return fmt.Errorf("%w: %q; there are %q", ErrNoRoute, route, names)
		}
		names = []string{route}
	}
	r.coverage.mu.Lock()
	defer r.coverage.mu.Unlock()
	for _, name := range names {
		r.coverage.off[name] = off
		r.outcomes.record.Switched(name, off)
	}
	return nil
}

// Off maps the name of every route to whether it is switched off.
func (r *Router) Off() map[string]bool {
	out := map[string]bool{}
	for _, name := range r.Names.routes() {
		out[name] = r.coverage.isOff(name)
	}
	return out
}

func (c *coverage) isOff(route string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off[route]
}
