package follow_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestFollows: whatever the order of writes in flight, derived data ends in the collection's state,
// in every format of a table.
func TestFollows(t *testing.T) {
	for _, format := range rerank.Formats() {
		t.Run(string(format), func(t *testing.T) {
			w := newWorld(t, 60)
			r := w.route(t, format)
			f := w.follow(t, r)
			fresh(t, r) // without any record of earlier writes
			var group sync.WaitGroup
			for writer := range 4 {
				group.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(writer), 1))
					for range 60 {
						id := rng.Uint64N(90)
						kind := journal.Upsert
						if rng.IntN(4) == 0 {
							kind = journal.Delete
						}
						done := begin(t.Context(), f, journal.Write{Collection: items, Kind: kind, IDs: ids(id, id)})
						if r.Freshness.Fresh() || r.Live.Pending() == 0 {
							t.Error("fresh while a write is on its way")
						}
						if kind == journal.Delete {
							w.remove(t, id)
						} else {
							w.put(t, id, rng.Uint64(), rng.IntN(5))
						}
						done()
						done() // a second time says nothing new
					}
				})
			}
			group.Wait()
			fresh(t, r)
			if n := r.Live.Pending(); n != 0 {
				t.Errorf("%d writes pending in the table", n)
			}
			agree(t, r, int64(rowsOf(t, w)))
		})
	}
}

func rowsOf(t testing.TB, w *world) int {
	t.Helper()
	all, err := w.db.Match(t.Context(), items, "")
	must(t, err)
	return len(all)
}

// TestManyWritesOfOneRow: many writes of a row cost few reads. Those that end while the row is read
// share the next read.
func TestManyWritesOfOneRow(t *testing.T) {
	w := newWorld(t, 3)
	r := w.route(t, "")
	f := w.follow(t, r)
	fresh(t, r)
	before := w.db.fetches.Load()
	w.db.hold.Lock()
	for i := range 500 {
		done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Payload, IDs: ids(1)})
		w.put(t, 1, 1, i)
		done()
	}
	w.db.hold.Unlock()
	fresh(t, r)
	if n := w.db.fetches.Load() - before; n > 3 {
		t.Errorf("500 writes of one row took %d reads, want 3 at most", n)
	}
	agree(t, r, 3)
}

// TestWholeCollection: writes that name no rows, and the end of the collection.
func TestWholeCollection(t *testing.T) {
	w := newWorld(t, 30)
	r := w.route(t, "")
	f := w.follow(t, r)
	fresh(t, r)
	write := func(jw journal.Write, do func()) {
		t.Helper()
		jw.Collection = items
		done := begin(t.Context(), f, jw)
		do()
		done()
		fresh(t, r)
	}
	write(journal.Write{Kind: journal.Delete, Filter: `{"some":"filter"}`}, func() { w.remove(t, 3, 4, 5) })
	agree(t, r, 27)
	open := f.Begin(t.Context(), journal.Write{Collection: items, Kind: journal.Upsert, All: true})
	w.put(t, 31, 31, 31)
	before := f.Status()[0].Rows
	open(true, ids(31))
	fresh(t, r)
	if f.Status()[0].Rows != before {
		t.Error("all rows were compared for one that the database named")
	}
	agree(t, r, 28)
	w.remove(t, 31)
	write(journal.Write{Kind: journal.Payload, All: true}, func() { w.put(t, 7, 7, 1000); w.put(t, 8, 9, 8) })
	agree(t, r, 27)
	write(journal.Write{Kind: journal.Collection}, func() { must(t, w.db.Drop(t.Context(), items)) })
	if n := r.Live.Stats().Items; n != 0 {
		t.Errorf("the table has %d items of a collection that was dropped", n)
	}
	left, err := w.db.Match(t.Context(), companion, "")
	if must(t, err); len(left) > 0 {
		t.Errorf("the companion has %d rows of a collection that was dropped", len(left))
	}
	write(journal.Write{Kind: journal.Collection}, func() {
		must(t, w.db.Create(t.Context(), w.schema))
		w.put(t, 100, 5, 5)
	})
	agree(t, r, 1)
}

// TestReconcile finds unannounced writes, reports them, and repairs the rows.
func TestReconcile(t *testing.T) {
	w := newWorld(t, 40)
	r := w.route(t, "")
	f := w.follow(t, r)
	fresh(t, r)
	w.remove(t, 1, 2, 3)
	w.put(t, 4, 99, 4)  // another vector
	w.put(t, 5, 5, 555) // another payload
	w.put(t, 50, 50, 50)
	found, err := f.Reconcile(t.Context(), items)
	must(t, err)
	want := follow.Drift{Rows: 38, Missing: 1, Changed: 2, Surplus: 3}
	if found["r"] != want {
		t.Errorf("%+v, want %+v", found["r"], want)
	}
	agree(t, r, 38)
	found, err = f.Reconcile(t.Context(), items)
	if must(t, err); found["r"] != (follow.Drift{Rows: 38}) {
		t.Errorf("again: %+v", found["r"])
	}
	s := f.Status()
	if len(s) != 1 || s[0].Route != "r" || s[0].Reconciles < 3 || s[0].Age != 0 || s[0].Reconciled.IsZero() || s[0].Rows < 114 {
		t.Errorf("%+v", s)
	}
	if _, err := f.Reconcile(t.Context(), "another"); !errors.Is(err, follow.ErrRoute) {
		t.Errorf("another collection: %v", err)
	}
}

// TestReconcileSaysWhatItFound: a running follower reports the differences of this pass, and not
// those that an earlier pass found and repaired.
func TestReconcileSaysWhatItFound(t *testing.T) {
	w := newWorld(t, 40)
	r := w.route(t, "")
	w.remove(t, 1, 2, 3)
	f := w.follow(t, r)
	fresh(t, r)
	found, err := f.Reconcile(t.Context(), items)
	if must(t, err); found["r"] != (follow.Drift{Rows: 37}) {
		t.Errorf("%+v", found["r"])
	}
	if d := f.Status()[0].Drift; d != (follow.Drift{Rows: 37}) {
		t.Errorf("the last pass found %+v", d)
	}
}

// TestAnotherDimension: a fault of every row is not detected row by row.
func TestAnotherDimension(t *testing.T) {
	w := newWorld(t, 10)
	r := w.route(t, "")
	f := w.follow(t, r)
	fresh(t, r)
	before, right := w.db.fetches.Load(), w.schema
	again := func(schema adapters.Schema) {
		t.Helper()
		w.schema = schema
		whole := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Collection, All: true})
		must(t, w.db.Drop(t.Context(), items))
		must(t, w.db.Create(t.Context(), schema))
		whole()
		done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1, 2, 3, 4, 5, 6, 7, 8)})
		for id := range uint64(8) {
			w.put(t, id+1, id, 0)
		}
		done()
	}
	again(adapters.Schema{Collection: items, Fields: []adapters.VectorField{{Name: "vec", Dim: 2, Metric: adapters.InnerProduct}}})
	until(t, func() bool { return f.Status()[0].Failures >= 2 })
	if s, n := f.Status()[0], w.db.fetches.Load()-before; n > s.Failures+1 {
		t.Errorf("%d reads for %d failures", n, s.Failures)
	}
	again(right)
	fresh(t, r)
	agree(t, r, 8)
}

// TestReconcileNowAndThen finds writes that bypassed the follower, without being asked.
func TestReconcileNowAndThen(t *testing.T) {
	w := newWorld(t, 10)
	r := w.route(t, "")
	f := w.follow(t, r, func(s *follow.Route) { s.Interval, s.RowsPerSecond = time.Second, 100_000 })
	fresh(t, r)
	w.remove(t, 1)
	until(t, func() bool { return f.Status()[0].Drift.Surplus > 0 })
	fresh(t, r)
	agree(t, r, 9)
}

// TestOverBudget: a write that the journal does not accept in time is forwarded at once, and all
// rows are compared.
func TestOverBudget(t *testing.T) {
	w := newWorld(t, 10)
	r := w.route(t, "")
	f := w.follow(t, r, func(s *follow.Route) { s.WriteBudget = time.Nanosecond })
	fresh(t, r)
	before := f.Status()[0].Reconciles
	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(1)})
	if s := f.Status()[0]; s.Stale || s.Unjournaled != 0 || s.Pending != 1 || r.Freshness.Fresh() {
		t.Errorf("%+v, want a write on its way", s)
	}
	w.remove(t, 1)
	w.db.hold.Lock()
	done()
	if s := f.Status()[0]; !s.Stale || s.Unjournaled != 1 || s.Age <= 0 {
		t.Errorf("%+v, want it to be stale", s)
	}
	w.db.hold.Unlock()
	fresh(t, r)
	if s := f.Status()[0]; s.Reconciles == before {
		t.Errorf("%+v, want a reconcile", s)
	}
	agree(t, r, 9)
}

// TestDatabaseDown: writes are followed once the database can be read again, and nothing is fresh
// before.
func TestDatabaseDown(t *testing.T) {
	w := newWorld(t, 10)
	r := w.route(t, "")
	f := w.follow(t, r)
	fresh(t, r)
	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1, 11)})
	w.put(t, 11, 11, 11)
	w.db.down.Store(true)
	done()
	until(t, func() bool { return f.Status()[0].Failures > 0 })
	if r.Freshness.Fresh() {
		t.Error("fresh while the database cannot be read")
	}
	w.db.down.Store(false)
	fresh(t, r)
	agree(t, r, 11)
}

// TestRestart: writes that were seen but not shown when the process ended are shown by the next
// one. After a clean end there is nothing to compare.
func TestRestart(t *testing.T) {
	w := newWorld(t, 10)
	r, dir := w.route(t, ""), t.TempDir()
	open := func() *follow.Follower {
		f, err := follow.New(follow.Options{Store: w.db, Dir: dir, Applied: true}, []follow.Route{{Route: r}})
		must(t, err)
		return f
	}
	w.db.down.Store(true) // so that the first comparison does not end at once
	f := open()
	if r.Freshness.Fresh() {
		t.Error("fresh, though nobody knows what was written since the table was built")
	}
	w.db.down.Store(false)
	fresh(t, r)
	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(1)})
	w.remove(t, 1)
	w.db.down.Store(true)
	done()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, f.Close(ended))
	w.db.down.Store(false)
	f = open()
	fresh(t, r)
	agree(t, r, 9)
	must(t, f.Close(closing(t)))
	f = open()
	if s := f.Status()[0]; !r.Freshness.Fresh() || s.Reconciled.IsZero() {
		t.Errorf("after a restart in order: %+v", s)
	}
	must(t, f.Close(closing(t)))
}

// TestTwoSidecars: two sidecars with a shared companion, and a table each, converge.
func TestTwoSidecars(t *testing.T) {
	w := newWorld(t, 40)
	one, two := w.route(t, ""), w.route(t, rerank.FormatBFloat16)
	f, g := w.follow(t, one), w.follow(t, two)
	for i := range 200 {
		id, through := uint64(i%50), f
		if i%3 == 0 {
			through = g
		}
		done := begin(t.Context(), through, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(id)})
		w.put(t, id, uint64(i), i)
		done()
	}
	fresh(t, one)
	fresh(t, two)
	for _, each := range []*follow.Follower{f, g} {
		_, err := each.Reconcile(t.Context(), items)
		must(t, err)
	}
	agree(t, one, 50)
	agree(t, two, 50)
}

// TestReplace: a new version of a route is followed in the place of the old one.
func TestReplace(t *testing.T) {
	w := newWorld(t, 20)
	before := w.route(t, "")
	f := w.follow(t, before)
	fresh(t, before) // its first comparison has ended, so that it cannot notice what follows
	after := w.route(t, rerank.FormatInt8)
	w.remove(t, 3) // nobody saw it
	must(t, f.Replace(after))
	fresh(t, after)
	agree(t, after, 19)
	if n := before.Live.Stats().Items; n != 20 {
		t.Errorf("the table of before was written to: %d items", n)
	}
	must(t, f.WaitUnused(t.Context(), items))
	must(t, before.Live.Close())
	w.remove(t, 4)
	if _, err := f.Reconcile(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	agree(t, after, 18)
	plain := *after
	plain.Live, plain.Companion, plain.Freshness = nil, "", nil
	must(t, f.Replace(&plain)) // has nothing to follow
	if s := f.Status(); len(s) != 0 {
		t.Errorf("%v is followed", s)
	}
	must(t, f.Replace(after))
	fresh(t, after)
	another := *after
	another.Collection = "another"
	if err := f.Replace(&another); !errors.Is(err, follow.ErrRoute) {
		t.Errorf("%v", err)
	}
}

// TestUnfit: rows with numbers that a table's format cannot hold are left out, and nothing is fresh
// while there are any.
func TestUnfit(t *testing.T) {
	w := newWorld(t, 5)
	sim := &spoiled{Similarity: w.model.Similarity, of: w.vector(0)[0]}
	tooLarge := float32(1e6)
	sim.number.Store(&tooLarge)
	w.model.Similarity = sim
	path := filepath.Join(t.TempDir(), "t")
	out, err := table.NewWriter(path, table.Meta{Model: "m", ModelVersion: w.model.Version, Collection: items, Kind: "mol", Features: sim.Spec().Features, Format: rerank.FormatFloat16})
	must(t, err)
	must(t, out.Close())
	l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &route.Route{Policy: route.Policy{Name: "r", Collection: items, Vector: "vec"}, Parts: route.Parts{Store: w.db, Model: w.model, Live: l}}
	o := follow.Options{Store: w.db, Dir: t.TempDir(), Applied: true, OnRequest: true}
	open := func() *follow.Follower {
		f, err := follow.New(o, []follow.Route{{Route: r}})
		must(t, err)
		return f
	}
	f := open()
	_, err = f.Reconcile(t.Context(), items)
	must(t, err)
	must(t, f.Close(closing(t)))
	if f = open(); r.Freshness.Fresh() || !f.Status()[0].Stale {
		t.Errorf("in the next process: %+v", f.Status()[0])
	}
	t.Cleanup(func() { must(t, f.Close(closing(t))) })
	found, err := f.Reconcile(t.Context(), items)
	if must(t, err); found["r"].Unfit != 1 || r.Freshness.Fresh() || l.Stats().Items != 4 {
		t.Errorf("%+v, %d items", found["r"], l.Stats().Items)
	}
	clear := func() {
		t.Helper()
		done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(0)})
		w.remove(t, 0)
		done()
		_, err = f.Reconcile(t.Context(), items)
		must(t, err)
		fresh(t, r)
	}
	clear()
	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(0)})
	w.put(t, 0, 0, 0)
	done()
	until(t, func() bool { return f.Status()[0].Pending == 0 })
	if r.Freshness.Fresh() || l.Stats().Items != 4 {
		t.Errorf("fresh after a write of a row that does not fit, with %d items", l.Stats().Items)
	}
	clear()
}

// TestSpoiled: a row that can no longer be derived, or no longer fits into the table, leaves the
// table. The companion keeps the rows that can be derived.
func TestSpoiled(t *testing.T) {
	for name, number := range map[string]float32{"not finite": float32(math.NaN()), "too large": 1e6} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			r := w.route(t, rerank.FormatFloat16)
			spoiled := &spoiled{Similarity: w.model.Similarity, of: w.vector(0)[0]}
			r.Model.Similarity = spoiled
			f := w.follow(t, r)
			fresh(t, r)
			spoiled.number.Store(&number)
			done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Payload, IDs: ids(0)})
			w.put(t, 0, 0, 77)
			done()
			until(t, func() bool { return f.Status()[0].Pending == 0 })
			s := r.Live.Snapshot()
			defer s.Release()
			if _, there := s.Find(rerank.UintID(0)); there || r.Live.Stats().Items != 4 {
				t.Errorf("the table holds %d rows", r.Live.Stats().Items)
			}
			left, err := w.db.Match(t.Context(), companion, "")
			must(t, err)
			want := 5
			if name == "not finite" {
				want--
			}
			if len(left) != want {
				t.Errorf("the companion holds %d rows, want %d", len(left), want)
			}
		})
	}
}

// spoiled returns a given number as the first feature of row 0.
type spoiled struct {
	rerank.Similarity
	of     float32 // the first number of the row's vector
	number atomic.Pointer[float32]
}

func (s *spoiled) EncodeItems(dst, base rerank.Matrix) error {
	err := s.Similarity.EncodeItems(dst, base)
	for i := range dst.Rows {
		if number := s.number.Load(); number != nil && base.Row(i)[0] == s.of {
			dst.Row(i)[0] = *number
		}
	}
	return err
}

// Derive implements rerank.Deriver.
func (s *spoiled) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	return rerank.AbilitiesOf(s.Similarity).Derive.Derive(dst, field, items)
}

// Features implements rerank.Deriver.
func (s *spoiled) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	return rerank.AbilitiesOf(s.Similarity).Derive.Features(dst, fields)
}

// Fields implements rerank.Deriver.
func (s *spoiled) Fields() []rerank.Field { return rerank.AbilitiesOf(s.Similarity).Derive.Fields() }

func TestRefuses(t *testing.T) {
	w := newWorld(t, 1)
	r := w.route(t, "")
	bare := &route.Route{Policy: route.Policy{Name: "r", Collection: items}, Parts: route.Parts{Store: w.db, Model: w.model}}
	if _, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir()}, []follow.Route{{Route: bare}}); !errors.Is(err, follow.ErrRoute) {
		t.Errorf("nothing derived: %v", err)
	}
	several := &route.Route{Policy: route.Policy{Name: "r", Collection: items, Owner: "item"}, Parts: route.Parts{Store: w.db, Model: w.model, Live: r.Live}}
	if _, err := w.follow(t, several).Reconcile(t.Context(), items); !errors.Is(err, follow.ErrRoute) {
		t.Errorf("items of several rows: %v", err)
	}
	dir := t.TempDir()
	f, err := follow.New(follow.Options{Store: w.db, Dir: dir}, []follow.Route{{Route: r}})
	must(t, err)
	if _, err := follow.New(follow.Options{Store: w.db, Dir: dir}, []follow.Route{{Route: r}}); err == nil {
		t.Error("two processes in one folder")
	}
	begin(t.Context(), f, journal.Write{Collection: "another"})()
	if !f.Covers(items) || f.Covers("another") {
		t.Error("it covers the wrong collections")
	}
	must(t, f.Close(closing(t)))
	if _, err := f.Reconcile(t.Context(), items); !errors.Is(err, follow.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	r.Companion = "nowhere"
	if _, err := follow.Compare(t.Context(), r, nil); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("a companion that is not there: %v", err)
	}
}
