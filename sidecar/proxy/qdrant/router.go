// Package qdrant answers searches of Qdrant's clients by a learned similarity,
// where a route covers them, and says of every other one why it passes.
package qdrant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/admission"
	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// ErrRoutes says that two routes cover the same vector of a collection.
var ErrRoutes = errors.New("routes of the proxy contradict each other")

// Router knows which searches the routes cover. It is safe for concurrent use.
type Router struct {
	searcher pipeline.Searcher
	routes   map[field]*pipeline.Route
	known    map[string]bool // collections with a route
	log      *slog.Logger

	mu      sync.Mutex
	metrics map[field]metric
}

// field is a vector field of a collection.
type field struct{ collection, vector string }

// metric is what was read of a field, and when.
type metric struct {
	higher bool // a higher score is a better one
	read   time.Time
}

// metricFor is how long a field's metric is believed.
const metricFor = 30 * time.Second

// New makes a router of the searcher's routes that have one of the names, or of
// all on the store where names is empty. It returns ErrRoutes.
func New(searcher pipeline.Searcher, store string, names []string, log *slog.Logger) (*Router, error) {
	r := &Router{searcher: searcher, routes: map[field]*pipeline.Route{}, known: map[string]bool{}, metrics: map[field]metric{}, log: log}
	for _, route := range searcher.Routes() {
		if route.StoreName != store || len(names) > 0 && !slices.Contains(names, route.Name) {
			continue
		}
		at := field{route.Collection, route.Vector}
		if other := r.routes[at]; other != nil {
			return nil, fmt.Errorf("%w: %q and %q both cover vector %q of collection %q; name one of them in proxy.routes",
				ErrRoutes, other.Name, route.Name, at.vector, at.collection)
		}
		r.routes[at], r.known[at.collection] = route, true
	}
	return r, nil
}

// pass is why a search goes to the database as it came.
type pass string

func (p pass) Error() string { return "passed; reason=" + string(p) }

// degraded is why a search that a route covers was not rescored.
type degraded struct {
	reason string
	closed bool // the route does not want the database's own answer
}

func (d degraded) Error() string { return "degraded; reason=" + d.reason }

// search is a nearest-neighbour search, whatever interface it came by.
type search struct {
	vector        string
	query         []float32
	limit, offset uint64
	filter        string
	exact         bool
}

// ranked is a search's answer: the hits from its offset on.
type ranked struct {
	hits        []pipeline.Hit
	route       string
	certificate rerank.Status
}

// status is the words of the answers of a call; the weakest certificate counts.
func status(all []ranked) string {
	weakest := all[0]
	for _, r := range all {
		if strength(r.certificate) < strength(weakest.certificate) {
			weakest = r
		}
	}
	return fmt.Sprintf("rescored; route=%s; certificate=%s", weakest.route, weakest.certificate)
}

func strength(s rerank.Status) int {
	return slices.Index([]rerank.Status{rerank.StatusUnknown, rerank.StatusCalibrated, rerank.StatusExact}, s)
}

// maxBatch and parallel bound the searches of one call, and those at a time.
const (
	maxBatch = 256
	parallel = 4
)

// rankAll answers the searches of a call. It returns the pass or degraded of
// the first that has one: a call is answered by one side as a whole.
func (r *Router) rankAll(ctx context.Context, collection string, searches []search) ([]ranked, error) {
	if len(searches) == 0 || len(searches) > maxBatch {
		return nil, pass("batch")
	}
	for _, s := range searches {
		if _, err := r.route(collection, s); err != nil {
			return nil, err
		}
	}
	out, failed := make([]ranked, len(searches)), make([]error, len(searches))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, s := range searches {
		group.Go(func() error {
			out[i], failed[i] = r.rank(adapters.AsCaller(ctx), collection, s)
			return nil
		})
	}
	_ = group.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// route finds the route of a search, or why none answers it.
func (r *Router) route(collection string, s search) (*pipeline.Route, error) {
	route := r.routes[field{collection, s.vector}]
	switch {
	case route == nil:
		return nil, pass("vector")
	case route.Owner != "":
		return nil, pass("owner") // its items are no points
	case s.exact && !route.ExactSearch:
		return nil, pass("exact")
	case s.limit == 0:
		return nil, pass("limit")
	}
	most := uint64(route.MaxK)
	if route.Strategy != rerank.Scan {
		most = min(most, uint64(route.Depth))
	}
	if s.limit > most || s.offset > most-s.limit {
		return nil, pass("depth") // pages of one order only
	}
	return route, nil
}

// rank answers one search.
func (r *Router) rank(ctx context.Context, collection string, s search) (out ranked, err error) {
	defer func() {
		if p := recover(); p != nil { // in a goroutine of its own it would end the process
			r.log.ErrorContext(ctx, "a search of the proxy panicked", "collection", collection, "panic", p)
			err = degraded{reason: "panic"}
		}
	}()
	route, err := r.route(collection, s)
	if err != nil {
		return ranked{}, err
	}
	if err := r.checkMetric(ctx, route); err != nil {
		return ranked{}, err
	}
	a, err := r.searcher.Search(ctx, pipeline.Request{
		Route: route.Name, Query: rerank.Query{Vector: s.query}, K: int(s.limit + s.offset), Filter: s.filter, NoFallback: true,
	})
	switch {
	case err != nil:
		return ranked{}, r.failed(ctx, route, err)
	case a.Degraded != nil:
		return ranked{}, degraded{reason: a.Degraded.Reason, closed: route.Failure == pipeline.FailClosed}
	case len(a.Hits) <= int(s.offset):
		return ranked{}, pass("no-candidates")
	}
	hits := a.Hits[s.offset:]
	for _, h := range hits {
		if f := float64(h.Score); math.IsNaN(f) || math.IsInf(f, 0) {
			return ranked{}, degraded{reason: "score-not-finite"}
		}
	}
	return ranked{hits, route.Name, a.Certificate.Status}, nil
}

// failed sorts an error of a search: what the database words better itself
// passes, the rest is degraded.
func (r *Router) failed(ctx context.Context, route *pipeline.Route, err error) error {
	if errors.Is(err, adapters.ErrFilter) && strings.Contains(err.Error(), "unknown key") {
		return pass("unknown-field")
	}
	for reason, targets := range map[string][]error{
		"filter":  {adapters.ErrFilter},
		"refused": {adapters.ErrRefused},
		"request": {pipeline.ErrRequest, rerank.ErrQuery, rerank.ErrStrategy, adapters.ErrLimit, adapters.ErrNotFound, adapters.ErrDimension, adapters.ErrField},
	} {
		for _, target := range targets {
			if errors.Is(err, target) {
				return pass(reason)
			}
		}
	}
	if errors.Is(err, admission.ErrOverload) { // the database's own answer is cheaper, and a log line each is not
		return degraded{reason: "overload"}
	}
	r.log.WarnContext(ctx, "a search of the proxy was not rescored", "route", route.Name, "error", err)
	reason := "failed"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reason = "deadline"
	case errors.Is(err, adapters.ErrUnavailable):
		reason = "unavailable"
	}
	return degraded{reason: reason, closed: route.Failure == pipeline.FailClosed && errors.Is(err, pipeline.ErrDegraded)}
}

// checkMetric lets only fields pass whose clients expect higher scores first, as
// a similarity's are.
func (r *Router) checkMetric(ctx context.Context, route *pipeline.Route) error {
	at := field{route.Collection, route.Vector}
	r.mu.Lock()
	m, ok := r.metrics[at]
	r.mu.Unlock()
	if !ok || time.Since(m.read) > metricFor {
		describer, can := route.Store.(adapters.Describer)
		if !can {
			return pass("metric")
		}
		d, err := describer.Describe(ctx, route.Collection)
		if err != nil {
			return r.failed(ctx, route, err)
		}
		m = metric{read: time.Now()}
		for _, f := range d.Fields {
			if f.Name == route.Vector || route.Vector == "" && len(d.Fields) == 1 {
				m.higher = f.Metric == adapters.InnerProduct || f.Metric == adapters.Cosine
			}
		}
		r.mu.Lock()
		r.metrics[at] = m
		r.mu.Unlock()
	}
	if !m.higher {
		return pass("metric")
	}
	return nil
}
