package follow_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// refusable lists writes whose rows are named, selected by a filter, or unknown.
var refusable = []journal.Write{
	{Collection: items, Kind: journal.Delete, IDs: ids(1)},
	{Collection: items, Kind: journal.Delete, Filter: `{"some":"filter"}`},
	{Collection: items, Kind: journal.Collection, All: true, Waited: true},
	{Collection: items, Kind: journal.Upsert, All: true},
}

// beginAll begins every kind of write in both ways, and returns a function that refuses them all.
func beginAll(t testing.TB, f *follow.Follower) (refuse func()) {
	t.Helper()
	var ends []func()
	for _, w := range refusable {
		known := f.Begin(t.Context(), w)
		doubtful := f.Doubt(w.Collection)
		ends = append(ends, func() { known(false, nil) }, func() { doubtful(nil) })
	}
	return func() {
		for _, end := range ends {
			end()
			end()
		}
	}
}

// TestRefusedWrites: while a write is in flight nothing is fresh. Once the database has refused it,
// nothing is read, compared, counted or remembered.
func TestRefusedWrites(t *testing.T) {
	w := newWorld(t, 20)
	r := w.route(t, "")
	dir := t.TempDir()
	open := func() *follow.Follower {
		t.Helper()
		f, err := follow.New(follow.Options{Store: w.db, Dir: dir, Applied: true}, []follow.Route{{Route: r}})
		must(t, err)
		return f
	}
	f := open()
	fresh(t, r)
	must(t, f.Close(closing(t)))
	f = open()
	if !r.Freshness.Fresh() {
		t.Fatal("not fresh after an orderly restart")
	}
	before, fetches := f.Status()[0], w.db.fetches.Load()
	for range 50 {
		refuse := beginAll(t, f)
		if r.Freshness.Fresh() {
			t.Fatal("fresh while writes are on their way")
		}
		refuse()
		if !r.Freshness.Fresh() || r.Live.Pending() != 0 {
			t.Fatalf("not fresh after the database refused all writes: %+v", f.Status()[0])
		}
	}
	if after := f.Status()[0]; after != before || w.db.fetches.Load() != fetches {
		t.Errorf("refused writes left %+v and %d reads, before %+v", after, w.db.fetches.Load()-fetches, before)
	}
	must(t, f.Close(closing(t)))
	j, entries, err := journal.Open(filepath.Join(statedir.Collection(dir, items), "journal"), journal.Options{})
	if must(t, err); len(entries) > 0 {
		t.Errorf("refused writes survive a restart: %+v", entries)
	}
	must(t, j.Close())
}

// TestDoubtfulWritesAreFollowed: a doubtful write that the database carried out is pending before
// the doubt ends, and is then followed.
func TestDoubtfulWritesAreFollowed(t *testing.T) {
	w := newWorld(t, 20)
	r := w.route(t, "")
	f := w.follow(t, r)
	fresh(t, r)
	done := f.Doubt(items)
	_, doubt := r.Freshness.Assess()
	if doubt == nil {
		t.Fatal("no doubt while a write is on its way")
	}
	w.put(t, 5, 77, 77)
	w.db.hold.Lock()
	done(&journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(5), Waited: true})
	if r.Freshness.Fresh() || doubt.Cleared(t.Context()) || f.Status()[0].Pending != 1 {
		t.Error("a doubtful write was carried out, and is not pending")
	}
	w.db.hold.Unlock()
	fresh(t, r)
	agree(t, r, 20)
}

// TestASearchLearnsWhatBecameOfAWrite: a search of a table that cannot follow, and that met a write
// on its way, is told whether the database carried the write out.
func TestASearchLearnsWhatBecameOfAWrite(t *testing.T) {
	w := newWorld(t, 3)
	r := w.fixed(t, time.Now())
	f, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir()}, []follow.Route{{Route: r}})
	must(t, err)
	for _, applied := range []bool{false, true} {
		end := f.Begin(t.Context(), refusable[0])
		_, doubt := r.Freshness.Assess()
		if doubt == nil {
			t.Fatal("no doubt while a write is on its way")
		}
		end(applied, nil)
		if doubt.Cleared(t.Context()) == applied || r.Freshness.Fresh() == applied {
			t.Errorf("carried out %t: fresh is %t", applied, r.Freshness.Fresh())
		}
	}
	must(t, f.Close(closing(t)))
}

// TestRefusedByAFullJournal: a write that the journal did not accept makes nothing stale if the
// database refused it.
func TestRefusedByAFullJournal(t *testing.T) {
	w := newWorld(t, 5)
	r := w.route(t, "")
	f := w.follow(t, r, func(s *follow.Route) { s.WriteBudget = 1 }) // a nanosecond
	fresh(t, r)
	before := f.Status()[0]
	for _, jw := range refusable {
		f.Begin(t.Context(), jw)(false, nil)
	}
	if after := f.Status()[0]; after != before || !r.Freshness.Fresh() {
		t.Errorf("%+v, before %+v", after, before)
	}
}

// TestFrozenRefused: a table that cannot follow stays valid after refused writes, in the next
// process too, and is not fresh while one is in flight.
func TestFrozenRefused(t *testing.T) {
	w := newWorld(t, 3)
	dir := t.TempDir()
	path := filepath.Join(statedir.Collection(dir, items), "written.json")
	built := time.Now().Add(-time.Hour)
	open := func() (*follow.Follower, *route.Route) {
		t.Helper()
		r := w.fixed(t, built)
		f, err := follow.New(follow.Options{Store: w.db, Dir: dir}, []follow.Route{{Route: r}})
		must(t, err)
		return f, r
	}
	f, r := open()
	refuse := beginAll(t, f)
	if r.Freshness.Fresh() {
		t.Error("fresh while writes are on their way")
	}
	until(t, func() bool { // a process that is killed now must remember them
		_, err := os.Stat(path)
		return err == nil
	})
	refuse()
	if s := f.Status()[0]; !r.Freshness.Fresh() || s.Stale {
		t.Errorf("after the database refused all writes: %+v", s)
	}
	must(t, f.Close(closing(t)))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("refused writes are remembered: %v", err)
	}
	if f, r = open(); !r.Freshness.Fresh() {
		t.Error("not fresh in the next process")
	}
	f.Doubt(items) // the process ends before the database answers
	must(t, f.Close(closing(t)))
	if f, r = open(); r.Freshness.Fresh() {
		t.Error("a write whose end nobody saw was forgotten")
	}
	must(t, f.Close(closing(t)))
}
