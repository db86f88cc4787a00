package rollout

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Adjustment holds routes with the settings of a changed configuration, checked and ready to
// go into service.
type Adjustment struct {
	manager *Manager
	staged  []staged
	unlock  []func() // one for each route
}

type staged struct {
	version *wiring.Version
	standby *search.Standby
}

// Adjust prepares routes for the live keys of a changed configuration. The routes keep their
// versions in service, and everything that these have open. Nothing changes before Apply,
// and nothing at all after Discard; until one of them is called, no version of the routes
// can be activated. Adjust returns route.ErrUnknown, ErrVersion, config.ErrConfig,
// ErrClosed, route.ErrSetup for a route that contradicts itself, or the store's error.
func (m *Manager) Adjust(ctx context.Context, c *config.Config, routes []string) (_ *Adjustment, err error) {
	a := &Adjustment{manager: m}
	defer func() {
		if err != nil {
			a.Discard()
		}
	}()
	for _, route := range routes {
		unlock, err := m.lockRoute(ctx, route)
		if err != nil {
			return nil, err
		}
		a.unlock = append(a.unlock, unlock)
		if err := a.stage(ctx, c, route); err != nil {
			return nil, fmt.Errorf("routes.%s: %w", route, err)
		}
	}
	return a, nil
}

func (a *Adjustment) stage(ctx context.Context, c *config.Config, route string) error {
	served, _, err := a.manager.active(route)
	if err != nil || served == nil { // a broken route gets the settings when it is repaired
		return err
	}
	v, err := served.WithLivePolicy(c)
	if err != nil {
		return err
	}
	standby, err := a.manager.Engine.Prepare(ctx, v.Route)
	if err != nil {
		return err
	}
	a.staged = append(a.staged, staged{v, standby})
	return nil
}

// Apply puts the routes in service, each in one step, and ends the adjustment. If it returns
// ErrClosed, nothing has changed.
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
		m.draining[route] = append(stillDraining(m.draining[route]), s.standby.Switch())
		m.served[route] = s.version
		if m.Switched != nil {
			m.Switched(s.standby.Route())
		}
	}
	return nil
}

// stillDraining returns the channels that are not closed yet.
func stillDraining(channels []<-chan struct{}) []<-chan struct{} {
	var out []<-chan struct{}
	for _, ended := range channels {
		select {
		case <-ended:
		default:
			out = append(out, ended)
		}
	}
	return out
}

// Discard ends an adjustment. After Apply it does nothing.
func (a *Adjustment) Discard() {
	for _, unlock := range a.unlock {
		unlock()
	}
	a.unlock = nil
}

// Activated activates a version unless it is in service already. It reports whether it
// switched, and returns the errors of Activate.
func (m *Manager) Activated(ctx context.Context, route, version string) (changed bool, err error) {
	served, _, err := m.active(route)
	if err != nil || served != nil && served.Name == version {
		return false, err
	}
	_, err = m.Activate(ctx, route, version, false)
	return err == nil, err
}
