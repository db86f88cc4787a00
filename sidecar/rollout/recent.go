package rollout

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/likenessdb/likeness/sidecar/search"
)

var _ search.Observer = (*Recent)(nil)

// A ring keeps the first recentKept requests of a route, and after that every
// recentEvery-th request in place of the oldest.
const (
	recentKept  = 32
	recentEvery = 16
)

// Recent keeps in memory a sample of the last requests that were answered. New versions are
// tried with them. It is safe for concurrent use.
type Recent struct{ routes map[string]*ring }

type ring struct {
	count atomic.Uint64
	kept  [recentKept]atomic.Pointer[search.Request]
}

// NewRecent makes a Recent for these routes.
func NewRecent(routes []string) *Recent {
	r := &Recent{routes: map[string]*ring{}}
	for _, name := range routes {
		r.routes[name] = &ring{}
	}
	return r
}

// Searched implements search.Observer.
func (r *Recent) Searched(_ context.Context, route string, req search.Request, _ search.Answer, err error) {
	in := r.routes[route]
	if in == nil || err != nil {
		return
	}
	n := in.count.Add(1) - 1
	if n >= recentKept && n%recentEvery != 0 {
		return
	}
	at := n % recentKept
	if n >= recentKept {
		at = n / recentEvery % recentKept
	}
	req.Query.Vector = slices.Clone(req.Query.Vector) // the caller may overwrite its vector
	in.kept[at].Store(&req)
}

// requests lists the requests that are kept for a route.
func (r *Recent) requests(route string) []search.Request {
	in := r.routes[route]
	if in == nil {
		return nil
	}
	var out []search.Request
	for i := range in.kept {
		if q := in.kept[i].Load(); q != nil {
			out = append(out, *q)
		}
	}
	return out
}
