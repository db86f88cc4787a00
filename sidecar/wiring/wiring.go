// Package wiring opens the stores, models, tables and routes of a configuration. It is the
// only package that opens them: commands and the server call Open.
package wiring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Assembly holds the open parts of a configuration. Only OpenVersion and Ask change it.
type Assembly struct {
	Stores map[string]adapters.Store
	// Models are sorted by the names that the configuration gives them.
	Models []*model.Model
	// Routes are sorted by name. They are not yet checked against their stores.
	Routes []*route.Route
	// Versions holds, by route, the version that Open opened. Broken routes have none.
	Versions map[string]*Version
	// BrokenModels says why models cannot be used that Part.KeepBroken left out.
	BrokenModels map[string]error

	// Turns limits the searches of embedded stores to as many at a time as there were
	// processors when the assembly was opened. Other work may share it.
	Turns *turns.Turns

	part    Part
	closers []io.Closer // stores
	rankers *Rankers    // nil if routes are opened without rankers
	// embedders is nil if routes are opened without embedders.
	embedders Embedders

	mu   sync.Mutex
	open map[*Version]bool // versions that were not closed
	// brokenCollections says why collections of embedded stores were left out.
	brokenCollections map[embeddedCollection]error
	files             []io.Closer // of the embedded collections
}

// Open opens a part of a configuration, or all of it: the files of models, tables and
// embedded collections, and the stores, which it does not call. The caller closes the
// assembly. Open returns route.ErrUnknown or route.ErrVersion for a part that the
// configuration does not have. With Part.KeepBroken a route whose files cannot be used does
// not fail the others: it is a broken one. Otherwise Open returns everything that is wrong at once:
// config.ErrConfig for credentials, and the errors of the files, each with the key of the
// configuration that names the file.
func Open(ctx context.Context, c *config.Config, part Part) (*Assembly, error) {
	versions, broken, err := part.versions(c)
	if err != nil {
		return nil, err
	}
	a := &Assembly{
		Turns: turns.New(runtime.GOMAXPROCS(0)), Stores: map[string]adapters.Store{}, Versions: map[string]*Version{}, BrokenModels: map[string]error{},
		part: part, open: map[*Version]bool{}, brokenCollections: map[embeddedCollection]error{},
	}
	var failed []error
	for _, name := range part.stores(c) {
		store, err := a.openStore(ctx, c, name)
		if err != nil {
			failed = append(failed, fmt.Errorf("stores.%s: %w", name, err))
			continue
		}
		a.Stores[name] = store
	}
	for _, name := range part.models(c, versions) {
		m, err := openModel(c, name)
		switch {
		case err == nil:
			a.Models = append(a.Models, m)
		case keepsBroken(part, err):
			a.BrokenModels[name] = err
		default:
			failed = append(failed, err)
		}
	}
	for _, name := range sortedKeys(versions) {
		v, err := a.openNamed(c, name, versions[name])
		switch {
		case err == nil && v == nil: // failed has the error
		case err == nil:
			a.Versions[name], a.Routes = v, append(a.Routes, v.Route)
		case keepsBroken(part, err):
			broken[name] = err
		default:
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(append(failed, a.Close())...)
	}
	for name, err := range broken {
		a.Break(c, name, err)
	}
	return a, nil
}

// keepsBroken reports whether an error breaks only the route that has it. The configuration itself
// is then not at fault, and no other process holds the file.
func keepsBroken(part Part, err error) bool {
	return part.KeepBroken && !errors.Is(err, config.ErrConfig) && !errors.Is(err, filelock.ErrHeld)
}

// openNamed opens a version of a route with a model that is open. It returns nil if the
// model or the store failed.
func (a *Assembly) openNamed(c *config.Config, name, version string) (*Version, error) {
	r, _ := c.RouteAt(name, version)
	if err := a.BrokenModels[r.ModelName]; err != nil {
		return nil, err
	}
	if err := a.brokenCollection(r); err != nil {
		return nil, err
	}
	m := a.model(r.ModelName)
	if m == nil || a.Stores[r.StoreName] == nil && !a.part.WithoutStore {
		return nil, nil //nolint:nilnil // Open has the error of the model or the store already
	}
	return a.openVersion(c, r, version, m)
}

// Break makes a route a broken route, which answers no search until OpenVersion opens it again. It
// closes what is open for the route.
func (a *Assembly) Break(c *config.Config, name string, err error) {
	if v := a.Versions[name]; v != nil {
		delete(a.Versions, name)
		err = errors.Join(err, v.Close())
	}
	policy := c.Routes[name].Policy
	policy.Name = name
	broken := &route.Route{Policy: policy}
	broken.Broken, broken.Store = err, a.Stores[policy.StoreName]
	a.Routes = slices.DeleteFunc(a.Routes, func(r *route.Route) bool { return r.Name == name })
	a.Routes = append(a.Routes, broken)
	slices.SortFunc(a.Routes, func(x, y *route.Route) int { return strings.Compare(x.Name, y.Name) })
}

// Close closes the versions and the stores, and then the files that they were reading.
func (a *Assembly) Close() error {
	var failed []error
	a.mu.Lock()
	left := slices.Collect(maps.Keys(a.open))
	a.mu.Unlock()
	for _, v := range left {
		failed = append(failed, v.Close())
	}
	for _, closer := range slices.Backward(a.closers) {
		failed = append(failed, closer.Close())
	}
	a.closers = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	failed = append(failed, closeAll(a.files))
	a.files = nil
	return errors.Join(failed...)
}

// Ask gives the routes their rankers and devices, also the versions that are opened later. Call it
// before any route is searched.
func (a *Assembly) Ask(r *Rankers) {
	a.rankers = r
	for _, v := range a.Versions {
		v.Route.Ranker = r.Ranker(v.Route.RankerName)
		v.offload(r, v.Route.Name, v.deviceName)
	}
}

// EmbedBy gives the routes their embedders, also the versions that are opened later. Call it before
// any route is searched.
func (a *Assembly) EmbedBy(all Embedders) {
	a.embedders = all
	for _, v := range a.Versions {
		v.Route.Embedder = all.Embedder(v.Route.EmbedderName)
	}
}

// openModel opens a model, and names it as the configuration does.
func openModel(c *config.Config, name string) (*model.Model, error) {
	m, err := model.Open(c.Models[name].Path)
	if err != nil {
		return nil, fmt.Errorf("models.%s: %w", name, err)
	}
	k, err := kernel.Named(strings.TrimPrefix(c.Kernel, "auto"))
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	named := m.WithKernels(k)
	named.Name = name
	return named, nil
}

// model returns the model of that name, or nil if it failed to open.
func (a *Assembly) model(name string) *model.Model {
	i := slices.IndexFunc(a.Models, func(m *model.Model) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return a.Models[i]
}
