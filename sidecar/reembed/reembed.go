// Package reembed embeds the items of bridged routes again while the routes answer searches: first the
// items that answers show, and beside them all items in the order of the companion, at a set rate. The
// new vectors go into the route's companion, marked as new, so that the work is not lost in a restart.
package reembed

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

var _ search.Observer = (*Filler)(nil)

// Options are the options of New.
type Options struct {
	// Routes names the routes whose items are embedded again.
	Routes []string
	// Route returns the route of that name in service.
	Route func(name string) (*route.Route, error)
	// Embedder returns the embedder of that name, or nil. It should share nothing with the embedders of
	// queries, which would wait for it or fail with it.
	Embedder func(name string) embed.Embedder
	// Write writes new vectors to the companion of a route, as follow.Follower.Reembed does.
	Write func(ctx context.Context, r *route.Route, vectors []follow.NewVector) (written int, err error)
	// Rest is the pause between two walks over all items; 0 means a minute.
	Rest time.Duration
	// RetryRefused is when a text that cannot be embedded is tried again; 0 means an hour. An item that
	// changes is tried in the next walk.
	RetryRefused time.Duration
	Logger       *slog.Logger
}

// Filler embeds the items of routes again. It is safe for concurrent use.
type Filler struct {
	routes map[string]*filling // read-only
}

// New returns a filler, which works while Run runs.
func New(o Options) *Filler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rest == 0 {
		o.Rest = time.Minute
	}
	if o.RetryRefused == 0 {
		o.RetryRefused = time.Hour
	}
	f := &Filler{routes: map[string]*filling{}}
	for _, name := range o.Routes {
		f.routes[name] = newFilling(name, o)
	}
	return f
}

// Run embeds items until ctx is done. It retries whatever fails, and returns nil.
func (f *Filler) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, of := range f.routes {
		g.Go(func() error {
			of.run(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Searched implements search.Observer: it queues the items of an answer that a bridge scored. It never
// waits. If the queue is full, the items come later, with all others.
func (f *Filler) Searched(_ context.Context, rt string, _ search.Request, a search.Answer, err error) {
	if of := f.routes[rt]; of != nil && err == nil && a.Reembedded != nil {
		of.touch(a.Reembedded.Bridged)
	}
}

// State says how far a route has embedded its items again.
type State struct {
	Route string `json:"route"`
	// Items counts the items that the last walk over the companion has read, and New the items among them
	// that have a new vector. Whole: the walk has read all items. Seen is when it ended.
	Items int64     `json:"items"`
	New   int64     `json:"new"`
	Whole bool      `json:"whole"`
	Seen  time.Time `json:"seen,omitzero"`
	// Waiting counts the items that answers showed and that were not embedded yet.
	Waiting int `json:"waiting"`
	// These count items since the start. Embedded: a new vector was written. Changed: the item was written
	// or deleted while it was embedded. Refused: it has no text, or the embedder refused the text.
	// Dropped: an answer showed it while the queue was full.
	Embedded int64 `json:"embedded"`
	Changed  int64 `json:"changed"`
	Refused  int64 `json:"refused"`
	Dropped  int64 `json:"dropped"`
	// Failures counts failed attempts, and Error has the text of the last one, if nothing succeeded since.
	Failures int64  `json:"failures"`
	Error    string `json:"error,omitempty"`
}

// States returns the states of all routes, by name.
func (f *Filler) States() []State {
	var all []State
	for _, name := range slices.Sorted(maps.Keys(f.routes)) {
		all = append(all, f.routes[name].current())
	}
	return all
}

// errNotServed means that the route in service does not embed its items again.
var errNotServed = errors.New("the version in service does not embed its items again, or its files cannot be used")
