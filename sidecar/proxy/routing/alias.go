package routing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

const (
	// aliasesFor is how long aliases are believed: so long a search by an alias that
	// somebody else has moved can still be answered for its old collection.
	aliasesFor = 5 * time.Second
	// aliasesWithin bounds how long a call waits for them; without, it passes.
	aliasesWithin = 100 * time.Millisecond
)

// aliases are the other names of the routed collections.
type aliases struct {
	mu   sync.Mutex // held while they are read, so that one call reads them
	of   map[string]string
	read time.Time
	at   int64        // changes, when they were read
	seen atomic.Int64 // changes that went through the proxy
}

// Collection is the routed collection of that name or alias, if there is one.
// Aliases are read with the sidecar's own credentials and remembered for a
// short time; the call itself goes to the database by the name that it came with.
func (r *Router) Collection(ctx context.Context, name string) (collection string, ok bool) {
	if r.Covers(name) {
		return name, true
	}
	if len(r.known) == 0 || name == "" {
		return "", false
	}
	a := &r.aliases
	a.mu.Lock()
	defer a.mu.Unlock()
	if seen := a.seen.Load(); seen != a.at || time.Since(a.read) > aliasesFor {
		a.of, a.at, a.read = r.readAliases(ctx), seen, time.Now()
	}
	collection, ok = a.of[name]
	return collection, ok
}

// Covers reports whether a route is of the collection of that name, which is no alias.
func (r *Router) Covers(collection string) bool { return len(r.known[collection]) > 0 }

// forget makes the next search ask the database again.
func (a *aliases) forget() { a.seen.Add(1) }

func (r *Router) readAliases(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(anonymous(context.WithoutCancel(ctx)), aliasesWithin)
	defer cancel()
	of := map[string]string{}
	for collection, names := range r.known {
		route, err := r.searcher.Route(names[0])
		if err != nil {
			continue
		}
		identifier, can := route.Store.(adapters.Identifier)
		if !can {
			continue
		}
		identity, err := identifier.Identify(ctx, collection)
		if err != nil {
			r.log.DebugContext(ctx, "the aliases of a routed collection are not known", "collection", collection, "error", err)
			continue
		}
		for _, alias := range identity.Aliases {
			of[alias] = collection
		}
	}
	return of
}
