package routing

import (
	"context"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/journal"
)

// Follower keeps what was derived from collections in step with their writes. It
// is safe for concurrent use.
type Follower interface {
	// Covers reports whether something was derived from the collection.
	Covers(collection string) bool
	// BeginOpen is told of a write before it is forwarded, and returns by the deadline
	// of ctx. done is called once, when the write has ended, whatever came of it; with
	// the rows that it touched, where the database chose their ids and the write had
	// All until then.
	BeginOpen(ctx context.Context, w journal.Write) (done func(touched []rerank.ID))
}

// writeBudget is how long a write may be held up before it is forwarded, where
// Options do not say.
const writeBudget = 5 * time.Millisecond

// Writing is a request that writes, as the package of its database reads it; the
// zero value is one that does not.
type Writing struct {
	Kind journal.Kind
	// Collections are those whose rows change, by any of their names.
	Collections []string
	// Renamed are names that stand for another collection, or for none, behind it.
	Renamed []string
	// Everywhere: any collection can be meant.
	Everywhere bool
	// Read says which rows change of a collection that is followed. Without it any
	// row may. It may give up when ctx ends.
	Read func(ctx context.Context, of adapters.Identity) Rows
}

func (w Writing) none() bool { return len(w.Collections) == 0 && !w.renames() }

func (w Writing) renames() bool { return len(w.Renamed) > 0 || w.Everywhere }

// Rows are those that a request changes.
type Rows struct {
	Kind   journal.Kind // empty: the request's
	IDs    []rerank.ID
	Filter string
	All    bool
	Waited bool
	// Chosen: the database chooses ids, which its answer says; All until then. Those
	// of IDs are touched too.
	Chosen bool
}

func (r Rows) empty() bool { return len(r.IDs) == 0 && r.Filter == "" && !r.All && !r.Chosen }

// Ended is called once a write has ended: whether the database answered it, and
// the ids that it chose, if the answer has them.
type Ended func(answered bool, chosen []rerank.ID)

// Follows reports whether writes are followed at all.
func (r *Router) Follows() bool { return r.follower != nil }

// Begin reads a request that is about to be forwarded and tells the follower of
// the write that it is, within the write budget. It does not fail: what is not
// known is any row. It returns nil for what nothing follows.
func (r *Router) Begin(ctx context.Context, read func() Writing) (ended Ended) {
	var w Writing
	defer func() { r.panicked(ctx, recover(), w) }()
	if w = read(); w.none() {
		return nil
	}
	var begun []begunWrite
	ended = func(answered bool, chosen []rerank.ID) {
		if w.renames() {
			r.forgetNames() // what was read meanwhile may be either
		}
		for _, b := range begun {
			r.end(ctx, b, answered, chosen)
		}
	}
	within, cancel := r.withinBudget(ctx)
	defer cancel()
	if w.renames() {
		r.forgetNames()
	}
	for _, t := range r.targets(within, w) {
		rows := Rows{All: true, Waited: w.Kind == journal.Collection}
		if t.sure && w.Read != nil {
			rows = r.rows(within, w, t.identity)
		}
		if !rows.empty() {
			begun = append(begun, r.begin(within, t.collection, w.Kind, rows))
		}
	}
	if len(begun) == 0 && !w.renames() {
		return nil
	}
	return ended
}

// forgetNames says that names of collections change.
func (r *Router) forgetNames() {
	r.names.forget()
	r.aliases.forget()
}

// panicked logs what a recover returned. The write goes on whatever it was.
func (r *Router) panicked(ctx context.Context, cause any, w Writing) {
	if cause != nil {
		r.log.ErrorContext(ctx, "following a write of the proxy panicked", "kind", w.Kind, "collections", w.Collections, "panic", cause)
	}
}

// withinBudget is a context for following a write: it ends with the budget, not
// with the client, and has nothing of the client's.
func (r *Router) withinBudget(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(anonymous(context.WithoutCancel(ctx)), r.budget)
}

// rows reads which rows change; a request that breaks the reader may change any.
func (r *Router) rows(ctx context.Context, w Writing, of adapters.Identity) (rows Rows) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked(ctx, p, w)
			rows = Rows{All: true}
		}
	}()
	return w.Read(ctx, of)
}

// begunWrite is a write on its way.
type begunWrite struct {
	write  journal.Write
	chosen bool        // the answer says which rows
	given  []rerank.ID // and those
	done   func(ids []rerank.ID)
}

func (r *Router) begin(ctx context.Context, collection string, kind journal.Kind, rows Rows) begunWrite {
	if rows.Kind != "" {
		kind = rows.Kind
	}
	b := begunWrite{write: journal.Write{Collection: collection, Kind: kind, Filter: rows.Filter, All: rows.All || rows.Chosen, Waited: rows.Waited}}
	if !b.write.All {
		b.write.IDs = rows.IDs
	}
	if rows.Chosen && !rows.All {
		b.chosen, b.given = true, rows.IDs
	}
	b.done = r.follower.BeginOpen(ctx, b.write)
	return b
}

// end ends a write. One without an answer may still be applied, behind any time:
// it is then followed as one that nobody waited for.
func (r *Router) end(ctx context.Context, b begunWrite, answered bool, chosen []rerank.ID) {
	defer func() {
		r.panicked(ctx, recover(), Writing{Kind: b.write.Kind, Collections: []string{b.write.Collection}})
	}()
	if !b.chosen || len(chosen) == 0 {
		chosen = nil
	} else {
		chosen = append(slices.Clip(chosen), b.given...)
	}
	if answered || !b.write.Waited {
		b.done(chosen)
		return
	}
	ctx, cancel := r.withinBudget(ctx)
	defer cancel()
	b.write.Waited = false
	again := r.follower.BeginOpen(ctx, b.write)
	b.done(chosen)
	again(nil)
}
