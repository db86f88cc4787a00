package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Followers follow the collections of stores, by the stores' names.
type Followers map[string]*follow.Follower

// Follow starts to follow the collections of those routes that have a live table or a
// companion, and sets the Freshness of the routes. Following needs a state folder; without
// one a table or companion only learns that its collection was written to. Follow fills in
// the options that depend on the store. It returns the errors of follow.New.
func Follow(c *config.Config, a *Assembly, o follow.Options) (Followers, error) {
	routes := followedRoutes(c, a)
	for _, r := range a.Routes {
		if r.Broken == nil && c.StateDir == "" && c.Stores[r.StoreName].Kind != "embedded" && follow.Followed(r) {
			o.Logger.Warn("route does not follow writes: state_dir is not set", "route", r.Name)
		}
	}
	all := Followers{}
	for _, name := range sortedKeys(routes) {
		f, err := follow.New(ofStore(o, c, name, a), routes[name])
		if err != nil {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			return nil, errors.Join(followFailed(name, err), all.Close(ended))
		}
		all[name] = f
	}
	return all, nil
}

// CheckFollow returns the errors that Follow would return, except for errors of the journals,
// which it does not open. It writes nothing.
func CheckFollow(c *config.Config, a *Assembly, o follow.Options) error {
	routes := followedRoutes(c, a)
	for _, name := range sortedKeys(routes) {
		if err := follow.Check(ofStore(o, c, name, a), routes[name]); err != nil {
			return followFailed(name, err)
		}
	}
	return nil
}

func followFailed(store string, err error) error { return fmt.Errorf("stores.%s: %w", store, err) }

// followedRoutes lists by store the routes whose tables and companions are followed. The
// list of a store can be empty: then only a version that may be activated later derives
// something.
func followedRoutes(c *config.Config, a *Assembly) map[string][]follow.Route {
	routes := map[string][]follow.Route{}
	for _, r := range a.Routes {
		derives := follow.Derives(r)
		if r.Broken != nil { // writes are noted until the route is open
			derives = r.Companion != "" || c.Routes[r.Name].Table != "" || len(c.Routes[r.Name].Versions) > 0
		}
		if c.Stores[r.StoreName].Kind == "embedded" || !derives && len(c.Routes[r.Name].Versions) == 0 {
			continue
		}
		of := routes[r.StoreName]
		if derives {
			of = append(of, followRoute(c.Routes[r.Name], r))
		}
		routes[r.StoreName] = of
	}
	return routes
}

func followRoute(c config.Route, r *route.Route) follow.Route {
	return follow.Route{Route: r, WriteBudget: c.WriteBudget, Interval: c.Reconcile.Interval, RowsPerSecond: c.Reconcile.RowsPerSecond}
}

// ofStore fills in the options that depend on the store. On Milvus a read with consistency Strong
// shows every acknowledged write; Qdrant has no such read.
func ofStore(o follow.Options, c *config.Config, store string, a *Assembly) follow.Options {
	o.Store = a.Stores[store]
	if c.StateDir != "" {
		o.Dir = statedir.Store(c.StateDir, store)
	}
	if c.Journal.Shared != "" {
		o.Shared, o.Replica, o.Replicas = statedir.Store(c.Journal.Shared, store), cmp.Or(c.Journal.Replica, hostName()), c.Replicas
	}
	if c.Stores[store].Kind == "milvus" {
		o.Consistency, o.Applied = "Strong", true
	}
	return o
}

// hostName returns the name of this machine or container, or "" if it is not known, which
// follow.New refuses.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// Freshness calls follow.Follower.Freshness for the route's store. It returns nil if nothing
// of that store is followed.
func (f Followers) Freshness(r *route.Route) route.Freshness {
	if of := f[r.StoreName]; of != nil {
		return of.Freshness(r)
	}
	return nil // nothing of that store is followed
}

// Replace calls follow.Follower.Replace for the route's store. Without a follower it does
// nothing.
func (f Followers) Replace(r *route.Route) error {
	if of := f[r.StoreName]; of != nil {
		return of.Replace(r)
	}
	return nil
}

// WaitUnused calls follow.Follower.WaitUnused for the route's store. Without a follower it does
// nothing.
func (f Followers) WaitUnused(ctx context.Context, r *route.Route) error {
	if of := f[r.StoreName]; of != nil {
		return of.WaitUnused(ctx, r.Collection)
	}
	return nil
}

// Reconcile calls follow.Follower.Reconcile for the route's collection, and returns the
// result of that route. It returns follow.ErrRoute if the route follows no writes.
func (f Followers) Reconcile(ctx context.Context, r *route.Route) (follow.Drift, error) {
	of := f[r.StoreName]
	if of == nil {
		return follow.Drift{}, fmt.Errorf("%w: route %q: it has neither a live table nor a companion", follow.ErrRoute, r.Name)
	}
	found, err := of.Reconcile(ctx, r.Collection)
	if err != nil {
		return follow.Drift{}, err
	}
	d, ok := found[r.Name]
	if !ok {
		return d, fmt.Errorf("%w: route %q: the version in service has no live table and no companion that can follow writes, or another version has replaced it", follow.ErrRoute, r.Name)
	}
	return d, nil
}

// Reembed calls follow.Follower.Reembed for the route's store. It returns follow.ErrRoute if the route
// follows no writes.
func (f Followers) Reembed(ctx context.Context, r *route.Route, vectors []follow.NewVector) (written int, err error) {
	of := f[r.StoreName]
	if of == nil {
		return 0, fmt.Errorf("%w: route %q: nothing of its store is followed", follow.ErrRoute, r.Name)
	}
	return of.Reembed(ctx, r, vectors)
}

// Status lists the state of everything that is followed.
func (f Followers) Status() []follow.Status {
	var all []follow.Status
	for _, name := range sortedKeys(f) {
		all = append(all, f[name].Status()...)
	}
	return all
}

// Close follows the writes that were seen until none is left or ctx is done, and then stops.
func (f Followers) Close(ctx context.Context) error {
	var failed []error
	for _, name := range sortedKeys(f) {
		failed = append(failed, f[name].Close(ctx))
	}
	return errors.Join(failed...)
}
