package routing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
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

// Follows reports whether writes are followed.
func (r *Router) Follows() bool { return r.follower != nil }

// BeginWrite reads a request that is about to be forwarded, and tells the follower of its write, within
// the write budget. The outgoing metadata of ctx holds the caller's credentials. It returns nil for
// a request that need not be followed. outlives reports that the database has not let the caller
// write lately: the answer to this write must then be awaited even if the client leaves, since a
// write without an answer counts as applied. With ErrBlocked the write must not be forwarded, and
// has ended.
func (r *Router) BeginWrite(ctx context.Context, read func() Writing) (ended Ended, outlives bool, err error) {
	var w Writing
	defer func() { r.panicked(ctx, recover(), w) }()
	if w = read(); w.none() {
		return nil, false, nil
	}
	f := &flight{Router: r, writing: w, writer: r.accepted.of(ctx, w.right(), slices.Concat(w.Collections, w.Renamed)...), renames: r.names.ended()}
	f.trusted = r.accepted.has(f.writer)
	within, cancel := r.withinBudget(ctx)
	defer cancel()
	others := r.names.moves(w.Collections)
	if f.trusted { // an untrusted writer's rename must not make others' names ambiguous
		r.names.beginRename(w)
	}
	ended, outlives = func(o WriteOutcome, chosen []rerank.ID) { f.end(ctx, o, chosen) }, !f.trusted
	targets, known := r.targets(within, w)
	f.known, f.targets, f.elsewhere = known, targets, !known || others
	if len(targets) == 0 && !f.elsewhere && !w.renames() {
		return nil, false, nil
	}
	if !f.trusted && !f.mayWrite(ctx) {
		f.excused = true
		return ended, outlives, nil
	}
	f.begin(within)
	if len(f.begun) == 0 && len(f.doubts) == 0 && !w.renames() {
		return nil, false, nil
	}
	if f.isBlocked() {
		f.withdraw()
		return nil, false, ErrBlocked
	}
	return ended, outlives, nil
}

// isBlocked reports whether the follower forbids forwarding the write.
func (f *flight) isBlocked() bool {
	if slices.ContainsFunc(f.begun, func(b begunWrite) bool { return f.follower.Blocked(b.write.Collection) }) {
		return true
	}
	for collection := range f.doubts {
		if f.follower.Blocked(collection) {
			return true
		}
	}
	return false
}

// withdraw ends a write that was not forwarded.
func (f *flight) withdraw() {
	if f.trusted {
		f.names.endRename(f.writing)
	}
	for _, b := range f.begun {
		b.end(false, nil)
	}
	f.clearDoubts()
}

// flight is a write in flight.
type flight struct {
	*Router
	writing Writing
	writer  acceptance
	trusted bool // the database lately let the writer write
	renames int  // number of renames that had ended when the write began
	known   bool // the names of collections were known when the write began
	targets []target
	begun   []begunWrite
	doubts  map[string]func(applied *journal.Write) // by collection that it may address
	// elsewhere: the write may address any followed collection in addition to its targets.
	elsewhere bool
	// excused: the database did not let the writer write when the write began, so the follower was
	// not told.
	excused bool
}

// begin tells the follower of a write to its targets. The write of a trusted writer is journalled
// before it is forwarded. The write of a stranger is not even read until the database has answered.
func (f *flight) begin(ctx context.Context) {
	for _, t := range f.targets {
		if !f.trusted {
			f.doubtOne(t.collection)
			continue
		}
		if b, any := f.read(ctx, t); any {
			b.end = f.follower.Begin(ctx, b.write)
			f.begun = append(f.begun, b)
		}
	}
	if f.elsewhere {
		f.doubt()
	}
}

// doubtOne tells the follower that the write may address a collection.
func (f *flight) doubtOne(collection string) {
	if f.doubts == nil {
		f.doubts = map[string]func(*journal.Write){}
	}
	if f.doubts[collection] == nil {
		f.doubts[collection] = f.follower.Doubt(collection)
	}
}

// applyDoubt adapts the end of a doubt to the signature of Begin's end.
func applyDoubt(b begunWrite, end func(applied *journal.Write)) func(bool, []rerank.ID) {
	return func(applied bool, touched []rerank.ID) {
		if !applied {
			end(nil)
			return
		}
		w := b.write
		if touched != nil && w.All {
			w.All, w.IDs = false, touched
		}
		end(&w)
	}
}

// doubt tells the follower that the write may address any other followed collection.
func (f *flight) doubt() {
	for name := range f.followed() {
		if !slices.ContainsFunc(f.begun, func(b begunWrite) bool { return b.write.Collection == name }) {
			f.doubtOne(name)
		}
	}
}

// end ends a write. If the database did not let the caller write before, its answer counts only if
// the write was carried out nevertheless.
func (f *flight) end(ctx context.Context, o WriteOutcome, chosen []rerank.ID) {
	if f.trusted {
		f.names.endRename(f.writing)
	}
	if f.excused {
		if o != Answered {
			return
		}
		f.begin(ctx)
	}
	if o != Refused {
		f.noteRenames()
	}
	if o == Answered && f.writing.Unknown != "" {
		f.log.WarnContext(ctx, "proxy: unknown request counts as a write of every collection", "request", f.writing.Unknown)
	}
	switch o {
	case Answered:
		f.accepted.remember(f.writer)
	case Refused:
		f.accepted.forget(f.writer)
	case Failed, Unknown:
	}
	for _, b := range f.begun {
		f.endOne(ctx, b, o, chosen)
	}
	if !f.trusted && o != Refused {
		f.endTargets(ctx, o, chosen)
	}
	switch {
	case len(f.doubts) == 0:
	case o == Refused:
		f.clearDoubts()
	default:
		f.background.Go(func() { f.resolve(ctx, o, chosen) })
	}
}

// noteRenames records the names that a write changed, and those that others changed while it was in
// flight: it may have addressed the collection that a name stands for now.
func (f *flight) noteRenames() {
	if f.writing.renames() {
		f.names.renamed()
		f.aliases.forget()
		f.schemas.ForgetFunc(func(string) bool { return true })
	}
	if f.renamedByOthers() && !f.elsewhere && len(f.writing.Collections) > 0 {
		f.elsewhere = true
		f.doubt()
	}
}

// renamedByOthers reports whether other writes have changed names since the write began.
func (f *flight) renamedByOthers() bool {
	others := f.names.ended() - f.renames
	if f.writing.renames() {
		others--
	}
	return others > 0
}

// endTargets reads a stranger's write that the database did not refuse, and ends the doubts about
// its targets.
func (f *flight) endTargets(ctx context.Context, o WriteOutcome, chosen []rerank.ID) {
	ctx, cancel := f.withinBudget(ctx)
	defer cancel()
	for _, t := range f.targets {
		f.endDoubt(ctx, t, o, chosen)
	}
}

// clearDoubts ends the remaining doubts: the write addressed no such collection.
func (f *flight) clearDoubts() {
	for _, end := range f.doubts {
		end(nil)
	}
	clear(f.doubts)
}

// resolve finds out which collections an ended write addressed, as soon as their names can be read,
// and ends the doubts. If the sidecar stops before, they stay.
func (f *flight) resolve(ctx context.Context, o WriteOutcome, chosen []rerank.ID) {
	defer func() { f.panicked(ctx, recover(), f.writing) }()
	ctx = anonymous(context.WithoutCancel(ctx))
	for {
		table, known := f.getNames(f.closing)
		if known && !f.names.moves(f.writing.Collections) {
			f.resolveBy(ctx, table, o, chosen)
			return
		}
		select {
		case <-f.closing.Done():
			return
		case <-time.After(namesAgain):
		}
	}
}

// resolveBy ends the doubts according to the present names of collections.
func (f *flight) resolveBy(ctx context.Context, table nameTable, o WriteOutcome, chosen []rerank.ID) {
	for _, name := range f.writing.Collections {
		for _, t := range table[name] {
			f.endDoubt(ctx, t, o, chosen)
		}
	}
	if !f.known {
		for _, t := range f.perhaps(table) {
			f.endDoubt(ctx, t, o, chosen)
		}
	}
	f.clearDoubts()
}

// endDoubt ends the doubt about a collection that a write addressed.
func (f *flight) endDoubt(ctx context.Context, t target, o WriteOutcome, chosen []rerank.ID) {
	end, ok := f.doubts[t.collection]
	if !ok {
		return
	}
	delete(f.doubts, t.collection)
	b, any := f.read(ctx, t)
	if !any {
		end(nil)
		return
	}
	b.end, b.doubtful = applyDoubt(b, end), true
	f.endOne(ctx, b, o, chosen)
}

// perhaps returns the collections that a write may have addressed although they no longer have its
// name: names were unknown when it began, and it, or a concurrent write, has changed names since.
func (f *flight) perhaps(table nameTable) (all []target) {
	others := f.renamedByOthers()
	for name := range f.followed() {
		for _, t := range table[name] {
			gone := t.identity.Collection == "" // the target was dropped, or is an alias of a dropped collection
			if t.collection == name && (others || gone && f.writing.renames()) {
				all = append(all, target{collection: name})
			}
		}
	}
	return all
}

// panicked logs a recovered panic. The write continues.
func (r *Router) panicked(ctx context.Context, cause any, w Writing) {
	if cause != nil {
		r.log.ErrorContext(ctx, "following a write of the proxy panicked", "kind", w.Kind, "collections", w.Collections, "panic", cause)
	}
}

// withinBudget returns a context for following a write. It ends with the budget, not with the
// client, and holds none of the client's metadata.
func (r *Router) withinBudget(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(anonymous(context.WithoutCancel(ctx)), r.budget)
}

// rows reads which rows change. If reading the request panics, any row may change.
func (r *Router) rows(ctx context.Context, w Writing, of adapters.Identity) (rows Rows) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked(ctx, p, w)
			rows = Rows{All: true}
		}
	}()
	return w.Read(ctx, of)
}

// begunWrite is a write to one collection that the follower was told of.
type begunWrite struct {
	write    journal.Write
	doubtful bool        // the follower has not journalled it
	chosen   bool        // the answer says which rows
	given    []rerank.ID // ids that the request itself names
	end      func(applied bool, touched []rerank.ID)
}

// read reads which rows of a collection a write touches. any is false if it touches none.
func (f *flight) read(ctx context.Context, t target) (b begunWrite, any bool) {
	rows := Rows{All: true, Waited: f.writing.Kind == journal.Collection}
	if t.sure && f.writing.Read != nil {
		rows = f.rows(ctx, f.writing, t.identity)
	}
	if rows.empty() {
		return b, false
	}
	b.write = journal.Write{
		Collection: t.collection, Kind: cmp.Or(rows.Kind, f.writing.Kind), Filter: rows.Filter, All: rows.All || rows.Chosen, Waited: rows.Waited,
	}
	if !b.write.All {
		b.write.IDs = rows.IDs
	}
	if rows.Chosen && !rows.All {
		b.chosen, b.given = true, rows.IDs
	}
	return b, true
}

// endOne ends a write to one collection. A write without an answer may still be applied at any
// later time, so it is followed as one that nobody waited for.
func (f *flight) endOne(ctx context.Context, b begunWrite, o WriteOutcome, chosen []rerank.ID) {
	defer func() {
		f.panicked(ctx, recover(), Writing{Kind: b.write.Kind, Collections: []string{b.write.Collection}})
	}()
	if !b.chosen || len(chosen) == 0 {
		chosen = nil
	} else {
		chosen = append(slices.Clip(chosen), b.given...)
	}
	if o != Unknown || !b.write.Waited {
		b.end(o != Refused, chosen)
		return
	}
	again := b.write
	again.Waited = false
	if b.doubtful {
		endAgain := f.follower.Doubt(again.Collection)
		b.end(true, chosen)
		endAgain(&again)
		return
	}
	ctx, cancel := f.withinBudget(ctx)
	defer cancel()
	endAgain := f.follower.Begin(ctx, again)
	b.end(true, chosen)
	endAgain(true, nil)
}

// mayWriteWithin limits how long a write waits for mayWrite.
const mayWriteWithin = time.Second

// mayWrite asks the database whether the writer may write to any followed collection that the write
// may change. It returns true unless the database says no. Without this question, a caller without
// rights could hold up the answers to others, by a write whose body trickles, or by a write that
// the database finds faulty before it checks the caller's rights.
func (f *flight) mayWrite(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(adapters.AsCaller(context.WithoutCancel(ctx)), mayWriteWithin)
	defer cancel()
	refused := false
	for name, store := range f.followed() {
		isTarget := slices.ContainsFunc(f.targets, func(t target) bool { return t.collection == name })
		if !isTarget && !f.elsewhere && !f.writing.renames() {
			continue
		}
		check := adapters.AbilitiesOf(store).CheckWrite
		if check == nil {
			return true
		}
		switch err := check.CheckWrite(ctx, name); {
		case errors.Is(err, adapters.ErrRefused):
			refused = true
		case !errors.Is(err, adapters.ErrNotFound): // nobody may write to a missing collection
			return true
		}
	}
	return !refused
}
