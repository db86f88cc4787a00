package wiring

import (
	"maps"
	"slices"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
)

// Part names what Open opens. The zero Part stands for everything that the configuration
// describes.
type Part struct {
	// Route names the only route to open, with its store and its model; "" opens all
	// routes.
	Route string
	// Version is a version of Route; "" is the version in service. All other routes are
	// opened in their versions in service.
	Version string
	// Siblings opens the other routes of Route's collection too: they share one journal
	// of writes.
	Siblings bool
	// Store names a store to open alone, without any route. Route is then empty.
	Store string
	// Tables says how tables are opened.
	Tables Tables
	// KeepBroken keeps routes whose files cannot be used as broken ones, for Repair to open
	// later. Without it Open fails.
	KeepBroken bool
	// WithoutStore opens no store for Route, which then only has its model and its table.
	WithoutStore bool
}

// Only names one route. An empty version is the version in service.
func Only(route, version string) Part { return Part{Route: route, Version: version} }

// WithJournal names one route, and the routes that share its journal of writes. A process that follows the writes
// of the collection needs them all.
func WithJournal(route string) Part { return Part{Route: route, Siblings: true} }

// OnlyStore names one store.
func OnlyStore(name string) Part { return Part{Store: name} }

// Tables says how Open opens the tables of routes.
type Tables int

const (
	// TablesAsConfigured opens a table to be written where the route says so.
	TablesAsConfigured Tables = iota
	// TablesAsFiles reads every table from its file. Of a live table this shows the last
	// compaction; a sidecar may have the table open meanwhile.
	TablesAsFiles
	// NoTables opens no table.
	NoTables
)

// versions returns the version of each route that is to be opened. It returns the errors
// of choice.InService; with KeepBroken it returns them by route instead.
func (p Part) versions(c *config.Config) (versions map[string]string, broken map[string]error, err error) {
	versions, broken = map[string]string{}, map[string]error{}
	if p.Store != "" {
		return versions, broken, nil
	}
	names := c.RouteNames()
	if p.Route != "" {
		names = []string{p.Route}
	}
	if p.Siblings {
		names = append(names, siblings(c, p.Route)...)
	}
	for _, name := range names {
		asked := ""
		if name == p.Route {
			asked = p.Version
		}
		version, _, err := choice.InService(c, name, asked)
		switch {
		case err == nil:
			versions[name] = version
		case p.KeepBroken:
			broken[name] = err
		default:
			return nil, nil, err
		}
	}
	return versions, broken, nil
}

// siblings lists the other routes of a route's collection.
func siblings(c *config.Config, route string) []string {
	var names []string
	of := c.Routes[route]
	for _, name := range c.RouteNames() {
		if r := c.Routes[name]; name != route && r.StoreName == of.StoreName && r.Collection == of.Collection {
			names = append(names, name)
		}
	}
	return names
}

// stores lists the stores that are to be opened.
func (p Part) stores(c *config.Config) []string {
	switch {
	case p.Store != "":
		return []string{p.Store}
	case p.Route == "":
		return c.StoreNames()
	case p.WithoutStore:
		return nil
	default:
		return []string{c.Routes[p.Route].StoreName} // siblings share the collection, and so the store
	}
}

// models lists the models that are to be opened with these versions of the routes.
func (p Part) models(c *config.Config, versions map[string]string) []string {
	served := map[string]bool{}
	for name, version := range versions {
		r, _ := c.Routes[name].At(version)
		served[r.ModelName] = true
	}
	if p.Store != "" || p.Route != "" {
		return slices.Sorted(maps.Keys(served))
	}
	// Of all models only those are left out that no version in service names, but another
	// version does: the file of such a model may be gone.
	all := maps.Clone(c.Models)
	for _, r := range c.Routes {
		for _, v := range r.Versions {
			if !served[v.ModelName] {
				delete(all, v.ModelName)
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
