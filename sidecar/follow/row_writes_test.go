package follow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// TestNotWaitedFor: a write that the client did not wait for is pending until a read that is sure
// to show it.
func TestNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10, func(o *follow.Options, _ *follow.Route) { o.Applied = false })
		before := p.link.fetches.Load()
		done := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(1)})
		done()
		<-time.After(900 * time.Millisecond)
		if n := p.link.fetches.Load() - before; n == 0 {
			t.Error("the row was not read early")
		}
		p.expect(t, "read before the database applied it", state{pending: 1})
		p.world.put(t, 1, 99, 1) // now it does
		p.expect(t, "applied", state{pending: 1, differing: 1})
		<-time.After(200 * time.Millisecond)
		p.expect(t, "read again", state{fresh: true})
		p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(2), Waited: true}, func() { p.world.put(t, 2, 98, 2) })
		<-time.After(100 * time.Millisecond)
		p.expect(t, "a write that was waited for", state{fresh: true})

		// A write whose call was cut may be applied afterwards.
		cut := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(3), Waited: true})
		cut()
		<-time.After(100 * time.Millisecond)
		p.world.put(t, 3, 97, 3)
		<-time.After(2 * time.Second)
		p.expect(t, "applied late", state{fresh: true})

		// The next process does not know whether it was answered.
		p.link.down.Store(true)
		lost := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(4), Waited: true})
		p = p.kill(t, powerloss.None, false, func(o *follow.Options, _ *follow.Route) { o.Applied = false })
		<-time.After(900 * time.Millisecond)
		p.expect(t, "read once in the next process", state{pending: 1, stale: true})
		p.world.put(t, 4, 96, 4)
		<-time.After(200 * time.Millisecond)
		p.expect(t, "read twice in the next process", state{stale: true})
		_ = lost
	})
}

// TestPayloadOnly: the companion's payload follows a write that leaves the vector unchanged.
func TestPayloadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		for n := range 3 {
			done := p.begin(t, journal.Write{Kind: journal.Payload, IDs: ids(1)})
			p.world.put(t, 1, 1, 100+n)
			p.expect(t, "on its way", state{pending: 1, differing: 1})
			done()
			<-time.After(time.Duration(1+n) * 100 * time.Millisecond)
			p.expect(t, "followed", state{fresh: true})
			got, err := p.world.db.Fetch(t.Context(), adapters.FetchRequest{Collection: companion, IDs: ids(1), Payload: true})
			must(t, err)
			<-time.After(3 * time.Second)
			if writes := p.link.writes.Load(); writes != int64(n+1) {
				t.Errorf("%d writes of the companion for %d of the collection", writes, n+1)
			}
			if want := fmt.Sprintf(`{"n":%d}`, 100+n); len(got.Payloads) != 1 || !sameJSON(t, got.Payloads[0], want) {
				t.Errorf("%s, want %s", got.Payloads, want)
			}
		}
	})
}

func sameJSON(t *testing.T, a json.RawMessage, b string) bool {
	t.Helper()
	var x, y any
	must(t, errors.Join(json.Unmarshal(a, &x), json.Unmarshal([]byte(b), &y)))
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// TestRowAgain: rows are written again before they are followed, or at once, or are deleted in
// between.
func TestRowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		p.link.down.Store(true)
		p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(40, 41)}, func() {
			p.world.put(t, 40, 40, 40)
			p.world.put(t, 41, 41, 41)
		})
		p.write(t, journal.Write{Kind: journal.Delete, IDs: ids(40)}, func() { p.world.remove(t, 40) })
		p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(1, 1)}, func() {
			p.world.put(t, 1, 70, 1)
			p.world.put(t, 1, 71, 1)
		})
		slow := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(1, 2)})
		nothing := p.begin(t, journal.Write{Kind: journal.Upsert})
		p.expect(t, "nothing can be read", state{pending: 5, differing: 2})
		nothing()
		p.expect(t, "a write of no rows is followed at once", state{pending: 4, differing: 2})
		p.link.down.Store(false)
		<-time.After(time.Minute)
		p.expect(t, "all but one are followed", state{pending: 1})
		p.world.put(t, 1, 72, 1)
		p.world.put(t, 2, 73, 2)
		p.expect(t, "its rows are written", state{pending: 1, differing: 2})
		slow()
		<-time.After(time.Minute)
		p.expect(t, "followed", state{fresh: true})
		for n := range 5 { // within the delay of a row's last read
			done := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(5)})
			if n%2 == 0 {
				p.world.remove(t, 5)
			} else {
				p.world.put(t, 5, 80+uint64(n), 5)
			}
			done()
			<-time.After(100 * time.Millisecond)
			p.expect(t, "written in turns", state{fresh: true})
		}
	})
}

// TestSomeRowsFail: rows that cannot be followed keep their write pending, and no other.
func TestSomeRowsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 20)
		bad := rerank.UintID(7)
		p.link.refused.Store(&bad)
		batch := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(5, 6, 7, 8, 9)})
		other := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(10)})
		for id := range uint64(6) {
			p.world.put(t, 5+id, 90+id, 5)
		}
		p.expect(t, "on their way", state{pending: 2, differing: 6})
		batch()
		other()
		<-time.After(time.Second)
		p.expect(t, "one row is refused", state{pending: 1, differing: 1})
		if s := p.f.Status()[0]; s.Failures == 0 {
			t.Errorf("%+v", s)
		}
		p = p.end(t, false, false)
		p.expect(t, "in the next process", state{pending: 1, stale: true, differing: 1})
		<-time.After(time.Minute)
		p.expect(t, "followed there", state{stale: true})
		p.reconcile(t)
		p.expect(t, "compared", state{fresh: true})

		p.link.refused.Store(&bad)
		p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(7)}, func() { p.world.put(t, 7, 17, 7) })
		<-time.After(time.Second)
		p.expect(t, "refused again", state{pending: 1, differing: 1})
		p.link.refused.Store(nil)
		<-time.After(10 * time.Second)
		p.expect(t, "tried again by the same process", state{fresh: true})
	})
}

// TestNotFound: if the database does not find a collection that no write dropped, derived data
// stays as it is.
func TestNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		dropped := p.begin(t, journal.Write{Kind: journal.Collection})
		dropped()
		p.reconcile(t)
		p.expect(t, "a write to the whole collection did not drop it", state{fresh: true})
		p.link.lost.Store(true)
		done := p.begin(t, journal.Write{Kind: journal.Upsert, IDs: ids(1, 2)})
		done()
		p.world.put(t, 5, 95, 5) // past the proxy
		<-time.After(time.Second)
		p.expect(t, "it is not found", state{pending: 1, differing: 1})
		p.link.lost.Store(false)
		<-time.After(time.Minute)
		p.expect(t, "found again", state{fresh: true, differing: 1})
		p.link.lost.Store(true)
		compared := make(chan struct{})
		go func() { p.reconcile(t); close(compared) }()
		<-time.After(time.Second)
		p.expect(t, "not found by a comparison", state{fresh: true, differing: 1})
		p.link.lost.Store(false)
		<-compared
		p.expect(t, "found again by the comparison", state{fresh: true})
	})
}

// TestCompanionBuiltAnew: a companion that is rebuilt with other fields is followed with these
// fields.
func TestCompanionBuiltAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		must(t, p.world.db.Drop(t.Context(), companion))
		_, err := index.BuildCompanion(t.Context(), index.CompanionJob{
			Source: p.world.source(), Model: p.world.model, Writer: p.world.db, Name: companion,
			Strategies: []rerank.Strategy{rerank.PerEmbedding}, Features: true,
		})
		must(t, err)
		p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(1)}, func() { p.world.put(t, 1, 91, 1) })
		<-time.After(time.Minute)
		p.expect(t, "built anew", state{fresh: true})
	})
}

// TestOtherCollection: a collection that was created again, or that an alias names now, is not
// fresh until all rows were compared.
func TestOtherCollection(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := reconciled(t, 10)
				whole := p.begin(t, journal.Write{Kind: journal.Collection})
				p.expect(t, "it begins", state{pending: 1})
				must(t, p.world.db.Drop(t.Context(), items))
				must(t, p.world.db.Create(t.Context(), p.world.schema))
				p.world.put(t, 100, 5, 5)
				p.world.put(t, 1, 1, 1) // as it was
				whole()
				p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(101)}, func() { p.world.put(t, 101, 6, 6) })
				<-time.After(time.Minute)
				p.expect(t, "nothing was compared", state{pending: 1, differing: 10})
				if restart {
					p = p.end(t, true, false)
					p.expect(t, "in the next process", state{pending: 1, differing: 10})
					p = p.kill(t, powerloss.All, false)
					p.expect(t, "after a loss of power", state{pending: 1, stale: true, differing: 10})
				}
				if d := p.reconcile(t); d.Missing != 1 || d.Surplus != 9 {
					t.Errorf("%+v", d)
				}
				p.expect(t, "compared", state{fresh: true})
			})
		})
	}
}

// TestWholeWrites: writes that name no rows are pending until all rows were compared.
func TestWholeWrites(t *testing.T) {
	for name, c := range map[string]struct {
		write  journal.Write
		do     func(t *testing.T, w *world)
		differ int64
	}{
		"deletes by a filter":  {journal.Write{Kind: journal.Delete, Filter: "{}"}, func(t *testing.T, w *world) { w.remove(t, 1, 2) }, 2},
		"payloads by a filter": {journal.Write{Kind: journal.Payload, Filter: "{}"}, func(t *testing.T, w *world) { w.put(t, 1, 1, 7) }, 1},
		"all rows":             {journal.Write{Kind: journal.Upsert, All: true}, func(t *testing.T, w *world) { w.put(t, 70, 1, 7) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := reconciled(t, 10)
				done := p.begin(t, c.write)
				c.do(t, p.world)
				done()
				<-time.After(time.Hour)
				p.expect(t, "nothing was compared", state{pending: 1, differing: c.differ})
				p = p.kill(t, powerloss.None, false)
				p.expect(t, "in the next process", state{pending: 1, stale: true, differing: c.differ})
				p.reconcile(t)
				p.expect(t, "compared", state{fresh: true})
				<-time.After(time.Hour)
				p = p.end(t, true, false)
				p.expect(t, "it is not in the journal any more", state{fresh: true})
			})
		})
	}
}

// TestWholeWritesByThemselves: if comparisons are not limited to requests, a write that names no
// rows starts one, of all rows that the write may have changed.
func TestWholeWritesByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, 10, func(o *follow.Options, _ *follow.Route) { o.OnRequest = false })
		<-time.After(time.Minute)
		p.expect(t, "what nobody knew was compared at the start", state{fresh: true})
		p.comparisons(t, "at the start", 1)
		for n, w := range []journal.Write{{Kind: journal.Payload, Filter: "{}"}, {Kind: journal.Upsert, All: true}, {Kind: journal.Vectors, Filter: "{}"}} {
			done := p.begin(t, w)
			p.world.put(t, 1, uint64(20+n), n)
			p.expect(t, "on its way", state{pending: 1, differing: 1})
			done()
			<-time.After(time.Minute)
			p.expect(t, string(w.Kind), state{fresh: true})
			p.comparisons(t, string(w.Kind), int64(n+2))
		}
		p.write(t, journal.Write{Kind: journal.Delete, Filter: "{}"}, func() { p.world.remove(t, 2) })
		<-time.After(time.Minute)
		p.expect(t, "deletes", state{fresh: true})
		p.comparisons(t, "of deletes no row of the collection is read", 4)
	})
}

// TestDrift: a comparison finds unannounced writes. Until the found rows are shown, nothing is
// fresh.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		p.world.put(t, 2, 92, 2)
		p.expect(t, "nobody knows", state{fresh: true, differing: 1})
		ended := p.comparisonWaits(t)
		p.expect(t, "found, and one row is refused", state{differing: 1})
		p.link.refused.Store(nil)
		if d := <-ended; d.Changed != 2 {
			t.Errorf("%+v", d)
		}
		p.expect(t, "repaired", state{fresh: true})

		ended = p.comparisonWaits(t)
		p.expect(t, "found again", state{differing: 1})
		p = p.end(t, false, false)
		<-ended
		p.expect(t, "what was found is known to nobody after the end", state{stale: true, differing: 1})
		p.reconcile(t)
		p.expect(t, "repaired by the next process", state{fresh: true})
	})
}

// TestMissedMeanwhile: a comparison does not cover writes that were missed after it began.
func TestMissedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		compared := p.comparisonWaits(t)
		p.expect(t, "the comparison waits for a row", state{differing: 1})
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		begin(canceled, p.f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(2)})()
		p.write(t, journal.Write{Kind: journal.Delete, Filter: "{}"}, func() { p.world.remove(t, 3) })
		p.link.refused.Store(nil)
		<-compared
		<-time.After(time.Second)
		p.expect(t, "it ended", state{pending: 1, stale: true, differing: 1})
		p.reconcile(t)
		p.expect(t, "compared again", state{fresh: true})
	})
}

// TestReplacedStale: a route that replaces another is not fresh until all rows were compared, even
// if a comparison for the other route is running.
func TestReplacedStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		p.write(t, journal.Write{Kind: journal.Delete, Filter: "{}"}, func() { p.world.remove(t, 3) })
		p.expect(t, "before", state{pending: 1, differing: 1})
		next := p.world.route(t, "")
		must(t, p.f.Replace(next))
		synctest.Wait()
		if s := p.f.Status()[0]; !s.Stale || s.Pending != 1 || next.Freshness.Fresh() || next.Live.Pending() != 1 {
			t.Errorf("%+v", s)
		}
		p.reconcile(t)
		if s := p.f.Status()[0]; s.Stale || s.Pending != 0 || !next.Freshness.Fresh() || next.Live.Pending() != 0 {
			t.Errorf("compared: %+v", s)
		}
	})
}

// maxRows is the limit on waiting rows.
const maxRows = 1 << 18

// TestVeryLargeWrite: a write of more rows than may wait is left to a comparison, together with all
// waiting rows, and nothing is counted twice.
func TestVeryLargeWrite(t *testing.T) {
	for _, kind := range []journal.Kind{journal.Upsert, journal.Delete} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(t, 10, func(o *follow.Options, _ *follow.Route) { o.OnRequest = false })
				<-time.After(time.Minute)
				p.expect(t, "compared at the start", state{fresh: true})
				found := p.comparisonWaits(t)
				p.expect(t, "a comparison has found a row, which is refused", state{differing: 1})
				p.link.down.Store(true)
				p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(2, 3)}, func() {
					p.world.put(t, 2, 22, 2)
					p.world.put(t, 3, 23, 3)
				})
				all := make([]uint64, maxRows+1)
				for i := range all {
					all[i] = 4 + uint64(i)
				}
				large := p.begin(t, journal.Write{Kind: kind, IDs: ids(all...)})
				p.world.remove(t, 4)
				if kind == journal.Upsert {
					p.world.put(t, 5, 25, 5)
				}
				large()
				differing := int64(4)
				if kind == journal.Upsert {
					differing++
				}
				p.expect(t, "nothing can be read", state{pending: 2, differing: differing})
				p.link.refused.Store(nil)
				p.link.down.Store(false)
				<-time.After(time.Minute)
				<-found
				p.expect(t, "compared", state{fresh: true})
			})
		})
	}
}

// TestReplacedDuringComparison: a requested comparison ends when it has compared the route's
// replacement, and not the former route.
func TestReplacedDuringComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		whole := p.begin(t, journal.Write{Kind: journal.Delete, Filter: "{}"})
		whole()
		compared := p.comparisonWaits(t)
		p.expect(t, "the comparison waits for a row", state{pending: 1, differing: 1})
		next := p.world.route(t, "")
		must(t, p.f.Replace(next))
		p.route = next
		p.link.refused.Store(nil)
		<-compared
		p.expect(t, "the new one was compared", state{fresh: true})
	})
}
