package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// Followers follow the collections of stores, by the stores' names.
type Followers map[string]*follow.Follower

// Follow begins to follow the collections of an assembly's routes that have a live
// table or a companion, and sets their Freshness. Without a state folder there is
// nothing to begin from, and nothing is followed. It returns what follow.New does.
func Follow(c *config.Config, a *Assembly, log *slog.Logger) (Followers, error) {
	routes := map[string][]follow.Route{}
	for _, r := range a.Routes {
		if !follow.Followed(r) || c.Stores[r.StoreName].Kind == "embedded" {
			continue
		}
		if c.StateDir == "" {
			log.Warn("the table and the companion stay as they are: writes are followed where state_dir is set", "route", r.Name)
			continue
		}
		routes[r.StoreName] = append(routes[r.StoreName], followed(c.Routes[r.Name], r))
	}
	all := Followers{}
	for _, name := range sortedKeys(routes) {
		f, err := follow.New(followOptions(c, name, a, log), routes[name])
		if err != nil {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			return nil, errors.Join(fmt.Errorf("stores.%s: %w", name, err), all.Close(ended))
		}
		all[name] = f
	}
	return all, nil
}

func followed(c config.Route, r *pipeline.Route) follow.Route {
	return follow.Route{Route: r, WriteBudget: c.WriteBudget, Interval: c.Reconcile.Interval, RowsPerSecond: c.Reconcile.RowsPerSecond}
}

// followOptions: Milvus shows a Strong read all that it has acknowledged; Qdrant
// has no such read.
func followOptions(c *config.Config, store string, a *Assembly, log *slog.Logger) follow.Options {
	o := follow.Options{Store: a.Stores[store], Dir: follow.Dir(c.StateDir, store), Logger: log}
	if c.Stores[store].Kind == "milvus" {
		o.Consistency, o.Applied = "Strong", true
	}
	return o
}

// Freshness is follow.Follower's, of the route's store.
func (f Followers) Freshness(r *pipeline.Route) pipeline.Freshness {
	if of := f[r.StoreName]; of != nil {
		return of.Freshness(r)
	}
	return nil
}

// Replace is follow.Follower's, of the route's store. Without a follower it does
// nothing.
func (f Followers) Replace(r *pipeline.Route) error {
	if of := f[r.StoreName]; of != nil && (follow.Followed(r) || of.Covers(r.Collection)) {
		return of.Replace(r)
	}
	return nil
}

// Quiet is follow.Follower's, of the route's store.
func (f Followers) Quiet(ctx context.Context, r *pipeline.Route) error {
	if of := f[r.StoreName]; of != nil {
		return of.Quiet(ctx, r.Collection)
	}
	return nil
}

// Status lists what is followed.
func (f Followers) Status() []follow.Status {
	var all []follow.Status
	for _, name := range sortedKeys(f) {
		all = append(all, f[name].Status()...)
	}
	return all
}

// Close follows what was seen until nothing is left or ctx is done, and ends.
func (f Followers) Close(ctx context.Context) error {
	var failed []error
	for _, name := range sortedKeys(f) {
		failed = append(failed, f[name].Close(ctx))
	}
	return errors.Join(failed...)
}
