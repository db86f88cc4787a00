package routing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

const (
	// aliasesFor is how long aliases are used before they are read again. Answers by an alias do
	// not depend on it, because checkTarget reads the alias twice more.
	aliasesFor = 5 * time.Second
	// aliasesWithin limits how long a call waits for the aliases. A call by a name that is still
	// unknown then passes.
	aliasesWithin = 100 * time.Millisecond
	// targetWithin limits how long an answer waits for checkTarget.
	targetWithin = time.Second
)

// Target is the collection that a client's name stood for when names were last read.
type Target struct {
	Name   string // as the client wrote it
	Routed string // as routes name the collection
	Own    string // as the database names the collection; empty: unknown
}

// Aliased reports whether the client's name is an alias, which can be switched to
// another collection while a call is answered.
func (t Target) Aliased() bool { return t.Name != t.Own }

// renamed returns the name by which a search must address the collection instead of the route's
// name, or "" if both names are the same.
func (t Target) renamed() string {
	if t.Routed == t.Own {
		return ""
	}
	return t.Own
}

// aliases caches the names of the routed collections.
type aliases struct {
	mu      sync.Mutex // held while names are read, so that only one call reads them
	last    atomic.Pointer[targetNames]
	own     map[string]string // the own name of each routed collection, when last read
	changes atomic.Int64      // counts changes of aliases that went through the proxy
}

// targetNames maps every name of a routed collection to its target.
type targetNames struct {
	of      map[string]Target
	read    time.Time
	changes int64 // the value of aliases.changes before the reading
}

// current returns the last names, and whether they are recent enough.
func (a *aliases) current() (of map[string]Target, isFresh bool) {
	last := a.last.Load()
	if last == nil {
		return nil, false
	}
	return last.of, last.changes == a.changes.Load() && time.Since(last.read) <= aliasesFor
}

// Target returns the collection that a client's name stands for, and whether it has a route. Names
// are read with the sidecar's own credentials and cached for a short time.
func (r *Router) Target(ctx context.Context, name string) (t Target, ok bool) {
	if len(r.known) == 0 || name == "" {
		return t, false
	}
	if t, ok = r.targetNames(ctx, !r.Covers(name))[name]; ok {
		t.Name = name
		return t, true
	}
	if !r.Covers(name) {
		return Target{}, false
	}
	if r.identifier(name) == nil { // the store has no aliases
		return Target{Name: name, Routed: name, Own: name}, true
	}
	return Target{Name: name, Routed: name}, true
}

// Ignores reports whether Target would find no route for a client's name. It uses the cached names
// only.
func (r *Router) Ignores(name string) bool {
	if len(r.known) == 0 || name == "" {
		return true
	}
	names, isFresh := r.aliases.current()
	_, isTarget := names[name]
	return isFresh && !isTarget && !r.Covers(name)
}

// Covers reports whether a route is configured with this name of a collection.
func (r *Router) Covers(collection string) bool { return len(r.known[collection]) > 0 }

// targetNames returns the names of the routed collections, and reads them again if they are old. If
// another call is reading them, wait decides whether to wait for it.
func (r *Router) targetNames(ctx context.Context, wait bool) map[string]Target {
	a := &r.aliases
	of, fresh := a.current()
	if fresh {
		return of
	}
	if wait || of == nil {
		a.mu.Lock()
	} else if !a.mu.TryLock() {
		return of
	}
	defer a.mu.Unlock()
	if of, fresh = a.current(); fresh {
		return of
	}
	next := &targetNames{changes: a.changes.Load(), of: r.readTargets(ctx, of)}
	r.tellSwitched(ctx, next.of)
	next.read = time.Now()
	a.last.Store(next)
	return next.of
}

// forget makes the next search ask the database for the names again.
func (a *aliases) forget() { a.changes.Add(1) }

// readTargets asks the database for the names of the routed collections. If a collection's names
// cannot be read, its last names stay valid. If the database refuses to tell them, the route's own
// name counts as the collection's.
func (r *Router) readTargets(ctx context.Context, last map[string]Target) map[string]Target {
	ctx, cancel := context.WithTimeout(anonymous(context.WithoutCancel(ctx)), aliasesWithin)
	defer cancel()
	of := map[string]Target{}
	for _, collection := range slices.Sorted(maps.Keys(r.known)) {
		identifier := r.identifier(collection)
		if identifier == nil {
			continue
		}
		identity, err := identifier.Identify(ctx, collection)
		if err != nil {
			r.log.DebugContext(ctx, "the aliases of a routed collection are not known", "collection", collection, "error", err)
			for name, t := range last {
				if t.Routed == collection {
					of[name] = t
				}
			}
			if errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrUnsupported) {
				of[collection] = Target{Routed: collection, Own: collection}
			}
			continue
		}
		own := identity.Collection
		if own == "" {
			own = collection
		}
		for _, alias := range identity.Aliases {
			// A route that names the alias itself, or the collection by its own name, takes
			// precedence.
			if other, taken := of[alias]; !r.Covers(alias) && (!taken || other.Routed != own) {
				of[alias] = Target{Routed: collection, Own: own}
			}
		}
		of[collection] = Target{Routed: collection, Own: own}
	}
	return of
}

// identifier returns the store's interface for reading names, or nil if the store has none.
func (r *Router) identifier(collection string) adapters.Identifier {
	names := r.known[collection]
	if len(names) == 0 {
		return nil
	}
	route, err := r.searcher.Route(names[0])
	if err != nil {
		return nil
	}
	identifier := adapters.AbilitiesOf(route.Store).Identify
	return identifier
}

// tellSwitched tells the follower about routes whose alias now stands for another collection: data
// derived from the old collection does not fit the new one.
func (r *Router) tellSwitched(ctx context.Context, now map[string]Target) {
	for collection := range r.known {
		was, is := r.aliases.own[collection], now[collection].Own
		if is == "" || was == is {
			continue
		}
		r.aliases.own[collection] = is
		if was == "" {
			continue
		}
		r.log.InfoContext(ctx, "proxy: a route's alias was switched", "collection", collection, "from", was, "to", is)
		if r.follower == nil || !r.follower.Covers(collection) {
			continue
		}
		within, cancel := r.withinBudget(ctx)
		r.follower.Begin(within, journal.Write{Collection: collection, Kind: journal.Collection, All: true, Waited: true})(true, nil)
		cancel()
	}
}

// checkTarget asks the database whether an alias still stands for the collection from which a
// search is answered. It returns a Pass if not, or if the alias cannot be read. It is called before
// and after the collection is read, since an alias that is switched back may stand for a collection
// that is not filled yet.
func (r *Router) checkTarget(ctx context.Context, t Target) error {
	identifier := r.identifier(t.Routed)
	if identifier == nil {
		return Pass("alias")
	}
	ctx, cancel := context.WithTimeout(anonymous(ctx), targetWithin)
	defer cancel()
	identity, err := identifier.Identify(ctx, t.Name)
	switch {
	case err != nil:
		r.log.DebugContext(ctx, "an alias could not be checked", "alias", t.Name, "error", err)
		return Pass("alias")
	case identity.Collection != t.Own:
		r.aliases.forget()
		return Pass("alias")
	}
	return nil
}
