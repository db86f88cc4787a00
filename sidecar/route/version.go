package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/turns"
)

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
	if !v.beginAsking(ctx, true) {
		return nil, fmt.Errorf("route %q is being checked against its store: %w", v.unchecked.Name, ctx.Err())
	}
	defer func() { <-v.asking }()
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

const (
	// describedFor is how long a store's description of a vector field counts as current.
	describedFor = 5 * time.Second
	// confirmFor is how long ConfirmField waits at most for a new description.
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

// ConfirmField asks the store to describe a collection again, if its last description is older than
// describedFor; "" stands for the route's own collection. If the vector field is not as it was when the
// route was checked, or rows expire that did not, the next Check asks the store for everything again. A
// collection can be made again with another metric, an index can be replaced, and a time to live can be
// set, without an error of any search. If the store does not answer within confirmFor, or half of the time that ctx leaves,
// the route stays as it is, and the next search asks again.
func (v *Version) ConfirmField(ctx context.Context, collection string) {
	c := v.checked.Load()
	if c == nil || !c.dependsOnDescription() {
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
	isOther := last == nil || last.collection != collection
	if !v.beginAsking(ctx, isOther) {
		return
	}
	defer func() { <-v.asking }()
	if !v.described.Load().covers(collection) { // no other caller asked meanwhile
		v.compareField(ctx, c, collection)
	}
}

// beginAsking makes the caller the only one that asks the store. If another caller asks, it waits for
// its end where wait is set. It reports false if the caller may not ask.
func (v *Version) beginAsking(ctx context.Context, wait bool) bool {
	select {
	case v.asking <- struct{}{}:
		return true
	default:
	}
	if !wait {
		return false
	}
	select {
	case v.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// compareField asks the store to describe a collection. If the route's vector field is not the one that c was checked
// with, or rows expire that did not then, the next Check asks the store again.
func (v *Version) compareField(ctx context.Context, c *Checked, collection string) {
	began := time.Now()
	d, err := c.StoreCan.Describe.Describe(ctx, collection)
	if err != nil {
		v.Forget(err) // the search meets the same error
		return
	}
	fresh := *v.unchecked
	if f, err := fresh.checkField(d); err != nil || f != c.Field || d.Expires != c.Expires {
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

// AliasTarget returns the collection that the route's alias last pointed at.
func (v *Version) AliasTarget() string {
	if t := v.target.Load(); t != nil {
		return *t
	}
	return v.Current().OwnName
}

// SetAliasTarget records the collection that the route's alias points at.
func (v *Version) SetAliasTarget(collection string) { v.target.Store(&collection) }
