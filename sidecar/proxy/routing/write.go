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

// Follower keeps what was derived from collections in step with their writes. It
// is safe for concurrent use.
type Follower interface {
	// Covers reports whether something was derived from the collection.
	Covers(collection string) bool
	// BeginOpen is told of a write before it is forwarded, and returns by the deadline
	// of ctx. end is called once, when the write has ended: applied is false where the
	// database refused it, and then nothing of it is left; touched are the rows that it
	// touched, where the database chose their ids and the write had All until then.
	BeginOpen(ctx context.Context, w journal.Write) (end func(applied bool, touched []rerank.ID))
	// Doubt is told of a write before it is forwarded where it is not known whether its
	// caller may write, or whether it is to this collection. Nothing is written down.
	// end is called once: with the write if it is to this collection and the database
	// did not refuse it, and otherwise with nil.
	Doubt(collection string) (end func(applied *journal.Write))
	// Blocked is called after BeginOpen or Doubt. It reports whether the write must not be
	// forwarded: another sidecar certifies answers, and could not be told of it.
	Blocked(collection string) bool
}

// ErrBlocked means that a write was not forwarded.
var ErrBlocked = errors.New("likeness: write refused: the journal that the sidecars share cannot be written")

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
	// Several: the request has several operations, so that the database can refuse one
	// and have carried out those before it.
	Several bool
	// Read says which rows change of a collection that is followed. Without it any
	// row may. It may give up when ctx ends.
	Read func(ctx context.Context, of adapters.Identity) Rows
}

func (w Writing) none() bool { return len(w.Collections) == 0 && !w.renames() }

func (w Writing) renames() bool { return len(w.Renamed) > 0 || w.Everywhere }

// right returns what the caller has to be allowed to do.
func (w Writing) right() right {
	if w.renames() {
		return toRename
	}
	return toWrite
}

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

// WriteOutcome is the result of a write at the database.
type WriteOutcome int

const (
	// Unknown says that the database did not answer, or failed: it may carry the
	// write out later.
	Unknown WriteOutcome = iota
	// Answered says that the database carried the write out.
	Answered
	// Failed says that the database answered with an error, and may have changed something.
	Failed
	// Refused says that the database answered that it changed nothing.
	Refused
)

// Ended is called once a write has ended, with its outcome and the ids that the database
// chose, if its answer has them.
type Ended func(o WriteOutcome, chosen []rerank.ID)

// Follows reports whether writes are followed at all.
func (r *Router) Follows() bool { return r.follower != nil }

// Begin reads a request that is about to be forwarded and tells the follower of
// the write that it is, within the write budget. The outgoing metadata of ctx has the
// caller's credentials. It returns nil for what nothing follows. outlives says that the
// database did not let the caller write lately: what it says to this write has to be waited
// for even where the client goes away, since a write without an answer counts. With
// ErrBlocked the write must not be forwarded, and has ended.
func (r *Router) Begin(ctx context.Context, read func() Writing) (ended Ended, outlives bool, err error) {
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
	if f.trusted { // a stranger's must not hold up what others' names mean
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

// isBlocked reports whether the follower does not let the write be forwarded.
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

// flight is a write on its way.
type flight struct {
	*Router
	writing Writing
	writer  acceptance
	trusted bool // whether the database lately let the writer write
	renames int  // that had ended when it began
	known   bool // whether the names of collections were known when it began
	targets []target
	begun   []begunWrite
	doubts  map[string]func(applied *journal.Write) // by collections that it may be to
	// elsewhere: the write may be to any followed collection beside its targets.
	elsewhere bool
	// excused: the database did not let the writer write when the write began, so that the
	// follower knows nothing of the write.
	excused bool
}

// begin tells the follower of a write to its targets. A trusted writer's is written down
// before it is forwarded. A stranger's is not even read before the database has answered.
func (f *flight) begin(ctx context.Context) {
	for _, t := range f.targets {
		if !f.trusted {
			f.doubtOne(t.collection)
			continue
		}
		if b, any := f.read(ctx, t); any {
			b.end = f.follower.BeginOpen(ctx, b.write)
			f.begun = append(f.begun, b)
		}
	}
	if f.elsewhere {
		f.doubt()
	}
}

// doubtOne tells the follower that the write may be to a collection.
func (f *flight) doubtOne(collection string) {
	if f.doubts == nil {
		f.doubts = map[string]func(*journal.Write){}
	}
	if f.doubts[collection] == nil {
		f.doubts[collection] = f.follower.Doubt(collection)
	}
}

// applyDoubt ends a doubt as BeginOpen's writes end.
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

// doubt tells the follower that the write may be to any other collection that is
// followed.
func (f *flight) doubt() {
	for name := range f.followed() {
		if !slices.ContainsFunc(f.begun, func(b begunWrite) bool { return b.write.Collection == name }) {
			f.doubtOne(name)
		}
	}
}

// end ends a write. What the database says of a write whose caller it did not let write
// counts only if the write was carried out all the same.
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

// noteRenames notes the names that a write changed, and that others changed while it
// was on its way: it may have been to the collection that a name stands for now.
func (f *flight) noteRenames() {
	if f.writing.renames() {
		f.names.renamed()
		f.aliases.forget()
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

// endTargets reads a stranger's write that the database did not refuse, and ends the doubts
// about its targets.
func (f *flight) endTargets(ctx context.Context, o WriteOutcome, chosen []rerank.ID) {
	ctx, cancel := f.withinBudget(ctx)
	defer cancel()
	for _, t := range f.targets {
		f.concerns(ctx, t, o, chosen)
	}
}

// clearDoubts ends the doubts that are left: the write was to no such collection.
func (f *flight) clearDoubts() {
	for _, end := range f.doubts {
		end(nil)
	}
	clear(f.doubts)
}

// resolve finds out which collections a write was to that has ended, as soon as their
// names can be read, and ends the doubts. If the sidecar stops before, they stay.
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

// resolveBy ends the doubts by the names that collections have now.
func (f *flight) resolveBy(ctx context.Context, table nameTable, o WriteOutcome, chosen []rerank.ID) {
	for _, name := range f.writing.Collections {
		for _, t := range table[name] {
			f.concerns(ctx, t, o, chosen)
		}
	}
	if !f.known {
		for _, t := range f.perhaps(table) {
			f.concerns(ctx, t, o, chosen)
		}
	}
	f.clearDoubts()
}

// concerns ends the doubt about a collection that a write was to.
func (f *flight) concerns(ctx context.Context, t target, o WriteOutcome, chosen []rerank.ID) {
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

// perhaps returns the collections that a write may have been to although its name is
// none of theirs now: names were not known when it began, and it, or a write beside
// it, has changed names since.
func (f *flight) perhaps(table nameTable) (all []target) {
	others := f.renamedByOthers()
	for name := range f.followed() {
		for _, t := range table[name] {
			gone := t.identity.Collection == "" // dropped, or an alias of what was
			if t.collection == name && (others || gone && f.writing.renames()) {
				all = append(all, target{collection: name})
			}
		}
	}
	return all
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

// begunWrite is a write to one collection that the follower was told of.
type begunWrite struct {
	write    journal.Write
	doubtful bool        // the follower has not written it down
	chosen   bool        // the answer says which rows
	given    []rerank.ID // and those
	end      func(applied bool, touched []rerank.ID)
}

// read reads which rows of a collection a write touches; any is false if it touches
// none.
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

// endOne ends a write to one collection. One without an answer may still be applied,
// after any time: it is then followed as one that nobody waited for.
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
	endAgain := f.follower.BeginOpen(ctx, again)
	b.end(true, chosen)
	endAgain(true, nil)
}
