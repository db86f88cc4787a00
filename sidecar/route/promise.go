package route

import (
	"context"

	"github.com/likenessdb/likeness/rerank"
)

// Promise holds the calibration of a route's answers. It can change while the route
// is served: a new calibration replaces it, or an audit of live answers rejects it.
// It is safe for concurrent use.
type Promise interface {
	// Calibration returns the calibration, or nil if the route was never calibrated with its
	// present settings. If void is not empty, it says why no answer may carry the calibration;
	// searches use the calibration's depth all the same.
	Calibration() (c *rerank.Calibration, void string)
	// Opened is called when the route is opened, with its defaults and its store's limits filled
	// in, and with the index settings of the collections that it searches, nil if the store does
	// not tell them. Before that, Calibration returns nil.
	Opened(r *Route, settings map[string]string)
}

// tellPromise calls Opened of the route's promise, with the index settings that the store told.
func (c *checking) tellPromise(settings map[string]string) {
	if c.Promise != nil {
		r := c.Route
		c.Promise.Opened(&r, settings)
	}
}

// Settings returns the index settings of the collections that a route searches, as Promise.Opened
// gets them, or nil if the store does not tell them. The route is open. Settings returns the store's error.
func Settings(ctx context.Context, r *Route) (map[string]string, error) {
	d := r.StoreCan.Describe
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

// prefixed adds the settings of one collection to the settings of a route, under prefixed names.
func prefixed(all map[string]string, collection string, settings map[string]string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range settings {
		all[collection+"."+name] = value
	}
	return all
}
