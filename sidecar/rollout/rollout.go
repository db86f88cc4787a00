// Package rollout puts versions of a route in service while it is searched, and
// takes them out: open, warm up, switch in one step, close what nobody searches
// any more. Going back is the same switch.
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
	// ErrNotReady: the version could not answer recent queries, and nothing was switched.
	ErrNotReady = errors.New("version is not ready")
	// ErrNoPrevious: there is no version to go back to.
	ErrNoPrevious = errors.New("no previous version")
	// ErrClosed: the sidecar is ending.
	ErrClosed = errors.New("the sidecar is ending")
)

// Follower keeps derived rows in step with their collection: follow.Follower.
type Follower interface {
	// Freshness is that of a route once Replace was called; nil: it will have none.
	Freshness(r *route.Route) (route.Freshness, error)
	// Replace follows a route in the place of the one of its name.
	Replace(r *route.Route) error
	// Quiet waits until what Replace put aside is not used any more.
	Quiet(ctx context.Context, r *route.Route) error
}

// Options of New.
type Options struct {
	Pipeline *search.Engine
	// Assembly is what the pipeline's routes were made from.
	Assembly *wiring.Assembly
	// Config is the configuration that the sidecar started with; Reload reads it
	// again, so that versions can be added. nil: they cannot.
	Config *config.Config
	Reload func() (*config.Config, error)
	// Recent are the queries that a version is tried with; nil: made ones.
	Recent *Recent
	// Follower, if set, is told of the version whose rows are to be followed.
	Follower Follower
	// Switched, if set, is told of every route that went live.
	Switched func(*route.Route)
	Logger   *slog.Logger
}

// Manager knows which versions are served. It is safe for concurrent use.
type Manager struct {
	Options

	turns map[string]chan struct{} // by route; held by the one that changes it

	mu       sync.Mutex
	closed   bool
	served   map[string]*wiring.Version // by route
	choices  map[string]choice.Choice
	retiring sync.WaitGroup
	leaving  map[string]chan struct{} // by route; closed once the version replaced last is
	// lanes are closed when the last search ended on the route as it was before an
	// adjustment, which shares what the version has open.
	lanes map[string][]<-chan struct{}
}

// New makes a manager of what an assembly serves. The caller closes it when the
// pipeline is searched no more, and then the assembly. It returns config.ErrConfig
// where the state folder cannot be read.
func New(o Options) (*Manager, error) {
	m := &Manager{Options: o, turns: map[string]chan struct{}{}, served: maps.Clone(o.Assembly.Versions), choices: map[string]choice.Choice{}, leaving: map[string]chan struct{}{},
		lanes: map[string][]<-chan struct{}{}}
	for rt, v := range m.served {
		m.turns[rt] = make(chan struct{}, 1)
		made, err := choice.Read(o.Config.StateDir, rt)
		if err != nil {
			return nil, err
		}
		if made.Active != v.Name || len(made.History) == 0 { // the first start, or the configuration's newer word
			made = made.Next(v.Name, v.Model.Version, o.Config.Routes[rt].Active, time.Now())
		}
		m.choices[rt] = made
	}
	return m, nil
}

// Info is a version as List shows it.
type Info struct {
	Name, Model, ModelVersion, Table, Companion string
	Active, Previous                            bool
	Activated                                   time.Time // zero: it never was
}

// List lists the versions of a route by name, as the configuration has them now.
// A route without versions has one, without a name. It returns route.ErrUnknown
// or config.ErrConfig.
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

func infoOf(r config.Route, name string, active *wiring.Version, made choice.Choice) Info {
	at, _ := r.At(name)
	last, _ := made.Last(name)
	i := Info{
		Name: name, Model: at.ModelName, ModelVersion: last.ModelVersion, Table: at.Table, Companion: at.Companion,
		Active: name == active.Name, Previous: name == made.Previous && made.Previous != "", Activated: last.Activated,
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

// active is what is served of a route, and how it came to be.
func (m *Manager) active(rt string) (*wiring.Version, choice.Choice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.served[rt]; v != nil {
		return v, m.choices[rt], nil
	}
	return nil, choice.Choice{}, fmt.Errorf("%w: %q", route.ErrUnknown, rt)
}

func (m *Manager) reload() (*config.Config, error) {
	if m.Reload == nil {
		return m.Config, nil
	}
	return m.Reload()
}

// begin waits for the turn to change a route; end gives it on.
func (m *Manager) begin(ctx context.Context, rt string) (end func(), err error) {
	turn := m.turns[rt]
	if turn == nil {
		return nil, fmt.Errorf("%w: %q", route.ErrUnknown, rt)
	}
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another activation of route %q is under way: %w", rt, ctx.Err())
	}
}
