// Package rollout switches a route to another version while it is searched: it opens the
// version, warms it up, switches in one step, and closes the old version when its last
// search has ended. Going back is the same switch.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Sentinel errors, beside route.ErrUnknown.
var (
	// ErrVersion: the route has no version of that name.
	ErrVersion = route.ErrVersion
	// ErrNotReady: the version answered no trial query, so the route was not switched.
	ErrNotReady = errors.New("version is not ready")
	// ErrNoPrevious: the route has no previous version to go back to.
	ErrNoPrevious = errors.New("no previous version")
	// ErrClosed: the sidecar is ending.
	ErrClosed = errors.New("the sidecar is ending")
)

// Follower keeps tables and companions in step with their collections. wiring.Followers is
// one.
type Follower interface {
	// Freshness returns the Freshness that a route will have after Replace, or nil if it
	// will have none.
	Freshness(r *route.Route) route.Freshness
	// Replace follows a route in place of the route of the same name.
	Replace(r *route.Route) error
	// WaitUnused waits until the route that Replace displaced is not used any more.
	WaitUnused(ctx context.Context, r *route.Route) error
}

// Options of New.
type Options struct {
	Engine *search.Engine
	// Assembly holds the open parts of the engine's routes.
	Assembly *wiring.Assembly
	// Config is the configuration that the sidecar started with. Reload reads it again, so
	// that versions can be added while the sidecar runs; with nil they cannot.
	Config *config.Config
	Reload func() (*config.Config, error)
	// Recent holds the queries that a new version is tried with; nil: made-up queries are
	// used.
	Recent *Recent
	// Follower, if set, follows the version in service.
	Follower Follower
	// Switched, if set, is called with every route that goes into service.
	Switched func(*route.Route)
	Logger   *slog.Logger
}

// Manager switches the versions of routes, and knows which are in service. It is safe for
// concurrent use.
type Manager struct {
	Options

	locks map[string]chan struct{} // by route; full while somebody changes the route

	mu       sync.Mutex
	closed   bool
	served   map[string]*wiring.Version // by route
	choices  map[string]choice.Choice
	retiring sync.WaitGroup
	leaving  map[string]chan struct{} // by route; closed when the version replaced last is closed
	// draining holds, by route, a channel for each adjustment since the last activation. It is
	// closed when the last search with the settings before that adjustment has ended. Those
	// searches use the open parts of the version in service.
	draining map[string][]<-chan struct{}
}

// New makes a manager for the routes of an assembly. The caller closes the manager after the
// last search, and then the assembly. New returns config.ErrConfig if the state folder
// cannot be read.
func New(o Options) (*Manager, error) {
	m := &Manager{Options: o, locks: map[string]chan struct{}{}, served: maps.Clone(o.Assembly.Versions), choices: map[string]choice.Choice{}, leaving: map[string]chan struct{}{},
		draining: map[string][]<-chan struct{}{}}
	for _, r := range o.Assembly.Routes {
		m.locks[r.Name] = make(chan struct{}, 1)
	}
	for rt, v := range m.served {
		made, err := choice.Read(o.Config.StateDir, rt)
		if err != nil {
			return nil, err
		}
		if made.Active != v.Name || len(made.History) == 0 { // the first start, or the configuration has changed its mind since
			made = made.Next(v.Name, v.Model.Version, o.Config.Routes[rt].Active, time.Now())
		}
		m.choices[rt] = made
	}
	return m, nil
}

// Info describes a version.
type Info struct {
	Name, Model, ModelVersion, Table, Companion string
	Active, Previous                            bool
	Activated                                   time.Time // zero: it never was
}

// List lists the versions of a route by name, as the configuration has them now. A route
// without versions has a single one, named "". List returns route.ErrUnknown or
// config.ErrConfig.
func (m *Manager) List(rt string) ([]Info, error) {
	active, made, err := m.active(rt)
	if err != nil {
		return nil, err
	}
	c, err := m.reload()
	if err != nil {
		return nil, err
	}
	r := c.Routes[rt]
	names := r.VersionNames()
	if len(names) == 0 {
		names = []string{""}
	}
	out := make([]Info, 0, len(names))
	for _, name := range names {
		out = append(out, infoOf(r, name, active, made))
	}
	return out, nil
}

// infoOf describes a version. active is the version in service, nil if the route is broken.
func infoOf(r config.Route, name string, active *wiring.Version, made choice.Choice) Info {
	at, _ := r.At(name)
	last, _ := made.Last(name)
	i := Info{
		Name: name, Model: at.ModelName, ModelVersion: last.ModelVersion, Table: at.Table, Companion: at.Companion,
		Active: active != nil && name == active.Name, Previous: name == made.Previous && made.Previous != "", Activated: last.Activated,
	}
	if i.Active {
		i.ModelVersion = active.Model.Version
	}
	return i
}

// Models lists the models that are loaded, by name.
func (m *Manager) Models() []*model.Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*model.Model{}
	for _, one := range m.Assembly.Models {
		all[one.Name] = one
	}
	for _, v := range m.served {
		all[v.Model.Name] = v.Model
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *model.Model) int { return strings.Compare(a.Name, b.Name) })
}

// active returns the version in service and the choice that put it there. The version of a
// broken route is nil. active returns route.ErrUnknown.
func (m *Manager) active(rt string) (*wiring.Version, choice.Choice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[rt] == nil {
		return nil, choice.Choice{}, fmt.Errorf("%w: %q", route.ErrUnknown, rt)
	}
	if v := m.served[rt]; v != nil {
		return v, m.choices[rt], nil
	}
	made, err := choice.Read(m.Config.StateDir, rt)
	if err != nil {
		made = choice.Choice{} // an activation replaces a file that cannot be read
	}
	return nil, made, nil
}

func (m *Manager) reload() (*config.Config, error) {
	if m.Reload == nil {
		return m.Config, nil
	}
	return m.Reload()
}

// lockRoute waits until nobody else changes the route. The caller calls unlock after its
// own change.
func (m *Manager) lockRoute(ctx context.Context, rt string) (unlock func(), err error) {
	lock := m.locks[rt]
	if lock == nil {
		return nil, fmt.Errorf("%w: %q", route.ErrUnknown, rt)
	}
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another activation of route %q is under way: %w", rt, ctx.Err())
	}
}
