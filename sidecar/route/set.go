package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
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

type pinsKey struct{}

// pins holds the route versions that the searches of one call share.
type pins struct {
	mu  sync.Mutex
	all []pin // few, since most calls search one route
}

type pin struct {
	slot    *slot
	version *Version
}

// Pin makes all searches and scores under the returned context use the same version of a route: the
// version that the first of them used. A call whose parts are answered together needs that. The
// caller calls release after the last search.
func Pin(ctx context.Context) (pinned context.Context, release func()) {
	p := &pins{}
	return context.WithValue(ctx, pinsKey{}, p), p.release
}

func (p *pins) hold(s *slot) *Version {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(p pin) bool { return p.slot == s })
	if i < 0 {
		i = len(p.all)
		p.all = append(p.all, pin{s, s.hold()})
	}
	v := p.all[i].version
	v.holds.Add(1) // the version cannot end while the pin holds it
	return v
}

func (p *pins) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pin := range p.all {
		pin.version.Release()
	}
	p.all = nil
}

// Version is one version of a route in service. NewSet makes the checks that need no store; Check
// asks the store. A Version counts its holders, so that its parts can be closed after the last has
// released it.
type Version struct {
	holds     atomic.Int64  // the searches, and the slot or the Standby that has it
	ended     chan struct{} // closed when the last holder has released it
	unchecked *checking     // the route with defaults, without what the store says
	asking    chan struct{} // a semaphore: holds a value while a caller asks the store
	checked   atomic.Pointer[Checked]
	described atomic.Pointer[description] // the last description of the field; nil if not known
	target    atomic.Pointer[string]      // the collection that the route's alias last pointed at; nil if not known
}

const (
	// describedFor is how long a store's description of a vector field counts as current.
	describedFor = 5 * time.Second
	// confirmFor is how long a search waits at most for a new description.
	confirmFor = time.Second
)

// description records which collection a store described when it was last asked for a route's vector
// field, and the time.
type description struct {
	collection string
	at         time.Time
}

// covers reports whether the store described this collection within describedFor.
func (d *description) covers(collection string) bool {
	return d != nil && d.collection == collection && time.Since(d.at) < describedFor
}

// AliasTarget returns the collection that the route's alias last pointed at.
func (v *Version) AliasTarget() string {
	if t := v.target.Load(); t != nil {
		return *t
	}
	return v.Current().OwnName
}

// SetAliasTarget records the collection that the route's alias points at.
func (v *Version) SetAliasTarget(collection string) { v.target.Store(&collection) }

func newVersion(r *Route, t *turns.Turns) (*Version, error) {
	c, err := check(r, t)
	if err != nil {
		return nil, err
	}
	v := &Version{unchecked: c, asking: make(chan struct{}, 1), ended: make(chan struct{})}
	v.holds.Store(1)
	return v, nil
}

// Hold adds a holder, for the caller to release. It reports false if the last holder has released the
// version already.
func (v *Version) Hold() bool {
	for {
		n := v.holds.Load()
		if n == 0 {
			return false
		}
		if v.holds.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release removes a holder. When the last holder is gone, the version's parts can be closed.
func (v *Version) Release() {
	if v.holds.Add(-1) == 0 {
		close(v.ended)
	}
}

// Current returns the route with its state as last known, without calling the store.
func (v *Version) Current() *Checked {
	if c := v.checked.Load(); c != nil {
		return c
	}
	return &v.unchecked.Checked
}

// Check returns the route checked against its store. The first caller asks the
// store while others wait. It returns what Open returns.
func (v *Version) Check(ctx context.Context) (*Checked, error) {
	if c := v.checked.Load(); c != nil {
		return c, nil
	}
	select {
	case v.asking <- struct{}{}:
		defer func() { <-v.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("route %q is being checked against its store: %w", v.unchecked.Name, ctx.Err())
	}
	if c := v.checked.Load(); c != nil {
		return c, nil
	}
	c := *v.unchecked
	began := time.Now()
	if err := c.checkStore(ctx); err != nil {
		return nil, err
	}
	c.StoreAsked = true
	v.described.Store(&description{cmp.Or(c.OwnName, c.Collection), began})
	if err := c.checkEmbedder(ctx); err != nil {
		return nil, err
	}
	if err := c.measureScan(ctx); err != nil {
		return nil, err
	}
	v.checked.Store(&c.Checked)
	return &c.Checked, nil
}

// Confirm makes sure that the store lately described the vector field of a collection as it was when
// the route was checked; "" stands for the route's own collection. If the field has changed, the next
// Check asks the store for everything again. A collection can be made again with another metric, and
// an index can be replaced, without an error of any search. If the store does not answer within confirmFor,
// or half of the time that ctx leaves, the route stays as it is, and the next search asks again.
func (v *Version) Confirm(ctx context.Context, collection string) {
	c := v.checked.Load()
	if c == nil || !c.dependsOnField() {
		return
	}
	collection = cmp.Or(collection, c.OwnName, c.Collection)
	last := v.described.Load()
	if last.covers(collection) {
		return
	}
	within := confirmFor
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/2) // the rest is for the search, and what it falls back to
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case v.asking <- struct{}{}:
	default:
		if last != nil && last.collection == collection {
			return // another caller asks
		}
		select {
		case v.asking <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	defer func() { <-v.asking }()
	if v.described.Load().covers(collection) {
		return
	}
	began := time.Now()
	d, err := c.StoreCan.Describe.Describe(ctx, collection)
	if err != nil {
		v.Forget(err) // the search meets the same error
		return
	}
	fresh := *v.unchecked
	if f, err := fresh.checkField(d); err != nil || f != c.Field {
		v.checked.Store(nil)
		return
	}
	v.described.Store(&description{collection, began})
}

// Forget makes the next search check the route against its store again if err shows that the
// collection has changed.
func (v *Version) Forget(err error) {
	for _, changed := range []error{adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric} {
		if errors.Is(err, changed) {
			v.checked.Store(nil)
		}
	}
}

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
