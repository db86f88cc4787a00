// Package wiring opens what a configuration describes: stores, models, tables
// and routes.
package wiring

import (
	"cmp"
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
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Assembly is what a configuration describes, opened. But for the versions that
// OpenVersion adds it is read-only.
type Assembly struct {
	Stores map[string]adapters.Store
	// Models are by name, each called as the configuration calls it.
	Models []*model.Model
	// Routes are by name, not yet checked against their stores.
	Routes []*route.Route
	// Versions are what the routes hold, by route.
	Versions map[string]*Version

	// Turns are those of the embedded stores' searches, on as many processors as there
	// were when it was opened; other work may share them.
	Turns *turns.Turns

	closers []io.Closer
	rankers *Rankers // nil: routes are opened without theirs

	mu   sync.Mutex
	open map[*Version]bool // versions that were not closed
}

// Open opens the files of models, tables and embedded collections, and makes
// the stores without calling them. It returns all that is wrong: config.ErrConfig
// for credentials, and the errors of the files, each with the key of the
// configuration that names it. chosen names the version of a route where it is
// not the one that the configuration says is active.
func Open(ctx context.Context, c *config.Config, chosen map[string]string) (*Assembly, error) {
	a := &Assembly{Turns: turns.New(runtime.GOMAXPROCS(0)), Stores: map[string]adapters.Store{}, Versions: map[string]*Version{}, open: map[*Version]bool{}}
	var failed []error
	for _, name := range c.StoreNames() {
		store, err := a.openStore(ctx, c, name)
		if err != nil {
			failed = append(failed, fmt.Errorf("stores.%s: %w", name, err))
			continue
		}
		a.Stores[name] = store
	}
	versions := map[string]string{}
	for _, name := range c.RouteNames() {
		versions[name] = cmp.Or(chosen[name], c.Routes[name].Active)
	}
	for _, name := range models(c, versions) {
		m, err := OpenModel(c, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		a.Models = append(a.Models, m)
	}
	for _, name := range c.RouteNames() {
		v, err := a.openVersion(c, name, versions[name], a.model)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if v != nil {
			a.Versions[name], a.Routes = v, append(a.Routes, v.Route)
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(append(failed, a.Close())...)
	}
	return a, nil
}

// Close closes the versions and the stores, and then the files that those were
// reading.
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
	return errors.Join(failed...)
}

// Ask gives the routes their rankers and devices, and those of the versions that are opened later.
// It is called before any of them is searched.
func (a *Assembly) Ask(r *Rankers) {
	a.rankers = r
	for _, v := range a.Versions {
		v.Route.Ranker = r.Ranker(v.Route.RankerName)
		v.offload(r, v.Route.Name, v.deviceName)
	}
}

// OpenStore opens one store of a configuration, which the caller closes.
func OpenStore(ctx context.Context, c *config.Config, name string) (adapters.Store, io.Closer, error) {
	a := &Assembly{}
	store, err := a.openStore(ctx, c, name)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("stores.%s: %w", name, err), a.Close())
	}
	return store, closer(a.Close), nil
}

type closer func() error

func (c closer) Close() error { return c() }

// OpenModel opens a model of a configuration, named as that names it.
func OpenModel(c *config.Config, name string) (*model.Model, error) {
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

func (a *Assembly) model(name string) *model.Model {
	i := slices.IndexFunc(a.Models, func(m *model.Model) bool { return m.Name == name })
	if i < 0 {
		return nil // it failed to open, which is reported already
	}
	return a.Models[i]
}

// toRoute is a route without its store, model and table.
func toRoute(name string, r config.Route, limits config.Limits) *route.Route {
	rt := &route.Route{
		Policy: route.Policy{Name: name, Collection: r.Collection, Vector: r.Vector, StoreName: r.Store, Placement: route.Placement(r.Placement), Companion: r.Companion, Strategy: rerank.Strategy(strings.TrimPrefix(r.Strategy, "auto")), ScanIfFaster: r.ScanIfFaster, Depth: r.Depth, AverageDepth: r.AverageDepth, Weights: rerank.Weights(r.Weights), Head: r.Head, MaxGap: r.MaxGap, Timeout: r.Timeout, LatencyBudget: r.LatencyBudget, Proxied: route.Proxied{
			Eager: r.Fallback == "eager", Passing: 100 - r.Ramp, Shadow: r.Shadow.Share, StoreScores: r.Score == "store", OptIn: r.OptIn,
		}, ExactSearch: r.ExactSearch, UnitVectors: r.UnitVectors, Owner: r.Owner, Consistency: r.Consistency, Partitions: r.Partitions, Failure: route.FailurePolicy(r.Failure), RankerName: r.Ranker, MaxK: r.MaxK, MaxDepth: r.MaxDepth, MaxRounds: r.MaxRounds},
	}
	if r.Ranker != "" {
		rt.Calls, rt.RankRounds = r.Calls, r.RankRounds
	}
	if rt.MaxK == 0 {
		rt.MaxK = limits.MaxK
	}
	if rt.MaxDepth == 0 {
		rt.MaxDepth = limits.MaxDepth
	}
	return rt
}
