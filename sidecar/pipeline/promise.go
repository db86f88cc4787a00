package pipeline

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Promise is what was audited of a route's answers. It can change while the route
// is served: another calibration comes, or an audit of live answers rejects the
// one there is. It is safe for concurrent use.
type Promise interface {
	// Calibration is what was audited; nil: nothing, or nothing of the route as it is.
	// A void that is not empty says why no answer carries it. The depth of a
	// calibration that is void is used all the same.
	Calibration() (c *rerank.Calibration, void string)
	// Opened is told what the route is, its defaults and its store's limits filled in,
	// and the index settings of the collections that it searches: nil if the store
	// does not tell. Nothing is claimed before.
	Opened(r *Route, settings map[string]string)
}

// tellPromise tells the route's promise what the store said.
func (o *opened) tellPromise(settings map[string]string) {
	if o.Promise != nil {
		r := o.Route
		o.Promise.Opened(&r, settings)
	}
}

// Settings are the index settings of the collections that a route searches, as
// Promise.Opened is told; nil if its store does not tell. It returns the store's error.
func Settings(ctx context.Context, r *Route) (map[string]string, error) {
	d, ok := r.Store.(adapters.Describer)
	if !ok {
		return nil, nil
	}
	have, err := d.Describe(ctx, r.Collection)
	if err != nil {
		return nil, err
	}
	settings := prefixed(nil, "collection", have.Settings)
	if r.Companion == "" {
		return settings, nil
	}
	have, err = d.Describe(ctx, r.Companion)
	return prefixed(settings, "companion", have.Settings), err
}

// prefixed adds the settings of one collection to those of a route.
func prefixed(all map[string]string, collection string, settings map[string]string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range settings {
		all[collection+"."+name] = value
	}
	return all
}

// depths returns the depth and the average depth of a request that names none. The
// audited depths apply to requests of the audited strategy. A request whose list may
// show more ranks than were audited gets the route's own depths, if they are greater.
func (o *opened) depths(r Request) (depth, averageDepth int) {
	depth, averageDepth = o.Depth, o.AverageDepth
	if o.Promise == nil {
		return depth, averageDepth
	}
	c, _ := o.Promise.Calibration()
	switch {
	case c == nil || !r.rule().Same(c.Rule):
	case r.lastRank() > c.K:
		depth, averageDepth = max(depth, c.Rule.Depth), max(averageDepth, c.Rule.AverageDepth)
	default:
		depth = c.Rule.Depth
		if r.Strategy == rerank.Combined {
			averageDepth = c.Rule.AverageDepth
		}
	}
	return depth, averageDepth
}

// rule is how a request's candidates are found.
func (r Request) rule() rerank.Rule {
	return rerank.Rule{Strategy: r.Strategy, Depth: r.Depth, AverageDepth: r.AverageDepth, Weights: r.Weights, Head: r.Head}
}

// calibrate makes the certificate of an answer that was not proved carry the
// route's promise, or say why it does not.
func (s *search) calibrate(r Request, c *rerank.Certificate) {
	if s.Promise == nil || c.Status != rerank.StatusUnknown {
		return
	}
	promise, void := s.Promise.Calibration()
	if promise != nil && void == "" {
		void = promise.Lacks(s.certifiedK(), r.rule(), !s.whole())
	}
	if void == "" && s.lags() {
		void = rerank.UncalibratedBehind
	}
	if c.Uncalibrated = void; promise != nil && void == "" {
		c.Status, c.Calibration = rerank.StatusCalibrated, promise
	}
}
