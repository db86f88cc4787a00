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

// flight is a write in flight.
type flight struct {
	*Writes
	writing  Writing
	writer   acceptance
	standing standing
	reach    reach
	targets  []target // the collections that the write addresses, as names stood when it began
	renames  int      // number of renames that had ended when the write began
	begun    []begunWrite
	doubts   map[string]func(applied *journal.Write) // by collection that the write may address
}

// standing is what is known of a writer's rights when its write begins. It decides when the follower is
// told of the write.
type standing int

const (
	// writerUnproved: the database has not let the writer write lately, and has not refused it either.
	// The follower doubts the collections that the write may address. What the write changes is read
	// when the database has answered.
	writerUnproved standing = iota
	// writerTrusted: the database lately let the writer write. The follower journals the write before it
	// is forwarded.
	writerTrusted
	// writerDenied: the database says that the writer may not write. The follower is told only if the
	// database carries the write out nevertheless.
	writerDenied
)

// reach says which followed collections a write may address.
type reach int

const (
	// reachTargets: only the write's targets.
	reachTargets reach = iota
	// reachRenamed: any, because another write may change a name in this one while it is in flight.
	reachRenamed
	// reachUnknown: any, because a name in the write was not known when the write began.
	reachUnknown
)

// reachOf returns the reach of a write when it begins. known says whether the names in it are known,
// othersRename whether another write that may change one of them is in flight.
func reachOf(known, othersRename bool) reach {
	switch {
	case !known:
		return reachUnknown
	case othersRename:
		return reachRenamed
	}
	return reachTargets
}

// Begin reads a request that is about to be forwarded, and tells the follower of its write, within
// the write budget. The outgoing metadata of ctx holds the caller's credentials. It returns nil for
// a request that need not be followed. outlives reports that the database has not let the caller
// write lately: the answer to this write must then be awaited even if the client leaves, since a
// write without an answer counts as applied. With ErrBlocked the write must not be forwarded, and
// has ended.
func (w *Writes) Begin(ctx context.Context, read func() Writing) (ended Ended, outlives bool, err error) {
	var of Writing
	defer func() { w.panicked(ctx, recover(), of) }()
	if of = read(); of.none() {
		return nil, false, nil
	}
	f := &flight{Writes: w, writing: of, writer: w.accepted.of(ctx, of.right(), slices.Concat(of.Collections, of.Renamed)...), renames: w.names.ended()}
	f.standing = writerUnproved
	if w.accepted.has(f.writer) {
		f.standing = writerTrusted
	}
	within, cancel := w.withinBudget(ctx)
	defer cancel()
	othersRename := w.names.moves(of.Collections)
	if f.standing == writerTrusted { // another writer's rename must not make names ambiguous
		w.names.beginRename(of)
	}
	ended, outlives = func(o WriteOutcome, chosen []rerank.ID) { f.end(ctx, o, chosen) }, f.standing != writerTrusted
	targets, known := w.targets(within, of)
	f.targets, f.reach = targets, reachOf(known, othersRename)
	if len(f.targets) == 0 && f.reach == reachTargets && !of.renames() {
		return nil, false, nil
	}
	if f.standing != writerTrusted && !f.mayWrite(ctx) {
		f.standing = writerDenied
		return ended, outlives, nil
	}
	f.begin(within)
	if len(f.begun) == 0 && len(f.doubts) == 0 && !of.renames() {
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
	if f.standing == writerTrusted {
		f.names.endRename(f.writing)
	}
	for _, b := range f.begun {
		b.end(false, nil)
	}
	f.clearDoubts()
}

// begin tells the follower of a write to its targets. The write of a trusted writer is journalled
// before it is forwarded. The write of a stranger is not even read until the database has answered.
func (f *flight) begin(ctx context.Context) {
	for _, t := range f.targets {
		if f.standing != writerTrusted {
			f.doubtOne(t.collection)
			continue
		}
		if b, any := f.read(ctx, t); any {
			b.end = f.follower.Begin(ctx, b.write)
			f.begun = append(f.begun, b)
		}
	}
	if f.reach != reachTargets {
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
	for _, name := range f.followed() {
		if !slices.ContainsFunc(f.begun, func(b begunWrite) bool { return b.write.Collection == name }) {
			f.doubtOne(name)
		}
	}
}

// end ends a write. If the database did not let the caller write before, its answer counts only if
// the write was carried out nevertheless.
func (f *flight) end(ctx context.Context, o WriteOutcome, chosen []rerank.ID) {
	if f.standing == writerTrusted {
		f.names.endRename(f.writing)
	}
	if f.standing == writerDenied {
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
	if f.standing != writerTrusted && o != Refused {
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
		f.renamed()
	}
	if f.renamedByOthers() && f.reach == reachTargets && len(f.writing.Collections) > 0 {
		f.reach = reachRenamed
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
		table, known := f.names.get(f.background.closing)
		if known && !f.names.moves(f.writing.Collections) {
			f.resolveBy(ctx, table, o, chosen)
			return
		}
		select {
		case <-f.background.closing.Done():
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
	if f.reach == reachUnknown {
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
	for _, name := range f.followed() {
		for _, t := range table[name] {
			gone := t.identity.Collection == "" // the target was dropped, or is an alias of a dropped collection
			if t.collection == name && (others || gone && f.writing.renames()) {
				all = append(all, target{collection: name})
			}
		}
	}
	return all
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

// mayWrite asks the database whether the writer may make this write to any followed collection that it
// may change. It returns true unless the database says no. Without this question, a caller without
// rights could hold up the answers to others, by a write whose body trickles, or by a write that
// the database finds faulty before it checks the caller's rights.
func (f *flight) mayWrite(ctx context.Context) bool {
	ctx, isSendable := sendable(ctx)
	if !isSendable { // no database accepts such a credential
		return false
	}
	ctx, cancel := context.WithTimeout(adapters.AsCaller(context.WithoutCancel(ctx)), mayWriteWithin)
	defer cancel()
	isDenied := false
	for _, name := range f.followed() {
		isTarget := slices.ContainsFunc(f.targets, func(t target) bool { return t.collection == name })
		if !isTarget && f.reach == reachTargets && !f.writing.renames() {
			continue
		}
		if f.storeCan.CheckWrite == nil {
			return true
		}
		switch err := f.storeCan.CheckWrite.CheckWrite(ctx, name, f.writing.Way); {
		case errors.Is(err, adapters.ErrRefused):
			isDenied = true
		case !errors.Is(err, adapters.ErrNotFound): // nobody may write to a missing collection
			return true
		}
	}
	return !isDenied
}
