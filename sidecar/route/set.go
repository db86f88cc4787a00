package route

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/likenessdb/likeness/internal/turns"
)

// Set has the routes of a process by name. A search holds the version of a route
// that it began with; Standby.Switch puts another in its place meanwhile. A Set is
// safe for concurrent use.
type Set struct {
	slots map[string]*slot
	names []string // sorted
	turns *turns.Turns
}

// NewSet makes a set of routes, which the caller does not change afterwards. The
// routes share the turns; nil stands for as many as there are processors. NewSet
// calls no store: Open does, or the first search of a route. It returns ErrSetup
// for every route that contradicts itself, its model or its table.
func NewSet(routes []*Route, t *turns.Turns) (*Set, error) {
	if t == nil {
		t = turns.New(runtime.GOMAXPROCS(0))
	}
	s := &Set{slots: map[string]*slot{}, turns: t}
	var failed []error
	for _, r := range routes {
		v, err := newVersion(r, t)
		if err == nil && s.slots[r.Name] != nil {
			err = fmt.Errorf("%w: two routes are named %q; rename one", ErrSetup, r.Name)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		s.slots[r.Name] = newSlot(v)
		s.names = append(s.names, r.Name)
	}
	slices.SortFunc(s.names, strings.Compare)
	return s, errors.Join(failed...)
}

// Open checks every route against its store and joins the errors: ErrSetup for a
// route that cannot be served, the store's own error where the store could not be
// asked. A route that failed is checked again by its next search or Open.
func (s *Set) Open(ctx context.Context) error {
	var failed []error
	for _, name := range s.names {
		failed = append(failed, s.OpenRoute(ctx, name)) // the error names the route
	}
	return errors.Join(failed...)
}

// OpenRoute checks one route against its store, as Open does with all. It
// returns ErrUnknown if no route has that name.
func (s *Set) OpenRoute(ctx context.Context, name string) error {
	v, err := s.Find(ctx, name)
	if err != nil {
		return err
	}
	defer v.Release()
	_, err = v.Check(ctx)
	return err
}

// Consistent returns ErrSetup if a route contradicts itself, its model or its table. It
// calls no store.
func Consistent(r *Route) error {
	_, err := newVersion(r, turns.New(1))
	return err
}

// Open checks one route against its model, table and store. It returns a copy with defaults filled
// in and limits narrowed to the store's; r stays as it is. It returns ErrSetup, or the store's
// error, such as adapters.ErrUnavailable, if the store could not be asked.
func Open(ctx context.Context, r *Route) (*Checked, error) {
	v, err := newVersion(r, turns.New(runtime.GOMAXPROCS(0)))
	if err != nil {
		return nil, err
	}
	return v.Check(ctx)
}

// Routes returns copies of the routes in service, sorted by name, with the defaults filled in and,
// once the store was asked, with its limits.
func (s *Set) Routes() []*Route {
	out := make([]*Route, len(s.names))
	for i, name := range s.names {
		r := *s.slots[name].route()
		out[i] = &r
	}
	return out
}

// Route returns the route of that name that is in service. It is read-only. Do not keep it: another
// version can replace it, and its table may then be closed; Hold keeps it open. Route returns
// ErrUnknown, and allocates nothing.
func (s *Set) Route(name string) (*Route, error) {
	slot, err := s.slot(name)
	if err != nil {
		return nil, err
	}
	return slot.route(), nil
}

// Hold returns the route like Route, and keeps all its parts open until release is called.
func (s *Set) Hold(name string) (r *Route, release func(), err error) {
	slot, err := s.slot(name)
	if err != nil {
		return nil, nil, err
	}
	v := slot.hold()
	return &v.Current().Route, sync.OnceFunc(v.Release), nil
}

// Find returns the version of a route that a search under ctx is to use, for the
// caller to release. It returns ErrUnknown, ErrSetup for a broken route, or the context's
// error.
func (s *Set) Find(ctx context.Context, name string) (*Version, error) {
	slot, err := s.slot(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	var v *Version
	if p, ok := ctx.Value(pinsKey{}).(*pins); ok {
		v = p.hold(slot)
	} else {
		v = slot.hold()
	}
	if v.unchecked.Broken != nil { // the error names files, which callers may not see
		defer v.Release()
		return nil, v.unchecked.wrong("its files cannot be used; the log and /readyz of the sidecar say why")
	}
	return v, nil
}

func (s *Set) slot(name string) (*slot, error) {
	if slot, ok := s.slots[name]; ok {
		return slot, nil
	}
	return nil, fmt.Errorf("%w: %q; the routes are %q", ErrUnknown, name, s.names)
}

// slot is a route's place in a Set: the version that the next search gets.
type slot struct{ current atomic.Pointer[Version] }

func newSlot(v *Version) *slot {
	s := &slot{}
	s.current.Store(v)
	return s
}

// hold returns the current version, for the caller to release. It takes no lock
// and allocates nothing.
func (s *slot) hold() *Version {
	for {
		if v := s.current.Load(); v.Hold() {
			return v
		}
	}
}

func (s *slot) route() *Route { return &s.current.Load().Current().Route }

// Standby is a version of a route that was checked against its store and waits to
// take the place of the version in service. It is safe for concurrent use.
type Standby struct {
	Version *Version
	slot    *slot
}

// Prepare checks a route that is to take the place of the one of its name, and
// leaves that one in service. It returns ErrUnknown if no route has that name,
// and otherwise the errors of Open.
func (s *Set) Prepare(ctx context.Context, r *Route) (*Standby, error) {
	slot, err := s.slot(r.Name)
	if err != nil {
		return nil, err
	}
	v, err := newVersion(r, s.turns)
	if err != nil {
		return nil, err
	}
	if _, err := v.Check(ctx); err != nil {
		return nil, err
	}
	return &Standby{Version: v, slot: slot}, nil
}

// Route returns the waiting route with its defaults and limits; read-only.
func (s *Standby) Route() *Route { return &s.Version.Current().Route }

// Discard gives the version up, in place of Switch. ended is closed when its last holder has released
// it.
func (s *Standby) Discard() (ended <-chan struct{}) {
	s.Version.Release()
	return s.Version.ended
}

// Switch puts the version in service, in one step: searches that begin later get
// it, searches under way end with the version that they began with. ended is closed when the last
// holder of the version before has released it; only then may its table, model and
// companion be closed or removed. Switch is called once.
func (s *Standby) Switch() (ended <-chan struct{}) {
	before := s.slot.current.Swap(s.Version)
	before.Release()
	return before.ended
}
