package wiring

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/route"
)

// ErrVersion: a route has no version of that name.
var ErrVersion = errors.New("version not found")

// Version is a route as one of its versions stands, opened.
type Version struct {
	Name  string // "" where the route has no versions
	Route *route.Route
	Model *model.Model

	table io.Closer // nil: it has none
	// device scores the table; nil: none does. deviceName is the plugin's.
	device     *offload.Scorer
	deviceName string
	close      func() error
}

// Close closes the version's table, once.
func (v *Version) Close() error { return v.close() }

// OpenVersion opens a version of a route beside what is open, on the stores that
// are: its model is read anew. The caller closes it, or the assembly at the end. It returns ErrVersion,
// config.ErrConfig where the route names a store that was not opened, or the
// errors of the files.
func (a *Assembly) OpenVersion(c *config.Config, rt, version string) (*Version, error) {
	name := c.Routes[rt].Store
	if a.Stores[name] == nil {
		return nil, fmt.Errorf("%w: routes.%s.store: %q was not there when the sidecar started; start it again", config.ErrConfig, rt, name)
	}
	var failed error
	v, err := a.openVersion(c, rt, version, func(name string) *model.Model {
		m, err := OpenModel(c, name)
		failed = err
		return m
	})
	return v, errors.Join(failed, err)
}

// openVersion opens a version; it is nil if its model or store is missing, which
// is reported already.
func (a *Assembly) openVersion(c *config.Config, rt, version string, models func(name string) *model.Model) (*Version, error) {
	r, ok := c.Routes[rt].At(version)
	if !ok {
		return nil, fmt.Errorf("%w: route %q has no version %q; routes.%s.versions has %q", ErrVersion, rt, version, rt, c.Routes[rt].VersionNames())
	}
	m := models(r.Model)
	if m == nil || a.Stores[r.Store] == nil {
		return nil, nil
	}
	v := &Version{Name: version, Model: m, Route: toRoute(rt, r, c.Limits)}
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
	v.Route.Store = a.Stores[r.Store]
	v.Route.Database = route.Database{System: c.Stores[r.Store].Kind, Address: c.Stores[r.Store].Address}
	if a.rankers != nil {
		v.Route.Ranker = a.rankers.Ranker(r.Ranker)
	}
	v.Route.Model = route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}
	err := v.openTable(r)
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

func keyOf(rt, version string) string {
	if version == "" {
		return "routes." + rt
	}
	return "routes." + rt + ".versions." + version
}

// openTable opens the version's table, to be written too where the route says so.
func (v *Version) openTable(r config.Route) error {
	if r.Table == "" {
		return nil
	}
	expect := table.Expect{ModelVersion: v.Model.Version, Collection: r.Collection}
	if r.TableLive {
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

// models lists the models to open: all but those that only versions name which
// are not served. One of those may be gone by now.
func models(c *config.Config, served map[string]string) []string {
	waiting := map[string]bool{}
	for _, r := range c.Routes {
		for _, v := range r.Versions {
			waiting[v.Model] = true
		}
	}
	for name, version := range served {
		r, _ := c.Routes[name].At(version)
		delete(waiting, r.Model)
	}
	all := maps.Clone(c.Models)
	maps.DeleteFunc(all, func(name string, _ config.Model) bool { return waiting[name] })
	return slices.Sorted(maps.Keys(all))
}

// Adjusted is the version as the live keys of a configuration have it, with all that
// the version has open: model, table, companion and device stay, and so does what
// closes them. It returns ErrVersion, or config.ErrConfig as Promise does.
func (v *Version) Adjusted(c *config.Config) (*Version, error) {
	name := v.Route.Name
	r, ok := c.Routes[name].At(v.Name)
	if !ok {
		return nil, fmt.Errorf("%w: route %q serves version %q, which routes.%s.versions does not have any more; name it there again, or activate another", ErrVersion, name, v.Name, name)
	}
	next, rt, to := *v, *v.Route, toRoute(name, r, c.Limits)
	rt.Strategy, rt.ScanIfFaster, rt.Weights, rt.Head = to.Strategy, to.ScanIfFaster, to.Weights, to.Head
	rt.Depth, rt.AverageDepth, rt.MaxGap = to.Depth, to.AverageDepth, to.MaxGap
	rt.MaxK, rt.MaxDepth, rt.MaxRounds = to.MaxK, to.MaxDepth, to.MaxRounds
	rt.Timeout, rt.LatencyBudget, rt.Proxied = to.Timeout, to.LatencyBudget, to.Proxied
	rt.ExactSearch, rt.UnitVectors = to.ExactSearch, to.UnitVectors
	rt.Consistency, rt.Partitions, rt.Failure = to.Consistency, to.Partitions, to.Failure
	if rt.RankerName != "" {
		rt.Calls, rt.RankRounds = r.Calls, r.RankRounds
	}
	if k, ok := rt.Promise.(*calibrate.Keeper); ok {
		if err := k.Save(); err != nil { // the next one reads what it knows
			return nil, fmt.Errorf("routes.%s: audit: %w", name, err)
		}
	}
	rt.Promise = nil
	next.Route = &rt
	if err := Promise(c, &rt); err != nil {
		return nil, fmt.Errorf("%s: %w", keyOf(name, v.Name), err)
	}
	return &next, nil
}
