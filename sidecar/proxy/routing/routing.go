// Package routing decides which searches of a database's clients a route
// answers, answers those, and says of every other one why it passes. It knows no
// database's messages: the packages qdrant and milvus do.
package routing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/recent"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// Router answers the searches that routes cover. It holds what calls share. It is safe for concurrent use.
type Router struct {
	Names *Names
	// Writes tells the follower of the writes of the database's clients; nil: no writes are followed.
	Writes *Writes

	coverage   coverage
	rescorer   rescorer
	outcomes   outcomes
	accepted   acceptances
	database   latency
	extra      extra
	shadows    *semaphore.Weighted
	background background
	trials     Trials
	events     events.Book
	gate       *gate.Gate
}

// Recorder receives the outcomes of searches. Its methods are called concurrently and must not
// block.
type Recorder interface {
	// Proxied records that a search on a collection of these routes ended with an outcome
	// (rewritten, rescored, passed, degraded or shadow) for a reason.
	Proxied(routes []string, outcome, reason string)
	// Raced records that an original request was sent beside rescoring (late or eagerly) and won or
	// lost; or that it was withheld, or sent instead of rescoring.
	Raced(fallback, outcome string)
	// Shadowed records how the answer that a client got differs from the rescored one.
	Shadowed(rt string, c telemetry.Comparison)
	// ShadowFailed records why a sample was not compared.
	ShadowFailed(rt, reason string)
	// Switched records that a route was switched off or on.
	Switched(rt string, off bool)
}

// Trials says which searches experiments answer. search.Engine is one.
type Trials interface {
	// Trying reports whether any experiment runs.
	Trying() bool
	// Tries reports whether the experiment of a request's route answers it.
	Tries(r search.Request) bool
}

// silent is a Recorder that records nothing.
type silent struct{}

func (silent) Proxied([]string, string, string)      {}
func (silent) Raced(string, string)                  {}
func (silent) Shadowed(string, telemetry.Comparison) {}
func (silent) ShadowFailed(string, string)           {}
func (silent) Switched(string, bool)                 {}

// Options configure New.
type Options struct {
	// Store is the name of the store that clients connect to. Names lists the routes that answer
	// them; empty means all routes of the store.
	Store  string
	Names  []string
	Logger *slog.Logger
	// Open: the store takes calls without credentials, and so calls with any. Credentials then tell no callers apart, since a
	// client can make up any number: a caller is the host that it calls from.
	Open bool
	// Recorder may be nil.
	Recorder Recorder
	// Gate, if set, makes parsers of long JSON take turns.
	Gate *gate.Gate
	// Events keeps what answers show.
	Events events.Book
	// Trials, if not nil, says which searches the routes' experiments answer.
	Trials Trials
	// Follower, if not nil, is told of writes. WriteBudget limits how long it may delay a write; 0
	// means 5 ms.
	Follower    Follower
	WriteBudget time.Duration
}

// New returns a router for the searcher's routes. The caller must close it. It returns ErrRoutes.
func New(searcher search.Searcher, o Options) (*Router, error) {
	routes := slices.DeleteFunc(slices.Clone(searcher.Routes()), func(rt *route.Route) bool {
		return rt.StoreName != o.Store || len(o.Names) > 0 && !slices.Contains(o.Names, rt.Name)
	})
	var store adapters.Abilities
	if len(routes) > 0 { // all have the same store
		store = adapters.AbilitiesOf(routes[0].Store)
	}
	names, err := newNames(routes, store.Identify, o.Logger)
	if err != nil {
		return nil, err
	}
	closing, end := context.WithCancel(context.Background())
	r := &Router{
		Names: names, trials: o.Trials, events: o.Events, gate: o.Gate, accepted: acceptances{open: o.Open},
		coverage: coverage{
			names: names, find: searcher.Route, store: store, log: o.Logger, off: map[string]bool{},
			schemas: recent.Cache[string, adapters.Description]{Keep: schemaFor},
		},
		outcomes: outcomes{record: o.Recorder, log: o.Logger, unanswered: newUnanswered()},
		shadows:  semaphore.NewWeighted(inShadow), background: background{closing: closing, end: end},
	}
	r.rescorer = rescorer{searcher: searcher, coverage: &r.coverage, log: o.Logger}
	if r.outcomes.record == nil {
		r.outcomes.record = silent{}
	}
	for _, rt := range routes {
		r.outcomes.record.Switched(rt.Name, false)
	}
	if o.Follower != nil {
		r.Writes = newWrites(r, o)
		names.switched = r.Writes.aliasSwitched
	}
	return r, nil
}

// forgetNames makes the next search ask the database for names and fields again.
func (r *Router) forgetNames() {
	r.Names.forget()
	r.coverage.schemas.ForgetFunc(func(string) bool { return true })
}

// InTurn calls parse for a call of the given length. Long calls wait for their turn, as in
// gate.Parse.
func (r *Router) InTurn(ctx context.Context, bytes int, parse func() error) error {
	return r.gate.Parse(ctx, bytes, parse)
}

// Close ends the background work, and waits for it.
func (r *Router) Close() error {
	r.background.close()
	return nil
}

// background runs the work that outlives its call. The work ends when closing does.
type background struct {
	sync.WaitGroup
	closing context.Context //nolint:containedctx // the life of the router, which no call has
	end     context.CancelFunc
}

// close ends the work, and waits for it.
func (b *background) close() {
	b.end()
	b.Wait()
}

// searchPanicked logs a recovered panic, and returns the error of the call.
func searchPanicked(ctx context.Context, log *slog.Logger, collection string, cause any) error {
	log.ErrorContext(ctx, "a search of the proxy panicked", "collection", collection, "panic", cause)
	return Degraded{Reason: "panic"}
}

// Pass is the reason why a search is forwarded to the database unchanged.
type Pass string //nolint:errname // it is the outcome of a search, and reads as one

func (p Pass) Error() string { return "passed; reason=" + string(p) }

// Degraded is the reason why a search that a route covers was not rescored.
type Degraded struct { //nolint:errname // as Pass

	Reason string

	Closed bool // the route forbids the database's own answer

}

func (d Degraded) Error() string { return "degraded; reason=" + d.Reason }

// Search is a nearest-neighbour search of any interface.
type Search struct {
	Vector string // name of the field
	Query  []float32
	// Vectors takes the place of Query if the client searches by several vectors.
	Vectors       rerank.Matrix
	Limit, Offset uint64
	Filter        string // in the store's filter language
	Exact         bool
	// Threshold, if not nil, is the score that all rows of the answer must exceed.
	Threshold *float32
	// IDsOnly reports that the answer shows only ids, scores and versions.
	IDsOnly bool
	// Needs lists features of the search. The route must have opted in to each of them, or the
	// search passes with that reason.
	Needs []string
	// Partitions names the partitions to search; empty means all.
	Partitions []string
	// Unquantized reports that an exact search uses the original vectors even if the field is
	// quantized. Only Locate sets it and the fields below.
	Unquantized bool
	// HasEF reports that the request sets the size of the index's candidate list, or asks to
	// compare every row.
	HasEF bool
	// HasExact reports that the request says whether every row is compared, or asks only for rows
	// in an index.
	HasExact bool
	// HasQuantization reports that the request says how quantized vectors are used.
	HasQuantization bool
	// Staged: the search contributes to an answer with others. It is a prefetch, a query that
	// orders the rows of its prefetches, or a list of a hybrid search.
	Staged bool
	// Narrowed: the rows of the answer are not the first rows of the whole collection, because of a
	// filter, a threshold, an offset or the like.
	Narrowed bool
	// Unmapped is the reason why a rewritten search passes if the similarity's scores differ from
	// the database's. Empty means that it does not pass.
	Unmapped Pass
	// Tried: an experiment answers a search of the call, so that all of them are ranked here.
	Tried bool
	// Find, if not nil, replaces the route's first stage: it asks the database for the best rows of
	// the search itself, at most the given number.
	Find func(ctx context.Context, rows int) ([]rerank.ID, error)

	// answerBy is when the rows must be ranked, so that the database can confirm them in time. The
	// router sets it; zero means no such time.
	answerBy time.Time
}

// similarityQuery returns the query that the route's similarity scores.
func (s *Search) similarityQuery() rerank.Query {
	if s.Vectors.Rows > 0 {
		return rerank.Query{Vectors: s.Vectors}
	}
	return rerank.Query{Vector: s.Query}
}

// NeedConsistency records that the request asks for a read consistency: the route must have opted
// in to it, and the rows of the answer must be read with it.
func (s *Search) NeedConsistency() {
	s.Needs, s.IDsOnly = append(s.Needs, "consistency"), false
}
