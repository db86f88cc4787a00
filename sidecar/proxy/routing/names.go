package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/route"
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

// field is a vector field of a collection.
type field struct{ collection, vector string }

// ErrRoutes says that two routes cover the same vector field of a collection.
var ErrRoutes = errors.New("routes of the proxy contradict each other")

// Names knows which routes a collection has, and which collection a client's name stands for: the
// collection's own name, or an alias. Aliases are read with the sidecar's own credentials and cached for
// a short time. Names is safe for concurrent use.
type Names struct {
	fields      map[field]string    // the name of the route of each vector field
	collections map[string][]string // the names of the routes of each collection, by the routes' name for it
	identifier  adapters.Identifier // reads names from the store; nil if the store has no aliases
	log         *slog.Logger
	// switched is called when the alias by which routes name a collection stands for another one than
	// before. It may be nil.
	switched func(ctx context.Context, collection string)

	reading sync.Mutex // held while names are read, so that only one call reads them
	last    atomic.Pointer[targetNames]
	own     map[string]string // the own name of each routed collection, when last read
	changes atomic.Int64      // counts changes of aliases that went through the proxy
}

// newNames returns the names of the routes' collections, which identifier reads from their store. It
// returns ErrRoutes if two routes cover the same vector field.
func newNames(routes []*route.Route, identifier adapters.Identifier, log *slog.Logger) (*Names, error) {
	n := &Names{fields: map[field]string{}, collections: map[string][]string{}, identifier: identifier, log: log, own: map[string]string{}}
	for _, rt := range routes {
		at := field{rt.Collection, rt.ItemField()}
		if other := n.fields[at]; other != "" {
			return nil, fmt.Errorf("%w: %q and %q both cover vector %q of collection %q; name one of them in proxy.routes",
				ErrRoutes, other, rt.Name, at.vector, at.collection)
		}
		n.fields[at] = rt.Name
		n.collections[at.collection] = append(n.collections[at.collection], rt.Name)
	}
	return n, nil
}

// targetNames maps every name of a routed collection to its target.
type targetNames struct {
	of      map[string]Target
	read    time.Time
	changes int64 // the value of Names.changes before the reading
}

// current returns the last names, and whether they are recent enough.
func (n *Names) current() (of map[string]Target, isFresh bool) {
	last := n.last.Load()
	if last == nil {
		return nil, false
	}
	return last.of, last.changes == n.changes.Load() && time.Since(last.read) <= aliasesFor
}

// Target returns the collection that a client's name stands for, and whether it has a route.
func (n *Names) Target(ctx context.Context, name string) (t Target, ok bool) {
	if len(n.collections) == 0 || name == "" {
		return t, false
	}
	if t, ok = n.targetNames(ctx, !n.Covers(name))[name]; ok {
		t.Name = name
		return t, true
	}
	if !n.Covers(name) {
		return Target{}, false
	}
	if n.identifier == nil {
		return Target{Name: name, Routed: name, Own: name}, true
	}
	return Target{Name: name, Routed: name}, true
}

// Ignores reports whether Target would find no route for a client's name. It uses the cached names
// only.
func (n *Names) Ignores(name string) bool {
	if len(n.collections) == 0 || name == "" {
		return true
	}
	names, isFresh := n.current()
	_, isTarget := names[name]
	return isFresh && !isTarget && !n.Covers(name)
}

// Covers reports whether a route is configured with this name of a collection.
func (n *Names) Covers(collection string) bool { return len(n.collections[collection]) > 0 }

// CoversField reports whether a vector field of a collection has a route.
func (n *Names) CoversField(collection, vector string) bool {
	return n.fields[field{collection, vector}] != ""
}

// routes returns the names of all routes, in order.
func (n *Names) routes() []string { return slices.Sorted(maps.Values(n.fields)) }

// routesOf returns the names of a collection's routes.
func (n *Names) routesOf(collection string) []string { return n.collections[collection] }

// targetNames returns the names of the routed collections, and reads them again if they are old. If
// another call is reading them, wait decides whether to wait for it.
func (n *Names) targetNames(ctx context.Context, wait bool) map[string]Target {
	of, fresh := n.current()
	if fresh {
		return of
	}
	if wait || of == nil {
		n.reading.Lock()
	} else if !n.reading.TryLock() {
		return of
	}
	defer n.reading.Unlock()
	if of, fresh = n.current(); fresh {
		return of
	}
	next := &targetNames{changes: n.changes.Load(), of: n.readTargets(ctx, of)}
	n.noteSwitched(ctx, next.of)
	next.read = time.Now()
	n.last.Store(next)
	return next.of
}

// forget makes the next search ask the database for the names again.
func (n *Names) forget() { n.changes.Add(1) }

// readTargets asks the database for the names of the routed collections. If a collection's names
// cannot be read, its last names stay valid. If the database refuses to tell them, the route's own
// name counts as the collection's.
func (n *Names) readTargets(ctx context.Context, last map[string]Target) map[string]Target {
	ctx, cancel := context.WithTimeout(anonymous(context.WithoutCancel(ctx)), aliasesWithin)
	defer cancel()
	of := map[string]Target{}
	if n.identifier == nil {
		return of
	}
	for _, collection := range slices.Sorted(maps.Keys(n.collections)) {
		identity, err := n.identifier.Identify(ctx, collection)
		if err != nil {
			n.log.DebugContext(ctx, "the aliases of a routed collection are not known", "collection", collection, "error", err)
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
			if other, taken := of[alias]; !n.Covers(alias) && (!taken || other.Routed != own) {
				of[alias] = Target{Routed: collection, Own: own}
			}
		}
		of[collection] = Target{Routed: collection, Own: own}
	}
	return of
}

// noteSwitched records which collections the routes' aliases stand for, and calls switched for each alias
// that stood for another collection before.
func (n *Names) noteSwitched(ctx context.Context, now map[string]Target) {
	for collection := range n.collections {
		was, is := n.own[collection], now[collection].Own
		if is == "" || was == is {
			continue
		}
		n.own[collection] = is
		if was == "" {
			continue
		}
		n.log.InfoContext(ctx, "proxy: a route's alias was switched", "collection", collection, "from", was, "to", is)
		if n.switched != nil {
			n.switched(ctx, collection)
		}
	}
}

// checkTarget asks the database whether an alias still stands for the collection from which a
// search is answered. It returns a Pass if not, or if the alias cannot be read. It is called before
// and after the collection is read, since an alias that is switched back may stand for a collection
// that is not filled yet.
func (n *Names) checkTarget(ctx context.Context, t Target) error {
	if n.identifier == nil {
		return Pass("alias")
	}
	ctx, cancel := context.WithTimeout(anonymous(ctx), targetWithin)
	defer cancel()
	identity, err := n.identifier.Identify(ctx, t.Name)
	switch {
	case err != nil:
		n.log.DebugContext(ctx, "an alias could not be checked", "alias", t.Name, "error", err)
		return Pass("alias")
	case identity.Collection != t.Own:
		n.forget()
		return Pass("alias")
	}
	return nil
}
