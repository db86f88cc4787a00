package routing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Follower keeps derived data in step with the writes to its collections. It is safe for concurrent
// use.
type Follower interface {
	// Covers reports whether there is data derived from the collection.
	Covers(collection string) bool
	// Begin is called before a write is forwarded, and returns by the deadline of ctx. The
	// caller calls end once, when the write has ended. If applied is false, the database refused
	// the write, and the follower forgets it. touched holds the rows that the write touched, if the
	// database chose their ids and the write had All set until then.
	Begin(ctx context.Context, w journal.Write) (end func(applied bool, touched []rerank.ID))
	// Doubt is called before a write is forwarded if it is unknown whether the caller may write, or
	// whether the write addresses this collection. Nothing is journalled. The caller calls end
	// once: with the write if it addresses this collection and the database did not refuse it, and
	// otherwise with nil.
	Doubt(collection string) (end func(applied *journal.Write))
	// Blocked is called after Begin or Doubt. It reports whether the write must not be
	// forwarded, because another sidecar certifies answers and could not be told of the write.
	Blocked(collection string) bool
}

// ErrBlocked means that a write was not forwarded.
var ErrBlocked = errors.New("likeness: write refused: the journal that the sidecars share cannot be written")

// writeBudget is the default limit on how long a write may be delayed before it is forwarded.
const writeBudget = 5 * time.Millisecond

// Writing describes a request that writes, as the package of its database reads it. The zero value
// is a request that does not write.
type Writing struct {
	Kind journal.Kind
	// Collections lists the collections whose rows change, by any of their names.
	Collections []string
	// Renamed lists names that may stand for another collection, or for none, after the write.
	Renamed []string
	// Everywhere: the write may change any collection.
	Everywhere bool
	// Way is the way in which the request writes, if the caller's right to it decides.
	Way adapters.WriteWay
	// Several: the request has several operations. The database can refuse one after it has carried
	// out those before it.
	Several bool
	// Unknown is the beginning of the method or path of a request that is not known. It is logged
	// if the database carries the request out.
	Unknown string
	// Read returns which rows of a followed collection change. If it is nil, any row may change. It
	// may give up when ctx ends.
	Read func(ctx context.Context, of adapters.Identity) Rows
}

func (w Writing) none() bool { return len(w.Collections) == 0 && !w.renames() }

func (w Writing) renames() bool { return len(w.Renamed) > 0 || w.Everywhere }

// maxRequestText limits the length of Writing.Unknown in the log.
const maxRequestText = 100

// AnyWrite returns the Writing of a request that is not known, and so may change anything.
func AnyWrite(request string) Writing {
	return Writing{Kind: journal.Upsert, Everywhere: true, Several: true, Unknown: request[:min(len(request), maxRequestText)]}
}

// right returns the right that the caller needs.
func (w Writing) right() right {
	if w.renames() {
		return toRename
	}
	return toWrite
}

// Rows are the rows that a request changes.
type Rows struct {
	Kind   journal.Kind // empty: the kind of the request
	IDs    []rerank.ID
	Filter string
	All    bool
	Waited bool
	// Chosen: the database chooses ids, and its answer has them. Until then, All is set. IDs are
	// touched in addition.
	Chosen bool
}

func (r Rows) empty() bool { return len(r.IDs) == 0 && r.Filter == "" && !r.All && !r.Chosen }

// WriteOutcome is the result of a write at the database.
type WriteOutcome int

const (
	// Unknown: the database did not answer or failed, and may carry the write out later.
	Unknown WriteOutcome = iota
	// Answered: the database carried the write out.
	Answered
	// Failed: the database answered with an error, and may have changed something.
	Failed
	// Refused: the database answered that it changed nothing.
	Refused
)

// Ended is called when a write has ended, with its outcome and the ids that the database chose, if
// its answer has them.
type Ended func(o WriteOutcome, chosen []rerank.ID)

// Writes tells a follower of the writes of a database's clients. It is safe for concurrent use.
type Writes struct {
	follower   Follower
	searcher   search.Searcher // knows the routes, and with them the followed collections
	store      string          // the name of the store that clients write to
	storeCan   adapters.Abilities
	budget     time.Duration // limits how long a write is delayed before it is forwarded
	names      writeNames
	accepted   *acceptances // the router's, which it shares with searches
	background *background  // the router's
	// renamed is called when a write may have changed what a name stands for.
	renamed func()
	log     *slog.Logger
}

// newWrites returns the Writes of a router that New makes with the options.
func newWrites(r *Router, o Options) *Writes {
	w := &Writes{
		follower: o.Follower, searcher: r.rescorer.searcher, store: o.Store, storeCan: r.coverage.store, budget: cmp.Or(o.WriteBudget, writeBudget),
		accepted: &r.accepted, background: &r.background, renamed: r.forgetNames, log: o.Logger,
	}
	w.names.background = &r.background
	w.names.ask = func(ctx context.Context) (nameTable, error) { return askNames(ctx, w.storeCan.Identify, w.followed()) }
	return w
}

// targets returns the collections that a write may change, each once. known is false if the names
// in the write are not known yet, so that there may be more collections.
func (w *Writes) targets(ctx context.Context, of Writing) (all []target, known bool) {
	add := func(ts ...target) {
		for _, t := range ts {
			if !slices.ContainsFunc(all, func(have target) bool { return have.collection == t.collection }) {
				all = append(all, t)
			}
		}
	}
	for _, name := range of.Renamed {
		if w.follower.Covers(name) {
			add(target{collection: name})
		}
	}
	known = true
	if len(of.Collections) > 0 {
		half, cancel := context.WithTimeout(ctx, w.budget/2) // the other half is for the steps after this
		defer cancel()
		table, read := w.names.get(half)
		for _, name := range of.Collections {
			here := table[name]
			if !read {
				here = nil
			}
			if len(here) == 0 && w.follower.Covers(name) {
				here = []target{{collection: name, sure: true}}
			}
			add(here...)
			known = known && (read || len(here) > 0)
		}
	}
	if of.Everywhere {
		for _, name := range w.followed() {
			add(target{collection: name})
		}
	}
	return all, known
}

// followed returns the followed collections of the store, each once.
func (w *Writes) followed() (collections []string) {
	for _, route := range w.searcher.Routes() {
		if route.StoreName == w.store && w.follower.Covers(route.Collection) && !slices.Contains(collections, route.Collection) {
			collections = append(collections, route.Collection)
		}
	}
	return collections
}

// aliasSwitched tells the follower that routes name another collection than before by an alias: data
// derived from the old collection does not fit the new one.
func (w *Writes) aliasSwitched(ctx context.Context, collection string) {
	if !w.follower.Covers(collection) {
		return
	}
	within, cancel := w.withinBudget(ctx)
	defer cancel()
	w.follower.Begin(within, journal.Write{Collection: collection, Kind: journal.Collection, All: true, Waited: true})(true, nil)
}

// panicked logs a recovered panic. The write continues.
func (w *Writes) panicked(ctx context.Context, cause any, of Writing) {
	if cause != nil {
		w.log.ErrorContext(ctx, "following a write of the proxy panicked", "kind", of.Kind, "collections", of.Collections, "panic", cause)
	}
}

// withinBudget returns a context for following a write. It ends with the budget, not with the
// client, and holds none of the client's metadata.
func (w *Writes) withinBudget(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(anonymous(context.WithoutCancel(ctx)), w.budget)
}

// rows reads which rows change. If reading the request panics, any row may change.
func (w *Writes) rows(ctx context.Context, writing Writing, of adapters.Identity) (rows Rows) {
	defer func() {
		if p := recover(); p != nil {
			w.panicked(ctx, p, writing)
			rows = Rows{All: true}
		}
	}()
	return writing.Read(ctx, of)
}
