package routing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/recent"
	"github.com/likenessdb/likeness/sidecar/route"
)

// coverage finds the route of a search, or the Pass that says why no route answers it. It is safe for concurrent use.
type coverage struct {
	names   *Names
	find    func(name string) (*route.Route, error)    // returns the route in service
	store   adapters.Abilities                         // of the store that clients connect to
	schemas recent.Cache[string, adapters.Description] // by the route's name for the collection
	log     *slog.Logger

	mu  sync.Mutex
	off map[string]bool // routes that are switched off
}

// routeOf returns the route of a vector field, or the Pass of its searches.
func (c *coverage) routeOf(ctx context.Context, collection, vector string) (*route.Route, error) {
	name, err := c.routeName(ctx, collection, vector)
	if err != nil {
		return nil, err
	}
	if c.isOff(name) {
		return nil, Pass("off")
	}
	rt, err := c.find(name)
	switch {
	case err != nil:
		return nil, Degraded{Reason: "failed"} // the route is gone
	case rt.Broken != nil:
		return nil, Degraded{Reason: "broken", Closed: rt.Failure == route.FailClosed}
	case rt.Owner != "":
		return nil, Pass("owner") // the route's items are not points
	}
	return rt, nil
}

// routeToRescore returns the route of a search that is rescored, or the Pass of the search.
func (c *coverage) routeToRescore(ctx context.Context, collection string, s Search) (*route.Route, error) {
	rt, err := c.routeOf(ctx, collection, s.Vector)
	switch {
	case s.Vectors.Rows > 0 && errors.Is(err, Pass("vector")):
		return nil, Pass("not-nearest")
	case err != nil:
		return nil, err
	case s.Vectors.Rows > 0 && (rt.Model.Similarity == nil || !rt.Model.Similarity.Spec().ManyVectors):
		return nil, Pass("not-nearest") // the similarity takes one vector
	case rt.Placement == route.PlacementRewrite && s.Find == nil && !s.Tried: // and Locate found no plain search
		return nil, Pass(cmp.Or(append(slices.Clone(s.Needs), "not-rewritten")...))
	case s.Exact && !rt.ExactSearch:
		return nil, Pass("exact")
	case s.Limit == 0:
		return nil, Pass("limit")
	case !sameNames(s.Partitions, rt.Partitions) && (len(s.Partitions) == 0 || !rt.TakesPartitions(s.Partitions)):
		return nil, Pass("partitions") // the route covers fewer partitions, or does not know which rows they hold
	}
	needs := s.Needs
	if s.Threshold != nil && !rt.KeepsStoreScores() {
		needs = append(slices.Clone(needs), "score-threshold")
	}
	for _, reason := range needs {
		if !slices.Contains(rt.OptIn, reason) {
			return nil, Pass(reason)
		}
	}
	if most := s.maxRank(rt); s.Limit > most || s.Offset > most-s.Limit {
		return nil, Pass("depth") // the page lies beyond the ranked list
	}
	return rt, nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// rewrites reports whether searches of a route of the collection are rewritten.
func (c *coverage) rewrites(collection string) bool {
	return slices.ContainsFunc(c.names.routesOf(collection), func(name string) bool {
		rt, err := c.find(name)
		return err == nil && rt.Placement == route.PlacementRewrite
	})
}

// checkRewrite returns why a search of a route is not rewritten.
func (c *coverage) checkRewrite(ctx context.Context, rt *route.Route, s Search) error {
	switch {
	case rt.Ranker != nil:
		return Pass("ranker")
	case rt.KeepsStoreScores():
		return Pass("store-scores") // the answer to another vector has other scores
	case s.Threshold != nil && !slices.Contains(rt.OptIn, "score-threshold"):
		return Pass("score-threshold")
	}
	return c.checkMetric(ctx, rt)
}

// latencyBudget returns the shortest latency budget of a collection's routes, or 0 if no
// route has one.
func (c *coverage) latencyBudget(collection string) (least time.Duration) {
	for _, name := range c.names.routesOf(collection) {
		if route, err := c.find(name); err == nil && route.LatencyBudget > 0 && (least == 0 || route.LatencyBudget < least) {
			least = route.LatencyBudget
		}
	}
	return least
}
