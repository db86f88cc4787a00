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
	// namesFor is how long the names of collections are used before they are read again. Alias
	// changes through the proxy are noticed at once. After a change elsewhere, writes by the alias
	// are missed for up to this time, and found by the next reconcile.
	namesFor = 10 * time.Second
	// namesWithin limits one attempt to read the names. Only background work waits that long.
	namesWithin = 5 * time.Second
	// namesAgain is the delay before names are read again after a failed attempt.
	namesAgain = 100 * time.Millisecond
)

// target is a collection that a write may change.
type target struct {
	collection string // the route's name for it
	identity   adapters.Identity
	// sure: a name in the write stands for the collection. Otherwise the write may change any of its
	// rows.
	sure bool
}

// nameTable maps each name of a followed collection to the collections that it may stand for.
type nameTable map[string][]target

// writeNames knows which followed collections a name in a write may stand for. Unlike Names, it has to
// miss none: it keeps count of renames in flight, and says when it does not know. It is safe for
// concurrent use.
type writeNames struct {
	// ask reads the names from the database.
	ask        func(ctx context.Context) (nameTable, error)
	background *background

	mu      sync.Mutex
	table   nameTable
	read    time.Time
	known   bool           // no rename has ended since they were read
	renames int            // renames that have ended and that the database did not refuse
	reading chan struct{}  // closed when the current read ends; nil: none is running
	moving  map[string]int // counts the renames in flight that may change a name
	anyMove int            // renames in flight that may change any name
}

// beginRename counts a write that renames as in flight.
func (n *writeNames) beginRename(w Writing) { n.move(w, 1) }

// endRename ends the count of beginRename.
func (n *writeNames) endRename(w Writing) { n.move(w, -1) }

// renamed records that the database may have carried out a rename.
func (n *writeNames) renamed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = false
	n.renames++
}

// move counts a rename in flight.
func (n *writeNames) move(w Writing, by int) {
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

// moves reports whether a rename in flight may change one of the names.
func (n *writeNames) moves(names []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.anyMove > 0 || slices.ContainsFunc(names, func(name string) bool { return n.moving[name] > 0 })
}

// ended returns how many renames have ended.
func (n *writeNames) ended() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.renames
}

// get returns the names, and reads them again if they are old. It waits until ctx ends; the read
// continues for later callers. known is false if the names have not arrived by then, or cannot be
// read.
func (n *writeNames) get(ctx context.Context) (table nameTable, known bool) {
	n.mu.Lock()
	if n.known && time.Since(n.read) < namesFor {
		defer n.mu.Unlock()
		return n.table, true
	}
	if n.reading == nil {
		n.reading = make(chan struct{})
		n.background.Go(n.readAgain)
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

// readAgain reads the names for all waiting calls. If they cannot be read, the old names stay in use
// unless a rename has changed them.
func (n *writeNames) readAgain() {
	n.mu.Lock()
	renames := n.renames
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.background.closing, namesWithin)
	defer cancel()
	table, err := n.ask(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case renames != n.renames: // the names may predate a rename
		n.known = false
	case err == nil:
		n.table, n.read, n.known = table, time.Now(), true
	case n.known:
		n.read = time.Now()
	}
	close(n.reading)
	n.reading = nil
}

// askNames reads the names of followed collections from their store with the sidecar's own
// credentials. If identifier is nil, each collection has one name.
func askNames(ctx context.Context, identifier adapters.Identifier, followed []string) (nameTable, error) {
	table := nameTable{}
	for _, name := range followed {
		t := target{collection: name, sure: true}
		also := map[string]bool{name: true}
		if identifier != nil {
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

// anonymous returns a context without the caller's metadata.
func anonymous(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.MD{})
}
