// Package routing decides which searches of a database's clients a route
// answers, answers those, and says of every other one why it passes. It knows no
// database's messages: the packages qdrant and milvus do.
package routing

import (
	"cmp"
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
	routes   map[field]string         // names: a route can be replaced by another version
	known    map[string]bool          // collections with a route
	budgets  map[string]time.Duration // by collection, the shortest of its routes
	log      *slog.Logger
	observe  func(outcome, reason string)
	database latency

	store    string
	follower Follower // nil: nothing follows writes
	budget   time.Duration
	names    names

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

// Options of New.
type Options struct {
	// Store names the store whose clients come; Names are the routes that answer
	// them, all on the store where there are none.
	Store  string
	Names  []string
	Logger *slog.Logger
	// Observe, if set, is told of every search on a routed collection: rescored,
	// passed or degraded, and why.
	Observe func(outcome, reason string)
	// Follower, if not nil, is told of writes; WriteBudget is how long it may hold one
	// up, 5 ms if 0.
	Follower    Follower
	WriteBudget time.Duration
}

// New makes a router of the searcher's routes. It returns ErrRoutes.
func New(searcher pipeline.Searcher, o Options) (*Router, error) {
	r := &Router{
		searcher: searcher, routes: map[field]string{}, known: map[string]bool{}, metrics: map[field]metric{},
		budgets: map[string]time.Duration{}, log: o.Logger, observe: o.Observe,
		store: o.Store, follower: o.Follower, budget: cmp.Or(o.WriteBudget, writeBudget),
	}
	if r.observe == nil {
		r.observe = func(string, string) {}
	}
	for _, route := range searcher.Routes() {
		if route.StoreName != o.Store || len(o.Names) > 0 && !slices.Contains(o.Names, route.Name) {
			continue
		}
		at := field{route.Collection, route.Vector}
		if other := r.routes[at]; other != "" {
			return nil, fmt.Errorf("%w: %q and %q both cover vector %q of collection %q; name one of them in proxy.routes",
				ErrRoutes, other, route.Name, at.vector, at.collection)
		}
		r.routes[at], r.known[at.collection] = route.Name, true
		if b := route.LatencyBudget; b > 0 && (r.budgets[at.collection] == 0 || b < r.budgets[at.collection]) {
			r.budgets[at.collection] = b
		}
	}
	return r, nil
}

// Field reports whether a route is of the vector field of the collection.
func (r *Router) Field(collection, vector string) bool {
	return r.routes[field{collection, vector}] != ""
}

// Covers reports whether a route is of the collection.
func (r *Router) Covers(collection string) bool { return r.known[collection] }

// Panicked logs what a recover returned and says what it means for the call.
func (r *Router) Panicked(ctx context.Context, collection string, cause any) error {
	r.log.ErrorContext(ctx, "a search of the proxy panicked", "collection", collection, "panic", cause)
	return Degraded{Reason: "panic"}
}

// Pass is why a search goes to the database as it came.
type Pass string //nolint:errname // it is the outcome of a search, and reads as one

func (p Pass) Error() string { return "passed; reason=" + string(p) }

// Degraded is why a search that a route covers was not rescored.
type Degraded struct { //nolint:errname // as Pass
	Reason string
	Closed bool // the route does not want the database's own answer
}

func (d Degraded) Error() string { return "degraded; reason=" + d.Reason }

// Search is a nearest-neighbour search, whatever interface it came by.
type Search struct {
	Vector        string // field
	Query         []float32
	Limit, Offset uint64
	Filter        string // in the store's language
	Exact         bool
}

// Ranked is a search's answer: the hits from its offset on.
type Ranked struct {
	Hits        []pipeline.Hit
	Route       string
	Certificate rerank.Status
}

// Status is the words of the answers of a call; the weakest certificate counts.
func Status(all []Ranked) string {
	weakest := all[0]
	for _, r := range all {
		if strength(r.Certificate) < strength(weakest.Certificate) {
			weakest = r
		}
	}
	return fmt.Sprintf("rescored; route=%s; certificate=%s", weakest.Route, weakest.Certificate)
}

func strength(s rerank.Status) int {
	return slices.Index([]rerank.Status{rerank.StatusUnknown, rerank.StatusCalibrated, rerank.StatusExact}, s)
}

// maxBatch and parallel bound the searches of one call, and those at a time.
const (
	maxBatch = 256
	parallel = 4
)

// RankAll answers the searches of a call. It returns the Pass or Degraded of
// the first that has one: a call is answered by one side as a whole, and by one
// version of the route.
func (r *Router) RankAll(ctx context.Context, collection string, searches []Search) ([]Ranked, error) {
	if len(searches) == 0 || len(searches) > maxBatch {
		return nil, Pass("batch")
	}
	for _, s := range searches {
		if _, err := r.route(collection, s); err != nil {
			return nil, err
		}
	}
	ctx, release := pipeline.Pin(ctx)
	defer release()
	out, failed := make([]Ranked, len(searches)), make([]error, len(searches))
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
func (r *Router) route(collection string, s Search) (*pipeline.Route, error) {
	name := r.routes[field{collection, s.Vector}]
	if name == "" {
		return nil, Pass("vector")
	}
	route, err := r.searcher.Route(name)
	switch {
	case err != nil:
		return nil, err
	case route.Owner != "":
		return nil, Pass("owner") // its items are no points
	case s.Exact && !route.ExactSearch:
		return nil, Pass("exact")
	case s.Limit == 0:
		return nil, Pass("limit")
	}
	most := uint64(route.MaxK)
	if route.Strategy != rerank.Scan {
		most = min(most, uint64(route.Depth))
	}
	if s.Limit > most || s.Offset > most-s.Limit {
		return nil, Pass("depth") // pages of one order only
	}
	return route, nil
}

// rank answers one search.
func (r *Router) rank(ctx context.Context, collection string, s Search) (out Ranked, err error) {
	defer func() {
		if p := recover(); p != nil { // in a goroutine of its own it would end the process
			err = r.Panicked(ctx, collection, p)
		}
	}()
	route, err := r.route(collection, s)
	if err != nil {
		return Ranked{}, err
	}
	if err := r.checkMetric(ctx, route); err != nil {
		return Ranked{}, err
	}
	a, err := r.searcher.Search(ctx, pipeline.Request{
		Route: route.Name, Query: rerank.Query{Vector: s.Query}, K: int(s.Limit + s.Offset), Filter: s.Filter, NoFallback: true, Confirms: true,
	})
	switch {
	case err != nil:
		return Ranked{}, r.failed(ctx, route, err)
	case a.Degraded != nil:
		return Ranked{}, Degraded{Reason: a.Degraded.Reason, Closed: route.Failure == pipeline.FailClosed}
	case len(a.Hits) <= int(s.Offset):
		return Ranked{}, Pass("no-candidates")
	}
	hits := a.Hits[s.Offset:]
	for _, h := range hits {
		if f := float64(h.Score); math.IsNaN(f) || math.IsInf(f, 0) {
			return Ranked{}, Degraded{Reason: "score-not-finite"}
		}
	}
	return Ranked{hits, route.Name, a.Certificate.Status}, nil
}

// failed sorts an error of a search: what the database words better itself
// passes, the rest is degraded.
func (r *Router) failed(ctx context.Context, route *pipeline.Route, err error) error {
	if errors.Is(err, adapters.ErrFilter) && strings.Contains(err.Error(), "unknown key") {
		return Pass("unknown-field")
	}
	for reason, targets := range map[string][]error{
		"filter":  {adapters.ErrFilter},
		"refused": {adapters.ErrRefused},
		"request": {pipeline.ErrRequest, rerank.ErrQuery, rerank.ErrStrategy, adapters.ErrLimit, adapters.ErrNotFound, adapters.ErrDimension, adapters.ErrField},
	} {
		for _, target := range targets {
			if errors.Is(err, target) {
				return Pass(reason)
			}
		}
	}
	if errors.Is(err, admission.ErrOverload) { // the database's own answer is cheaper, and a log line each is not
		return Degraded{Reason: "overload"}
	}
	r.log.WarnContext(ctx, "a search of the proxy was not rescored", "route", route.Name, "error", err)
	reason := "failed"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reason = "deadline"
	case errors.Is(err, adapters.ErrUnavailable):
		reason = "unavailable"
	}
	return Degraded{Reason: reason, Closed: route.Failure == pipeline.FailClosed && errors.Is(err, pipeline.ErrDegraded)}
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
			return Pass("metric")
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
		return Pass("metric")
	}
	return nil
}
