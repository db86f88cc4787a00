package follow_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// sidecar is one of several that share a journal, each with a table of its own.
type sidecar struct {
	f *follow.Follower
	r *route.Route
}

// share opens the sidecars of some names before a world's collection.
func share(t testing.TB, w *world, disk *powerloss.Disk, replicas int, names ...string) []sidecar {
	t.Helper()
	all := make([]sidecar, len(names))
	for i, name := range names {
		r := w.route(t, "")
		r.Name, r.Companion, r.Strategy, r.Writes = name, "", rerank.Scan, route.WritesProxy
		all[i] = reopen(t, w, disk, replicas, r)
		t.Cleanup(func() { _ = all[i].f.Close(closing(t)) })
	}
	return all
}

// reopen opens the sidecar with a route, and without state of its own, like a new one.
func reopen(t testing.TB, w *world, disk *powerloss.Disk, replicas int, r *route.Route) sidecar {
	t.Helper()
	o := follow.Options{Store: w.db, Dir: t.TempDir(), Applied: true, Shared: filepath.Join(disk.Root(), "shared"), Replica: r.Name, Replicas: replicas, Disk: disk}
	f, err := follow.New(o, []follow.Route{{Route: r, Interval: time.Minute}})
	must(t, err)
	return sidecar{f, r}
}

// certifies reports whether an answer of the sidecar can be exact now.
func (s sidecar) certifies() bool {
	horizon := s.r.Freshness.Horizon()
	return s.r.Freshness.Fresh() && horizon.Disputed == ""
}

// await waits until all sidecars certify.
func await(t *testing.T, all ...sidecar) {
	t.Helper()
	for _, s := range all {
		until(t, s.certifies)
	}
}

func upsert(id uint64) journal.Write {
	return journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(id), Waited: true}
}

// shows reports whether the sidecar's table has a row.
func (s sidecar) shows(id uint64) bool {
	t := s.r.Live.Snapshot()
	defer t.Release()
	_, there := t.Find(rerank.UintID(id))
	return there
}

// TestSharedJournal: from the moment when a write may reach the database, no sidecar certifies
// until its table shows the write. Then all certify again, without a comparison of all rows.
func TestSharedJournal(t *testing.T) {
	w := newWorld(t, 20)
	all := share(t, w, powerloss.New(t), 2, "a", "b")
	a, b := all[0], all[1]
	await(t, a, b)
	passes := b.f.Status()[0].Reconciles
	check := func(name string, certifies bool) {
		t.Helper()
		if got := b.certifies(); got != certifies {
			t.Errorf("%s: b certifies: %t", name, got)
		}
	}
	t.Run("named rows", func(t *testing.T) {
		end := a.f.Begin(t.Context(), upsert(100))
		check("on its way", false)
		w.put(t, 100, 1, 1)
		check("carried out", false)
		end(true, nil)
		await(t, a, b)
		if !b.shows(100) {
			t.Error("b certifies, and its table lacks the row")
		}
	})
	t.Run("refused", func(t *testing.T) {
		end := a.f.Begin(t.Context(), upsert(101))
		check("on its way", false)
		end(false, nil)
		await(t, a, b)
	})
	t.Run("doubt refused", func(t *testing.T) {
		end := a.f.Doubt(items)
		check("on its way", false)
		end(nil)
		await(t, a, b)
	})
	t.Run("doubt", func(t *testing.T) {
		end := a.f.Doubt(items)
		check("on its way", false)
		w.put(t, 102, 2, 2)
		written := upsert(102)
		end(&written)
		await(t, a, b)
		if !b.shows(102) {
			t.Error("b certifies, and its table lacks the row")
		}
	})
	if got := b.f.Status()[0]; got.Reconciles != passes || got.PeerError != "" {
		t.Errorf("%+v: %d passes before", got, passes)
	}
	t.Run("any row", func(t *testing.T) {
		end := a.f.Begin(t.Context(), journal.Write{Collection: items, Kind: journal.Delete, Filter: "{}"})
		w.remove(t, 100, 102)
		end(true, nil)
		await(t, a, b)
		if b.shows(100) || b.shows(102) {
			t.Error("b certifies, and its table has rows that were removed")
		}
	})
	agree(t, b.r, 20)
}

// TestSidecarsNotSeen: no sidecar certifies before it sees all replicas, nor while the journal of a
// running one has writes that it cannot read.
func TestSidecarsNotSeen(t *testing.T) {
	w, d := newWorld(t, 20), powerloss.New(t)
	a := share(t, w, d, 2, "a")[0]
	fresh(t, a.r)
	disputed := func(name string, want route.Dispute) {
		t.Helper()
		until(t, func() bool { return a.r.Freshness.Horizon().Disputed == want }) // within the time between two reads
		if got := a.f.Status()[0].PeerError; (got != "") != (want != "") {
			t.Errorf("%s: the status says %q", name, got)
		}
	}
	disputed("alone", route.DisputePeers)
	b := share(t, w, d, 2, "b")[0]
	disputed("two", "")
	await(t, a, b)
	dir := filepath.Join(d.Root(), "shared", items, "b")
	mark := filepath.Join(dir, "complete")
	must(t, os.Rename(mark, mark+"-"))
	if got := a.r.Freshness.Horizon().Disputed; got != route.DisputePeers {
		t.Errorf("a journal lacks writes: %q", got)
	}
	must(t, os.Rename(mark+"-", mark))
	segments, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	must(t, err)
	f, err := os.OpenFile(slices.Max(segments), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("\xF7JR\xFD")
	must(t, errors.Join(err, f.Close()))
	if got := a.r.Freshness.Horizon().Disputed; got != route.DisputePeers {
		t.Errorf("a journal cannot be read: %q", got)
	}
	must(t, b.f.Close(closing(t)))
	disputed("one has ended", route.DisputePeers)
	passes := a.f.Status()[0].Reconciles
	b = reopen(t, w, d, 2, b.r)
	defer func() { must(t, b.f.Close(closing(t))) }()
	disputed("it has begun again", "")
	await(t, a, b)
	if got := a.f.Status()[0].Reconciles; got != passes {
		t.Errorf("%d comparisons because a sidecar was started again", got-passes)
	}
	if _, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir(), Shared: filepath.Join(d.Root(), "shared"), Replica: "b", Replicas: 2}, []follow.Route{{Route: w.sharing(t, "b")}}); err == nil {
		t.Error("two sidecars have one name")
	}
}

// sharing returns a route that does not declare its writes.
func (w *world) sharing(t *testing.T, name string) *route.Route {
	t.Helper()
	r := w.route(t, "")
	r.Name, r.Companion = name, ""
	return r
}

// TestSidecarEndsWithWrites: a sidecar ends with a write in flight, which the database carries out.
// The others compare all rows before they certify again.
func TestSidecarEndsWithWrites(t *testing.T) {
	w, d := newWorld(t, 20), powerloss.New(t)
	all := share(t, w, d, 2, "a", "b")
	a, b := all[0], all[1]
	await(t, a, b)
	a.f.Begin(t.Context(), upsert(100))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, a.f.Close(ended)) // as after a kill, the journal has no outcome of the write
	w.put(t, 100, 1, 1)
	until(t, func() bool { return b.f.Status()[0].PeerError != "" })
	fresh(t, b.r)
	if !b.shows(100) {
		t.Error("the write of the sidecar that ended is not followed")
	}
	a = reopen(t, w, d, 2, a.r)
	defer func() { must(t, a.f.Close(closing(t))) }()
	await(t, b, a)
	if !a.shows(100) || !b.shows(100) {
		t.Error("a sidecar certifies, and its table lacks the row")
	}
	agree(t, b.r, 21)
}

// TestSharedJournalFails: a write that the journal does not accept is forwarded if the other
// sidecars can see that, and refused otherwise. They certify again once they have compared all
// rows.
func TestSharedJournalFails(t *testing.T) {
	w, d := newWorld(t, 20), powerloss.New(t)
	all := share(t, w, d, 2, "a", "b")
	a, b := all[0], all[1]
	await(t, a, b)
	undeclared := reopen(t, w, d, 2, w.sharing(t, "c"))
	defer func() { must(t, undeclared.f.Close(closing(t))) }()
	var mu sync.Mutex
	fails := []string{"write 0"}
	d.Fail(func(call string) error {
		mu.Lock()
		defer mu.Unlock()
		if slices.ContainsFunc(fails, func(f string) bool { return strings.HasPrefix(call, f) }) {
			return errors.New("the disk is broken")
		}
		return nil
	})
	set := func(calls ...string) {
		mu.Lock()
		defer mu.Unlock()
		fails = calls
	}
	passes := b.f.Status()[0].Reconciles
	end := a.f.Begin(t.Context(), upsert(100))
	if a.f.Blocked(items) || b.certifies() {
		t.Errorf("blocked %t, b certifies %t", a.f.Blocked(items), b.certifies())
	}
	w.put(t, 100, 1, 1)
	end(true, nil)
	set()
	await(t, a, b)
	if !b.shows(100) || b.f.Status()[0].Reconciles == passes {
		t.Error("b certifies without a comparison")
	}
	set("write 0", "remove complete")
	end = a.f.Begin(t.Context(), upsert(101))
	if !a.f.Blocked(items) {
		t.Error("a write may be forwarded, and the others do not know")
	}
	end(false, nil)
	doubtEnds := a.f.Doubt(items)
	if !a.f.Blocked(items) {
		t.Error("a doubtful write may be forwarded, and the others do not know")
	}
	doubtEnds(nil)
	undeclared.f.Doubt(items)(nil)
	if undeclared.f.Blocked(items) {
		t.Error("a write is refused, though no route certifies answers")
	}
	set()
	until(t, func() bool { return !a.f.Blocked(items) })
	await(t, a, b)
}

// TestExactThroughSidecars writes and searches through two sidecars in front of one Qdrant, in
// turns and concurrently. Every answer that is called exact matches a state of the collection
// during the search, and without writes nearly all answers are exact. EXACT_FOR sets the duration.
func TestExactThroughSidecars(t *testing.T) {
	length := 8 * time.Second
	if text := os.Getenv("EXACT_FOR"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		must(t, err)
	}
	w := newWorldOn(t, openQdrant(t), 20)
	all := share(t, w, powerloss.New(t), 2, "a", "b")
	engine, err := search.New([]*route.Route{all[0].r, all[1].r}, search.Options{})
	must(t, err)
	await(t, all...)
	first := map[uint64]uint64{}
	for i := range uint64(20) {
		first[i] = i
	}
	history := &states{all: []map[uint64]uint64{first}}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var writer sync.WaitGroup
	var quiet sync.RWMutex
	var exact atomic.Int64
	writer.Go(func() {
		rng := rand.New(rand.NewPCG(7, 2))
		for n := 1; ctx.Err() == nil; n++ {
			quiet.RLock()
			w.writeThrough(ctx, t, rng, all[rng.IntN(2)].f, history)
			quiet.RUnlock()
			if n%20 != 0 {
				continue
			}
			before := exact.Load()
			pass(ctx, 100*time.Millisecond)
			for exact.Load() == before && ctx.Err() == nil { // until the tables are fresh again
				pass(ctx, 10*time.Millisecond)
			}
		}
	})
	defer writer.Wait()
	rng := rand.New(rand.NewPCG(5, 2))
	answers, exactInQuiet, inQuiet := 0, 0, 0
	searchOnce := func(r *route.Route) bool {
		q := rerank.Query{Vector: make([]float32, w.model.Similarity.Spec().QueryDim)}
		for i := range q.Vector {
			q.Vector[i] = float32(rng.NormFloat64())
		}
		from := history.at()
		a, err := engine.Search(t.Context(), search.Request{Route: r.Name, Query: q, K: 5})
		must(t, err)
		answers++
		if a.Certificate.Status != rerank.StatusExact {
			return false
		}
		exact.Add(1)
		if !slices.ContainsFunc(history.since(from), func(rows map[uint64]uint64) bool { return w.isAnswer(t, a.Hits, []map[uint64]uint64{rows}, q) }) {
			t.Errorf("%s: exact, and the answer of no state of the collection: %+v", r.Name, a.Certificate)
		}
		return true
	}
	for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
		if n%500 != 0 {
			searchOnce(all[n%2].r)
			continue
		}
		quiet.Lock()
		await(t, all...)
		for i := range 50 {
			inQuiet++
			if searchOnce(all[i%2].r) {
				exactInQuiet++
			}
		}
		quiet.Unlock()
	}
	others := int(exact.Load()) - exactInQuiet
	t.Logf("%d answers, %d of %d in quiet are exact, %d others; %d writes", answers, exactInQuiet, inQuiet, others, history.at())
	if exactInQuiet < inQuiet*9/10 || others == 0 {
		t.Errorf("%d of %d answers in quiet are exact, and %d others", exactInQuiet, inQuiet, others)
	}
}

// writeThrough writes one row through a sidecar.
func (w *world) writeThrough(ctx context.Context, t *testing.T, rng *rand.Rand, f *follow.Follower, history *states) {
	t.Helper()
	id, seed, remove := rng.Uint64N(25), rng.Uint64(), rng.IntN(4) == 0
	finish := history.begin(func(rows map[uint64]uint64) {
		if rows[id] = seed; remove {
			delete(rows, id)
		}
	})
	jw := upsert(id)
	var end func()
	switch n := rng.IntN(20); {
	case n == 0:
		jw.IDs, jw.All = nil, true
		end = begin(ctx, f, jw)
	case n < 5:
		ended := f.Doubt(items)
		end = func() { ended(&jw) }
	default:
		end = begin(ctx, f, jw)
	}
	if remove {
		w.remove(t, id)
	} else {
		w.put(t, id, seed, 1)
	}
	end()
	finish()
}

// BenchmarkSharedJournal measures the time that a search takes to learn of the writes of another
// sidecar, on the disk of the test's folder.
func BenchmarkSharedJournal(b *testing.B) {
	w := newWorld(b, 20)
	d := powerloss.New(b)
	a := share(b, w, d, 2, "a", "b")[0]
	until(b, a.certifies)
	for b.Loop() {
		a.r.Freshness.Horizon()
	}
}

// TestInterruptedSidecarStarts: a sidecar whose last process forwarded writes without a journal
// does not claim to have every write before it has compared all rows.
func TestInterruptedSidecarStarts(t *testing.T) {
	w, d := newWorld(t, 20), powerloss.New(t)
	all := share(t, w, d, 2, "a", "b")
	a, b := all[0], all[1]
	await(t, a, b)
	must(t, b.f.Close(closing(t)))
	mark := filepath.Join(d.Root(), "shared", items, "b", "complete")
	must(t, os.Remove(mark))
	w.db.down.Store(true)
	b = reopen(t, w, d, 2, b.r)
	defer func() { must(t, b.f.Close(closing(t))) }()
	until(t, func() bool { return b.f.Status()[0].Failures > 4 }) // it has had the time to resume
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) || a.certifies() {
		t.Errorf("the journal is marked: %v; a certifies: %t", err, a.certifies())
	}
	w.db.down.Store(false)
	await(t, a, b)
}
