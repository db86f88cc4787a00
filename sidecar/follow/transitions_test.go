package follow_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// someWrite is a write of rows by id. do carries it out, and changes each of its rows.
type someWrite struct {
	write journal.Write
	do    func()
}

// someWrites are writes of every kind, of sixWritten rows together.
func someWrites(t *testing.T, w *world) []someWrite {
	return []someWrite{
		{journal.Write{Kind: journal.Upsert, IDs: ids(50)}, func() { w.put(t, 50, 50, 50) }},
		{journal.Write{Kind: journal.Upsert, IDs: ids(1, 2)}, func() { w.put(t, 1, 51, 1); w.put(t, 2, 52, 2) }},
		{journal.Write{Kind: journal.Delete, IDs: ids(3)}, func() { w.remove(t, 3) }},
		{journal.Write{Kind: journal.Payload, IDs: ids(4)}, func() { w.put(t, 4, 4, 444) }},
		{journal.Write{Kind: journal.Vectors, IDs: ids(5)}, func() { w.put(t, 5, 55, 5) }},
	}
}

const sixWritten = 6

// TestKilledMidway kills a process, or its machine, with writes that the database has applied and
// that are not followed yet. The next process knows them from the journal alone.
func TestKilledMidway(t *testing.T) {
	for _, answered := range []bool{false, true} {
		for _, loss := range powerloss.Losses() {
			t.Run(fmt.Sprintf("answered %t, loss %d", answered, loss), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { killMidway(t, answered, loss) })
			})
		}
	}
}

func killMidway(t *testing.T, answered bool, loss powerloss.Loss) {
	t.Helper()
	p := reconciled(t, 20)
	p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(60)}, func() { p.world.put(t, 60, 60, 60) })
	synctest.Wait()
	<-time.After(time.Minute)
	p.expect(t, "one write was followed", state{fresh: true})
	p.link.down.Store(true)
	writes := someWrites(t, p.world)
	differing := int64(0)
	for i, w := range writes {
		done := p.begin(t, w.write)
		p.expect(t, "a write begins", state{pending: i + 1, differing: differing})
		w.do()
		differing += int64(len(w.write.IDs))
		if answered {
			done()
		}
	}
	n := len(writes)
	p.expect(t, "nothing can be read", state{pending: n, differing: sixWritten})
	p = p.kill(t, loss, true)
	p.expect(t, "started again, and nothing can be read", state{pending: n, stale: true, differing: sixWritten})
	p.link.down.Store(false)
	<-time.After(time.Minute)
	p.expect(t, "followed by the journal", state{stale: true})
	p.comparisons(t, "nobody asked", 0)
	if d := p.reconcile(t); d.Differing() != 0 {
		t.Errorf("the journal left %+v", d)
	}
	p.expect(t, "compared", state{fresh: true})
	p = p.kill(t, loss, false)
	<-time.After(time.Minute) // a loss of power may bring back writes that were followed
	p.expect(t, "started again with nothing to follow", state{stale: true})
}

// TestEnded: a process that ends cleanly without time to follow some writes leaves them to the next
// one. The collection is stale then, since rows that wait for their last read are in no journal.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 20)
		p.link.down.Store(true)
		writes := someWrites(t, p.world)
		for _, w := range writes {
			done := p.begin(t, w.write)
			w.do()
			done()
		}
		p.expect(t, "nothing can be read", state{pending: len(writes), differing: sixWritten})
		p = p.end(t, false, true)
		p.expect(t, "in the next process", state{pending: len(writes), stale: true, differing: sixWritten})
		p.link.down.Store(false)
		<-time.After(time.Minute)
		p.expect(t, "followed", state{stale: true})
		p.comparisons(t, "nobody asked", 0)
		p.reconcile(t)
		p.expect(t, "compared", state{fresh: true})
		p = p.end(t, true, false)
		p.expect(t, "in a process with nothing to do", state{fresh: true})
		p.comparisons(t, "nobody asked", 0)
	})
}

// TestDrained: a process that has time to end leaves nothing to do.
func TestDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 20)
		for _, w := range someWrites(t, p.world) {
			done := p.begin(t, w.write)
			w.do()
			done()
		}
		p.write(t, journal.Write{Kind: journal.Delete, Filter: "{}"}, func() { p.world.remove(t, 6) }) // a drain does not wait for writes that need a comparison
		p = p.end(t, true, true)
		p.expect(t, "in the next process", state{pending: 1, differing: 1})
		p.link.down.Store(false)
		p.reconcile(t)
		p.expect(t, "compared", state{fresh: true})
	})
}

// TestEndedStale: neither a clean end nor a kill forgets missed writes.
func TestEndedStale(t *testing.T) {
	impatient := func(_ *follow.Options, r *follow.Route) { r.WriteBudget = time.Nanosecond }
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := reconciled(t, 10, impatient)
				p.link.down.Store(true)
				canceled, cancel := context.WithCancel(t.Context())
				cancel()
				done := begin(canceled, p.f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(1)})
				p.world.remove(t, 1)
				done()
				p.expect(t, "the journal did not take the write", state{pending: 1, stale: true, differing: 1})
				if s := p.f.Status()[0]; s.Unjournaled != 1 {
					t.Errorf("%+v", s)
				}
				if killed {
					p = p.kill(t, powerloss.None, false)
				} else {
					p = p.end(t, false, false)
				}
				<-time.After(time.Minute)
				p.expect(t, "the next process does not know the write", state{stale: true, differing: 1})
				p = p.end(t, true, false)
				p.expect(t, "nor does the one after it", state{stale: true, differing: 1})
				p.reconcile(t)
				p.expect(t, "compared", state{fresh: true})
				p = p.end(t, true, false)
				p.expect(t, "nothing is left", state{fresh: true})
			})
		})
	}
}

// TestUnjournaledInFlight: a write that the journal did not accept leaves the collection stale,
// even if it is followed before the end.
func TestUnjournaledInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		done := begin(canceled, p.f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(1)})
		p.reconcile(t) // while it is in flight
		p.expect(t, "compared in between", state{pending: 1})
		p.close(t, false)
		p.world.remove(t, 1)
		done()
		must(t, p.route.Live.Close())
		p = startProcess(t, p.world, p.disk, false)
		p.expect(t, "in the next process", state{stale: true, differing: 1})
	})
}
