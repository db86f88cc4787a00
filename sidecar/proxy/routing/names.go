package routing

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
)

// namesFor is how long the names of collections are believed. Aliases that are
// changed through the proxy are seen at once; a write by one that was changed
// elsewhere is missed for so long, and found by the next reconcile.
const namesFor = 10 * time.Second

// target is a collection that a write may change.
type target struct {
	collection string // as its route names it
	identity   adapters.Identity
	sure       bool
}

// names are all names of the collections that are followed.
type names struct {
	mu      sync.Mutex
	table   map[string][]target
	read    time.Time
	known   bool // nothing has changed them since
	changes int
	reading bool
}

// forget says that names change.
func (n *names) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = false
	n.changes++
}

// get returns the names, read anew where they are old; known is false if they
// cannot be read.
func (n *names) get(read func() (map[string][]target, error)) (table map[string][]target, known bool) {
	n.mu.Lock()
	if n.known && (n.reading || time.Since(n.read) < namesFor) {
		defer n.mu.Unlock()
		return n.table, true
	}
	changes := n.changes
	n.reading = true
	n.mu.Unlock()
	table, err := read()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reading = false
	switch {
	case changes != n.changes:
		return nil, false
	case err == nil:
		n.table, n.known = table, true
	case !n.known:
		return nil, false
	}
	n.read = time.Now() // the old ones have to do where they cannot be read
	return n.table, true
}

// targets are the collections that a write may change, each once.
func (r *Router) targets(ctx context.Context, w Writing) (all []target) {
	seen := map[string]bool{}
	add := func(ts ...target) {
		for _, t := range ts {
			if !seen[t.collection] {
				seen[t.collection] = true
				all = append(all, t)
			}
		}
	}
	for _, name := range w.Renamed {
		if r.follower.Covers(name) {
			add(target{collection: name})
		}
	}
	for _, name := range w.Collections {
		add(r.named(ctx, name)...)
	}
	if w.Everywhere {
		for name := range r.followed() {
			add(target{collection: name})
		}
	}
	return all
}

// named are the collections that a client's name for one may stand for.
func (r *Router) named(ctx context.Context, name string) (all []target) {
	table, known := r.names.get(func() (map[string][]target, error) { return r.readNames(ctx) })
	covered := r.follower.Covers(name)
	if all = table[name]; len(all) > 0 {
		return all
	}
	if covered {
		return []target{{collection: name, sure: true}}
	}
	if !known {
		for name := range r.followed() {
			all = append(all, target{collection: name})
		}
	}
	return all
}

// followed are the collections of the store that are followed.
func (r *Router) followed() map[string]adapters.Store {
	out := map[string]adapters.Store{}
	for _, route := range r.searcher.Routes() {
		if route.StoreName == r.store && r.follower.Covers(route.Collection) {
			out[route.Collection] = route.Store
		}
	}
	return out
}

// readNames asks the store, with the sidecar's own credentials, and leaves half of
// the budget to what comes behind.
func (r *Router) readNames(ctx context.Context) (map[string][]target, error) {
	ctx, cancel := context.WithTimeout(ctx, r.budget/2)
	defer cancel()
	table := map[string][]target{}
	for name, store := range r.followed() {
		t := target{collection: name, sure: true}
		also := map[string]bool{name: true}
		if identifier, ok := store.(adapters.Identifier); ok {
			var err error
			if t.identity, err = identifier.Identify(ctx, name); err != nil && !errors.Is(err, adapters.ErrNotFound) {
				return nil, err
			}
			for _, alias := range append(t.identity.Aliases, t.identity.Collection) {
				also[alias] = true
			}
		}
		for n := range also {
			table[n] = append(table[n], t)
		}
	}
	return table, nil
}

// anonymous is a context without the caller's metadata.
func anonymous(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.MD{})
}
