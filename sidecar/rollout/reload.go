package rollout

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Adjustment is routes as a changed configuration has them, checked and in waiting.
type Adjustment struct {
	manager *Manager
	staged  []staged
	ends    []func() // gives on the turns
}

type staged struct {
	version *wiring.Version
	standby *search.Standby
}

// Adjust prepares what the live keys of a configuration say of routes, with the
// versions that are served and all that they have open. Nothing changes before
// Apply; Discard gives it up. Until then no version of those routes is activated. It
// returns route.ErrUnknown, ErrVersion, config.ErrConfig, ErrClosed,
// route.ErrSetup for a route that contradicts itself, or the store's error.
func (m *Manager) Adjust(ctx context.Context, c *config.Config, routes []string) (_ *Adjustment, err error) {
	a := &Adjustment{manager: m}
	defer func() {
		if err != nil {
			a.Discard()
		}
	}()
	for _, route := range routes {
		end, err := m.begin(ctx, route)
		if err != nil {
			return nil, err
		}
		a.ends = append(a.ends, end)
		if err := a.stage(ctx, c, route); err != nil {
			return nil, fmt.Errorf("routes.%s: %w", route, err)
		}
	}
	return a, nil
}

func (a *Adjustment) stage(ctx context.Context, c *config.Config, route string) error {
	served, _, err := a.manager.active(route)
	if err != nil {
		return err
	}
	v, err := served.WithLivePolicy(c)
	if err != nil {
		return err
	}
	standby, err := a.manager.Pipeline.Prepare(ctx, v.Route)
	if err != nil {
		return err
	}
	a.staged = append(a.staged, staged{v, standby})
	return nil
}

// Apply puts the routes in service, each in one step, and ends the adjustment. It
// returns ErrClosed, and then changes nothing.
func (a *Adjustment) Apply() error {
	defer a.Discard()
	m := a.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	for _, s := range a.staged {
		route := s.version.Route.Name
		m.lanes[route] = append(current(m.lanes[route]), s.standby.Switch())
		m.served[route] = s.version
		if m.Switched != nil {
			m.Switched(s.standby.Route())
		}
	}
	return nil
}

// current leaves out what has ended.
func current(lanes []<-chan struct{}) []<-chan struct{} {
	var out []<-chan struct{}
	for _, ended := range lanes {
		select {
		case <-ended:
		default:
			out = append(out, ended)
		}
	}
	return out
}

// Discard ends an adjustment that was not applied.
func (a *Adjustment) Discard() {
	for _, end := range a.ends {
		end()
	}
	a.ends = nil
}

// Activated activates a version where the configuration's word on it is new, and
// changes nothing where it is served. It returns what Activate does.
func (m *Manager) Activated(ctx context.Context, route, version string) (changed bool, err error) {
	served, _, err := m.active(route)
	if err != nil || served.Name == version {
		return false, err
	}
	_, err = m.Activate(ctx, route, version, false)
	return err == nil, err
}
