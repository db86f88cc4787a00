package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// lane is a route in service: checked at New as far as that goes without its
// store, and once with it.
type lane struct {
	route  Route // defaults filled in
	spec   rerank.Spec
	turn   chan struct{} // held by the one that asks the store
	opened atomic.Pointer[opened]
}

// opened is a route that its store agrees with. It is read-only.
type opened struct {
	Route
	spec   rerank.Spec
	limits adapters.Limits
}

func newLane(r *Route) (*lane, error) {
	l := &lane{route: *r, turn: make(chan struct{}, 1)}
	if r.Model.Similarity == nil {
		return nil, fmt.Errorf("%w: route %q has no model", ErrSetup, r.Name)
	}
	l.spec = r.Model.Spec()
	fillDefaults(&l.route, l.spec)
	return l, nil
}

// fillDefaults: see the fields of Route.
func fillDefaults(r *Route, spec rerank.Spec) {
	r.Placement = cmp.Or(r.Placement, PlacementStored)
	r.Strategy = cmp.Or(r.Strategy, rerank.Average)
	r.Depth = cmp.Or(r.Depth, 200)
	r.AverageDepth = cmp.Or(r.AverageDepth, r.Depth)
	r.Weights = cmp.Or(r.Weights, rerank.UniformWeights)
	r.Failure = cmp.Or(r.Failure, FailOpen)
	r.MaxK = cmp.Or(r.MaxK, 1000)
	r.MaxDepth = cmp.Or(r.MaxDepth, 10000)
	r.MaxRounds = cmp.Or(r.MaxRounds, 8)
}

func (l *lane) open(ctx context.Context) (*opened, error) {
	if o := l.opened.Load(); o != nil {
		return o, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if o := l.opened.Load(); o != nil {
		return o, nil
	}
	o := &opened{Route: l.route, spec: l.spec}
	l.opened.Store(o)
	return o, nil
}

func (l *lane) snapshot() Route {
	if o := l.opened.Load(); o != nil {
		return o.Route
	}
	return l.route
}
