package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// link is the connection of a process to the database.
type link struct {
	writable
	down    atomic.Bool
	lost    atomic.Bool // the database says that the collection does not exist
	fetches atomic.Int64
	writes  atomic.Int64 // writes to the companion
	// refused is a row whose vectors the companion refuses. The zero ID means that it refuses none.
	refused atomic.Pointer[rerank.ID]
}

func (l *link) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if l.down.Load() {
		return adapters.Rows{}, fmt.Errorf("%w: it is down", adapters.ErrUnavailable)
	}
	if r.Collection == items {
		if l.lost.Load() {
			return adapters.Rows{}, adapters.ErrNotFound
		}
		l.fetches.Add(1)
	}
	return l.writable.Fetch(ctx, r)
}

func (l *link) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	if l.down.Load() {
		return fmt.Errorf("%w: it is down", adapters.ErrUnavailable)
	}
	if l.lost.Load() && r.Collection == items {
		return adapters.ErrNotFound
	}
	return l.writable.Scan(ctx, r, yield)
}

func (l *link) Write(ctx context.Context, collection string, s adapters.Schema, r adapters.Rows) error {
	if id := l.refused.Load(); id != nil && collection == companion && slices.Contains(r.IDs, *id) {
		return errors.New("the row is refused")
	}
	if collection == companion {
		l.writes.Add(1)
	}
	return l.writable.Write(ctx, collection, s, r)
}

// process is the part of a sidecar that follows one collection. It compares all rows only on
// request.
type process struct {
	world *world
	disk  *powerloss.Disk // of the table and of the follower's folder
	link  *link
	route *route.Route
	f     *follow.Follower
}

const tableFile = "items.table"

// newProcess creates a collection with some rows, a table and a companion, and begins to follow it.
func newProcess(t *testing.T, rows int, change ...func(*follow.Options, *follow.Route)) *process {
	t.Helper()
	w := newWorldOn(t, embedded.New(), rows)
	d := powerloss.New(t)
	_, err := index.BuildTable(t.Context(), index.TableJob{Source: w.source(), Model: w.model, Path: filepath.Join(d.Root(), tableFile)})
	must(t, err)
	return startProcess(t, w, d, false, change...)
}

// startProcess starts a follower on the content of a disk.
func startProcess(t *testing.T, w *world, d *powerloss.Disk, down bool, change ...func(*follow.Options, *follow.Route)) *process {
	t.Helper()
	p := &process{world: w, disk: d, link: &link{writable: w.db}}
	p.link.down.Store(down)
	live, err := table.OpenLive(filepath.Join(d.Root(), tableFile), table.Expect{}, table.LiveOptions{Disk: d, CompactShare: -1})
	must(t, err)
	p.route = &route.Route{
		Policy: route.Policy{Name: "r", Collection: items, Vector: "vec", StoreName: "main", Companion: companion, Placement: route.PlacementTable},
		Parts:  route.Parts{Store: p.link, Model: w.model, Live: live},
	}
	o := follow.Options{Store: p.link, Dir: filepath.Join(d.Root(), "state"), Disk: d, Applied: true, OnRequest: true}
	r := follow.Route{Route: p.route}
	for _, c := range change {
		c(&o, &r)
	}
	p.f, err = follow.New(o, []follow.Route{r})
	must(t, err)
	t.Cleanup(func() {
		p.close(t, false)
		must(t, live.Close())
	})
	synctest.Wait()
	return p
}

// close ends the follower. Unless drained is set, the follower gets no time to drain.
func (p *process) close(t *testing.T, drained bool) {
	t.Helper()
	if p.f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if !drained {
		cancel()
	}
	must(t, p.f.Close(ctx))
	p.f = nil
}

// end ends the process cleanly, and starts the next one.
func (p *process) end(t *testing.T, drained, down bool, change ...func(*follow.Options, *follow.Route)) *process {
	t.Helper()
	p.close(t, drained)
	must(t, p.route.Live.Close())
	return startProcess(t, p.world, p.disk, down, change...)
}

// kill ends the process so that it can write nothing more, and starts the next one on the content
// of its disk.
func (p *process) kill(t *testing.T, loss powerloss.Loss, down bool, change ...func(*follow.Options, *follow.Route)) *process {
	t.Helper()
	p.link.down.Store(true)
	left := p.disk.Lose(t, rand.New(rand.NewPCG(uint64(loss), 1)), loss)
	return startProcess(t, p.world, left, down, change...)
}

// reconcile compares all rows.
func (p *process) reconcile(t *testing.T) follow.Drift {
	t.Helper()
	found, err := p.f.Reconcile(t.Context(), items)
	must(t, err)
	return found["r"]
}

// comparisonWaits begins a comparison of all rows that finds row 1 to differ. The comparison waits
// for this row, which the companion refuses until p.link.refused is nil.
func (p *process) comparisonWaits(t *testing.T) (ended <-chan follow.Drift) {
	t.Helper()
	bad := rerank.UintID(1)
	p.link.refused.Store(&bad)
	p.world.put(t, 1, uint64(1000+time.Now().Unix()), 1) // a vector that the row never had
	found := make(chan follow.Drift, 1)
	go func(f *follow.Follower) {
		all, _ := f.Reconcile(t.Context(), items) // fails if the process ends meanwhile
		found <- all["r"]
	}(p.f)
	<-time.After(time.Second)
	return found
}

func (p *process) begin(t *testing.T, w journal.Write) (done func()) {
	t.Helper()
	w.Collection = items
	return begin(t.Context(), p.f, w)
}

// write makes a write through the proxy: the follower sees it before and after do.
func (p *process) write(t *testing.T, w journal.Write, do func()) {
	t.Helper()
	done := p.begin(t, w)
	do()
	done()
}

// state is what a process reports about its route.
type state struct {
	pending int
	stale   bool
	fresh   bool
	// differing counts the rows for which the table or the companion differs from the collection.
	differing int64
}

// expect fails the test unless the process is in the given state.
func (p *process) expect(t *testing.T, when string, want state) {
	t.Helper()
	synctest.Wait()
	s := p.f.Status()[0]
	d, err := follow.Compare(t.Context(), &route.Route{
		Policy: route.Policy{Name: "r", Collection: items, Vector: "vec", Companion: companion},
		Parts:  route.Parts{Store: p.world.db, Model: p.route.Model, Live: p.route.Live},
	}, nil)
	must(t, err)
	have := state{s.Pending, s.Stale, p.route.Freshness.Fresh(), d.Differing()}
	if have != want || p.route.Live.Pending() != want.pending {
		t.Fatalf("%s: %+v with %d pending in the table, want %+v", when, have, p.route.Live.Pending(), want)
	}
	if (s.Age > 0) == (s.Pending == 0 && !s.Stale) && s.Age != 0 {
		t.Errorf("%s: an age of %v with %d pending, stale %t", when, s.Age, s.Pending, s.Stale)
	}
}

// comparisons wants the given number of passes over rows of the collection.
func (p *process) comparisons(t *testing.T, when string, want int64) {
	t.Helper()
	if s := p.f.Status()[0]; s.Reconciles != want || want == 0 && s.Rows != 0 {
		t.Errorf("%s: %d comparisons that read %d rows, want %d", when, s.Reconciles, s.Rows, want)
	}
}

// reconciled returns a process that has compared all rows, so that its derived data is fresh.
func reconciled(t *testing.T, rows int, change ...func(*follow.Options, *follow.Route)) *process {
	t.Helper()
	p := newProcess(t, rows, change...)
	p.expect(t, "nothing is known of the time before", state{stale: true})
	p.comparisons(t, "nobody asked", 0)
	if d := p.reconcile(t); d.Differing() != 0 {
		t.Fatalf("%+v", d)
	}
	p.expect(t, "compared", state{fresh: true})
	return p
}
