package routing

import (
	"context"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// markTried marks the searches of a call as Tried if an experiment answers one of them.
func (c *call[A]) markTried(ctx context.Context) {
	if c.trials == nil || !c.trials.Trying() {
		return
	}
	routes := make([]*route.Route, len(c.asked.Searches))
	for i, s := range c.asked.Searches {
		var err error
		if routes[i], err = c.coverage.routeOf(ctx, c.target.Routed, s.Vector); err != nil {
			return // whoever asks for the route says why
		}
	}
	if c.anyTried(ctx, c.asked.Searches, routes) {
		for i := range c.asked.Searches {
			c.asked.Searches[i].Tried = true
		}
	}
}

// anyTried reports whether an experiment answers one of the searches of a call. It answers none unless it
// can answer all: none that is a stage of an answer, asks for an exact answer, reaches below the ranks that
// are answered, or has a threshold, since scores of two versions do not compare.
func (c *call[A]) anyTried(ctx context.Context, searches []Search, routes []*route.Route) bool {
	if c.trials == nil || !c.trials.Trying() {
		return false
	}
	tried := false
	for i, s := range searches {
		switch {
		case s.Staged, s.Find != nil, s.Exact, s.Threshold != nil, s.Limit > search.MaxTried, s.Offset > search.MaxTried-s.Limit:
			return false
		default:
			tried = tried || c.trials.Tries(search.Request{
				Route: routes[i].Name, Query: s.similarityQuery(), K: int(s.Limit + s.Offset), User: userOf(ctx),
			})
		}
	}
	return tried
}
