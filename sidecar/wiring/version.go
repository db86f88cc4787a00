package wiring

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Version is an open version of a route.
type Version struct {
	Name  string // "" where the route has no versions
	Route *route.Route
	Model *model.Model

	table io.Closer // nil if the version has no table
	// device scores the table on another processor; nil if no device does.
	device     *offload.Scorer
	deviceName string // the plugin that serves the device
	close      func() error
}

// Close closes the version's table and its use of a device. Further calls return what
// the first returned.
func (v *Version) Close() error { return v.close() }

// OpenVersion opens another version of a route on the stores that are open already, and
// reads its model anew. The version is closed by its caller, or at the latest with the
// assembly. Collections of an embedded store that Part.KeepBroken left out are loaded
// first. OpenVersion returns route.ErrVersion, route.ErrSetup, the errors of the files, or
// config.ErrConfig if the route names a store that was not opened.
func (a *Assembly) OpenVersion(c *config.Config, rt, version string) (*Version, error) {
	name := c.Routes[rt].StoreName
	if a.Stores[name] == nil {
		return nil, fmt.Errorf("%w: routes.%s.store: %q was not in the configuration when the sidecar started; restart it", config.ErrConfig, rt, name)
	}
	r, ok := c.RouteAt(rt, version)
	if !ok {
		return nil, fmt.Errorf("%w: route %q has no version %q; routes.%s.versions has %q", route.ErrVersion, rt, version, rt, c.Routes[rt].VersionNames())
	}
	if err := a.reloadCollections(c, r); err != nil {
		return nil, err
	}
	m, err := openModel(c, r.ModelName)
	if err != nil {
		return nil, err
	}
	return a.openVersion(c, r, version, m)
}

// openVersion opens the table of a version, which r and m belong to, and puts the parts of
// its route together.
func (a *Assembly) openVersion(c *config.Config, r config.Route, version string, m *model.Model) (*Version, error) {
	rt := r.Name
	v := &Version{Name: version, Model: m, Route: &route.Route{Policy: r.Policy}}
	a.mu.Lock()
	a.open[v] = true
	a.mu.Unlock()
	v.close = sync.OnceValue(func() error {
		a.mu.Lock()
		delete(a.open, v)
		a.mu.Unlock()
		failed := v.closeDevice(a.rankers)
		if v.table == nil {
			return failed
		}
		return errors.Join(failed, v.table.Close())
	})
	if r.UnitVectors {
		v.Route.Norms = new(route.Norms) // the rows that follow reads and the rows that searches read are checked together
	}
	v.Route.Store = a.Stores[r.StoreName]
	v.Route.Database = route.Database{System: c.Stores[r.StoreName].Kind, Address: c.Stores[r.StoreName].Address}
	if a.rankers != nil {
		v.Route.Ranker = a.rankers.Ranker(r.RankerName)
	}
	v.Route.Embedder = a.embedders.Embedder(r.EmbedderName)
	v.Route.Model = route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity, FirstStages: m.FirstStages()}
	err := v.openTable(r, a.part.Tables)
	if errors.Is(err, fs.ErrNotExist) {
		build := "likeness index --route " + rt
		if version != "" {
			build += " --version " + version
		}
		err = fmt.Errorf("%w; build it with `%s`", err, build)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: table: %w", keyOf(rt, version), err), v.Close())
	}
	v.deviceName = r.Device
	if a.rankers != nil {
		v.offload(a.rankers, rt, r.Device)
	}
	if err := Promise(c, v.Route); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", keyOf(rt, version), err), v.Close())
	}
	return v, nil
}

// keyOf returns the key of a version in the configuration.
func keyOf(rt, version string) string {
	if version == "" {
		return "routes." + rt
	}
	return "routes." + rt + ".versions." + version
}

// openTable opens the version's table, if the route has one.
func (v *Version) openTable(r config.Route, how Tables) error {
	if r.Table == "" || how == NoTables {
		return nil
	}
	expect := table.Expect{ModelVersion: v.Model.Version, Collection: r.Collection}
	if r.TableLive && how == TablesAsConfigured {
		l, err := table.OpenLive(r.Table, expect, table.LiveOptions{})
		if err == nil {
			v.Route.Live, v.table = l, l
		}
		return err
	}
	t, err := table.Open(r.Table, expect)
	if err == nil {
		v.Route.Table, v.table = t, t
	}
	return err
}

// WithLivePolicy returns the version with the live keys of a changed configuration.
// Everything that the version has open stays open and is shared: model, table, companion
// and device. WithLivePolicy returns route.ErrVersion, or route.ErrSetup as Promise does.
func (v *Version) WithLivePolicy(c *config.Config) (*Version, error) {
	name := v.Route.Name
	r, ok := c.RouteAt(name, v.Name)
	if !ok {
		return nil, fmt.Errorf("%w: route %q serves version %q, which routes.%s.versions does not have any more; name it there again, or activate another", route.ErrVersion, name, v.Name, name)
	}
	if k, ok := v.Route.Promise.(interface{ Save() error }); ok {
		if err := k.Save(); err != nil { // the new version reads the calibration from its file
			return nil, fmt.Errorf("routes.%s: audit: %w", name, err)
		}
	}
	next := *v
	next.Route = &route.Route{Policy: v.Route.WithLive(r.Policy), Parts: v.Route.Parts}
	next.Route.Promise = v.Route.Promise
	if c.StateDir == "" { // the calibration is in memory only
		return &next, nil
	}
	next.Route.Promise = nil
	if err := Promise(c, next.Route); err != nil {
		return nil, fmt.Errorf("%s: %w", keyOf(name, v.Name), err)
	}
	return &next, nil
}
