package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/likenessdb/likeness/internal/turns"
)

var _ Searcher = (*Pipeline)(nil)

// Options are what a Pipeline can do without.
type Options struct {
	// Observer is told of every search; nil: nobody is.
	Observer Observer
	// Tracer makes a span a step; nil makes none.
	Tracer trace.Tracer
	// Turns are those of all that keeps processors busy; nil: the pipeline's own, as
	// many at a time as there are processors.
	Turns *turns.Turns
	// Logger gets what an answer does not say; nil drops it.
	Logger *slog.Logger
}

// Pipeline answers requests on its routes. It is safe for concurrent use.
type Pipeline struct {
	observer Observer
	tracer   trace.Tracer
	log      *slog.Logger
	slots    map[string]*slot
	names    []string     // sorted
	sharing  *turns.Turns // the routes' too
}

// New makes a pipeline of routes, which the caller does not change after. It
// calls no store: Pipeline.Open does, or the first search of a route. It
// returns ErrSetup, one for every route that contradicts itself, its model or
// its table.
func New(routes []*Route, o Options) (*Pipeline, error) {
	p := &Pipeline{observer: o.Observer, tracer: o.Tracer, log: o.Logger, slots: map[string]*slot{}, sharing: o.Turns}
	if p.sharing == nil {
		p.sharing = turns.New(runtime.GOMAXPROCS(0))
	}
	if p.tracer == nil {
		p.tracer = noop.NewTracerProvider().Tracer("")
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var failed []error
	for _, r := range routes {
		l, err := newLane(r, p.sharing)
		if err == nil && p.slots[r.Name] != nil {
			err = fmt.Errorf("%w: two routes are named %q; rename one", ErrSetup, r.Name)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		p.slots[r.Name] = newSlot(l)
		p.names = append(p.names, r.Name)
	}
	slices.SortFunc(p.names, strings.Compare)
	return p, errors.Join(failed...)
}

// Open checks every route against its store and joins what is wrong: ErrSetup
// for a route that cannot be served, the store's own error where it could not be
// asked. A route that failed is checked again by its next search or Open.
func (p *Pipeline) Open(ctx context.Context) error {
	var failed []error
	for _, name := range p.names {
		failed = append(failed, p.OpenRoute(ctx, name)) // it names the route
	}
	return errors.Join(failed...)
}

// OpenRoute checks one route against its store, as Open does with all. It
// returns ErrRoute if there is none of that name.
func (p *Pipeline) OpenRoute(ctx context.Context, name string) error {
	l, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	defer l.release()
	_, err = l.open(ctx)
	return err
}

// Open checks one route against its model, table and store, and fills in its
// defaults and its limits narrowed by the store's. It returns ErrSetup, or the
// store's error, adapters.ErrUnavailable among them, where it could not be asked.
func Open(ctx context.Context, r *Route) error {
	l, err := newLane(r, turns.New(runtime.GOMAXPROCS(0)))
	if err != nil {
		return err
	}
	opened, err := l.open(ctx)
	if err != nil {
		return err
	}
	*r = opened.Route
	return nil
}

// Routes lists copies of the routes by name as they are served now, with the
// defaults filled in and, where the store was reached, with its limits.
func (p *Pipeline) Routes() []*Route {
	out := make([]*Route, len(p.names))
	for i, name := range p.names {
		r := *p.slots[name].route()
		out[i] = &r
	}
	return out
}

// Route is the route of that name as it is served now: read-only, and not to be
// kept, since another version can take its place. Its table may be closed by
// then; Hold keeps it open. It returns ErrRoute. It allocates nothing.
func (p *Pipeline) Route(name string) (*Route, error) {
	s, err := p.slot(name)
	if err != nil {
		return nil, err
	}
	return s.route(), nil
}
