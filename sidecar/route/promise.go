package route

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Promise holds the calibration of a route's answers. It can change while the route
// is served: a new calibration replaces it, or an audit of live answers rejects it.
// It is safe for concurrent use.
type Promise interface {
	// Calibration returns the calibration, or nil if the route as it is was never
	// calibrated. If void is not empty, it says why no answer may carry the calibration;
	// the depth of the calibration is used all the same.
	Calibration() (c *rerank.Calibration, void string)
	// Opened is told the route, its defaults and its store's limits filled in, and the
	// index settings of the collections that it searches, nil if the store does not
	// tell. Calibration returns nil before that.
	Opened(r *Route, settings map[string]string)
}

// tellPromise tells the route's promise what the store said.
func (c *Checked) tellPromise(settings map[string]string) {
	if c.Promise != nil {
		r := c.Route
		c.Promise.Opened(&r, settings)
	}
}

// Settings returns the index settings of the collections that a route searches, as
// Promise.Opened is told them; nil if its store does not tell. It returns the
// store's error.
func Settings(ctx context.Context, r *Route) (map[string]string, error) {
	d := adapters.AbilitiesOf(r.Store).Describe
	if d == nil {
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

// prefixed adds the settings of one collection to the settings of a route.
func prefixed(all map[string]string, collection string, settings map[string]string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range settings {
		all[collection+"."+name] = value
	}
	return all
}
