package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
)

const (
	// namesFor is how long the names of collections are believed. Aliases that are
	// changed through the proxy are seen at once; a write by one that was changed
	// elsewhere is missed for so long, and found by the next reconcile.
	namesFor = 10 * time.Second
	// namesWithin bounds one attempt to read the names; nothing waits so long but what
	// needs no answer.
	namesWithin = 5 * time.Second
	// namesAgain is how long after an attempt that failed the names are read again.
	namesAgain = 100 * time.Millisecond
)

// target is a collection that a write may change.
type target struct {
	collection string // as its route names it
	identity   adapters.Identity
	sure       bool
}

// nameTable maps each name that clients have for a followed collection to the
// collections that it stands for.
type nameTable map[string][]target

// names are all names of the collections that are followed.
type names struct {
	mu      sync.Mutex
	table   nameTable
	read    time.Time
	known   bool           // no rename has ended since they were read
	renames int            // that ended and that the database did not refuse
	reading chan struct{}  // closed when the read under way has ended; nil: no read is under way
	moving  map[string]int // names that renames on their way may change, and how many do
	anyMove int            // renames on their way that may change any name
}

// beginRename notes that a rename is on its way, if the write is one.
func (n *names) beginRename(w Writing) { n.move(w, 1) }

// endRename notes that a rename is not on its way any more.
func (n *names) endRename(w Writing) { n.move(w, -1) }

// renamed notes that the database may have carried out a rename.
func (n *names) renamed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = false
	n.renames++
}

// move counts a rename on its way.
func (n *names) move(w Writing, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.Everywhere {
		n.anyMove += by
	}
	for _, name := range w.Renamed {
		if n.moving == nil {
			n.moving = map[string]int{}
		}
		if n.moving[name] += by; n.moving[name] == 0 {
			delete(n.moving, name)
		}
	}
}

// moves reports whether a rename that is on its way may change one of these names.
func (n *names) moves(names []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.anyMove > 0 || slices.ContainsFunc(names, func(name string) bool { return n.moving[name] > 0 })
}

// ended is how many renames have ended.
func (n *names) ended() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.renames
}

// getNames returns the names, read anew where they are old. It waits for them until ctx
// ends; the read goes on, so that who comes later finds them. known is false if they
// are not there by then, or cannot be read.
func (r *Router) getNames(ctx context.Context) (table nameTable, known bool) {
	n := &r.names
	n.mu.Lock()
	if n.known && time.Since(n.read) < namesFor {
		defer n.mu.Unlock()
		return n.table, true
	}
	if n.reading == nil {
		n.reading = make(chan struct{})
		r.background.Go(r.readNames)
	}
	reading := n.reading
	n.mu.Unlock()
	select {
	case <-reading:
	case <-ctx.Done():
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table, n.known
}

// readNames reads the names for everybody who waits. Where they cannot be read, old
// ones that no rename has changed have to do.
func (r *Router) readNames() {
	n := &r.names
	n.mu.Lock()
	renames := n.renames
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.closing, namesWithin)
	defer cancel()
	table, err := r.askNames(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case renames != n.renames: // they may be older
		n.known = false
	case err == nil:
		n.table, n.read, n.known = table, time.Now(), true
	case n.known:
		n.read = time.Now()
	}
	close(n.reading)
	n.reading = nil
}

// askNames asks the store, with the sidecar's own credentials.
func (r *Router) askNames(ctx context.Context) (nameTable, error) {
	table := nameTable{}
	for name, store := range r.followed() {
		t := target{collection: name, sure: true}
		also := map[string]bool{name: true}
		if identifier := adapters.AbilitiesOf(store).Identify; identifier != nil {
			var err error
			if t.identity, err = identifier.Identify(anonymous(ctx), name); err != nil && !errors.Is(err, adapters.ErrNotFound) {
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

// targets are the collections that a write may change, each once. Where the names
// that it has for them are not known yet, known is false, and there may be more.
func (r *Router) targets(ctx context.Context, w Writing) (all []target, known bool) {
	add := func(ts ...target) {
		for _, t := range ts {
			if !slices.ContainsFunc(all, func(have target) bool { return have.collection == t.collection }) {
				all = append(all, t)
			}
		}
	}
	for _, name := range w.Renamed {
		if r.follower.Covers(name) {
			add(target{collection: name})
		}
	}
	known = true
	if len(w.Collections) > 0 {
		half, cancel := context.WithTimeout(ctx, r.budget/2) // the rest is for what comes behind
		defer cancel()
		table, read := r.getNames(half)
		for _, name := range w.Collections {
			here := table[name]
			if !read {
				here = nil
			}
			if len(here) == 0 && r.follower.Covers(name) {
				here = []target{{collection: name, sure: true}}
			}
			add(here...)
			known = known && (read || len(here) > 0)
		}
	}
	if w.Everywhere {
		for name := range r.followed() {
			add(target{collection: name})
		}
	}
	return all, known
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

// anonymous is a context without the caller's metadata.
func anonymous(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.MD{})
}
