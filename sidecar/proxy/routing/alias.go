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
	// aliasesFor is how long aliases are believed before they are read again. An answer
	// by an alias does not depend on it: checkTarget reads the alias twice more.
	aliasesFor = 5 * time.Second
	// aliasesWithin bounds how long a call waits for the aliases. A call by a name that
	// is not known by then passes.
	aliasesWithin = 100 * time.Millisecond
	// targetWithin bounds how long an answer waits for checkTarget.
	targetWithin = time.Second
)

// Target is the collection that a client's name for one stood for when names were read.
type Target struct {
	Name   string // as the client wrote it
	Routed string // as the routes name the collection
	Own    string // as the database names the collection; empty: not known
}

// Aliased reports whether the client's name is an alias, which can be switched to
// another collection while a call is answered.
func (t Target) Aliased() bool { return t.Name != t.Own }

// renamed returns the collection that a search has to name in place of the route's own
// name for it; empty where those are the same.
func (t Target) renamed() string {
	if t.Routed == t.Own {
		return ""
	}
	return t.Own
}

// aliases holds the names of the routed collections.
type aliases struct {
	mu      sync.Mutex // held while names are read, so that one call reads them
	last    atomic.Pointer[targetNames]
	own     map[string]string // the own name of each routed collection, as last read
	changes atomic.Int64      // changes of aliases that went through the proxy
}

// targetNames holds what every name of a routed collection stands for.
type targetNames struct {
	of      map[string]Target
	read    time.Time
	changes int64 // that came before
}

// current returns the names as last read, and whether they are new enough.
func (a *aliases) current() (of map[string]Target, isFresh bool) {
	last := a.last.Load()
	if last == nil {
		return nil, false
	}
	return last.of, last.changes == a.changes.Load() && time.Since(last.read) <= aliasesFor
}

// Target returns the collection that a client's name stands for, and reports whether that
// collection has a route. Names are read with the sidecar's own credentials and remembered
// for a short time.
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
	if r.identifier(name) == nil { // its store has no aliases
		return Target{Name: name, Routed: name, Own: name}, true
	}
	return Target{Name: name, Routed: name}, true
}

// Ignores reports whether Target is known to find no route for a client's name, without
// reading the names again.
func (r *Router) Ignores(name string) bool {
	if len(r.known) == 0 || name == "" {
		return true
	}
	names, isFresh := r.aliases.current()
	_, isTarget := names[name]
	return isFresh && !isTarget && !r.Covers(name)
}

// Covers reports whether a route names the collection so.
func (r *Router) Covers(collection string) bool { return len(r.known[collection]) > 0 }

// targetNames returns the names of the routed collections, read again where they are
// old. Where another call is reading them, wait says whether to wait for it.
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

// readTargets asks the database for the names of the routed collections. A collection
// whose names cannot be read keeps the last ones; where the database refuses to tell
// them, the route's own name for it is taken at its word.
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
			// A route that names the alias, or the collection itself, comes first.
			if other, taken := of[alias]; !r.Covers(alias) && (!taken || other.Routed != own) {
				of[alias] = Target{Routed: collection, Own: own}
			}
		}
		of[collection] = Target{Routed: collection, Own: own}
	}
	return of
}

// identifier returns what tells the names of a routed collection; nil if its store
// cannot.
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

// tellSwitched tells the follower of routes whose collection is an alias that was
// switched: what was derived from the old collection does not show the new one.
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
		r.follower.BeginOpen(within, journal.Write{Collection: collection, Kind: journal.Collection, All: true, Waited: true})(true, nil)
		cancel()
	}
}

// checkTarget asks the database whether an alias still stands for the collection that a
// search is answered from. It returns the Pass of one that does not, or that cannot be
// read. It is asked before the collection is read and after: a collection that the alias
// stands for again later may not be filled yet.
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

// confirm has the database confirm a ranking. For a client's alias it checks, beside the
// confirming read, that the alias still stands for the collection that was ranked.
func (c *call[A]) confirm(ctx context.Context, all []Ranked) (answer A, err error) {
	if !c.target.Aliased() {
		return c.x.Confirm(ctx, all)
	}
	checked := make(chan error, 1)
	c.background.Go(func() { checked <- c.checkTarget(ctx, c.target) })
	answer, err = c.x.Confirm(ctx, all)
	if moved := <-checked; moved != nil {
		return answer, moved
	}
	return answer, err
}
