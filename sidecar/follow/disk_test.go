package follow_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/internal/smalldisk"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// TestFullDisk: while the disk of the state folder is full, writes are followed, and the collection
// is stale, since a next process would not know of them. That lasts until all rows were compared,
// in the next process too.
func TestFullDisk(t *testing.T) {
	for _, restart := range []string{"", "on the full disk", "with room again"} {
		t.Run("restart "+restart, func(t *testing.T) {
			disk, err := smalldisk.New(t, 1<<20)
			if err != nil {
				t.Skipf("this machine makes no small file system: %v", err)
			}
			synctest.Test(t, func(t *testing.T) { fillDisk(t, disk, restart) })
		})
	}
}

func fillDisk(t *testing.T, disk, restart string) {
	t.Helper()
	onDisk := func(o *follow.Options, _ *follow.Route) { o.Dir, o.Disk = filepath.Join(disk, "state"), nil }
	p := reconciled(t, 10, onDisk)
	filler, names := smalldisk.Fill(t, disk), smalldisk.FillNames(t, disk)
	failed := func(when string, want bool) {
		t.Helper()
		if s := p.f.Status()[0]; (s.JournalError != "") != want {
			t.Errorf("%s: the journal's error is %q", when, s.JournalError)
		}
	}
	failed("nothing was written", false)
	for n := range uint64(300) { // until the current file is full too
		p.write(t, journal.Write{Kind: journal.Upsert, IDs: ids(n % 10)}, func() { p.world.put(t, n%10, 30+n, 1) })
		synctest.Wait()
		if p.f.Status()[0].Stale {
			break
		}
	}
	<-time.After(100 * time.Millisecond)
	failed("the disk is full", true)
	p.expect(t, "the disk is full, and the rows are followed", state{stale: true})
	if s := p.f.Status()[0]; s.Unjournaled != 1 {
		t.Errorf("%+v", s)
	}
	makeRoom := func() {
		must(t, os.Remove(filler))
		must(t, os.RemoveAll(names))
		<-time.After(3 * time.Second) // the journal tries again each second
	}
	switch restart {
	case "":
		makeRoom()
		failed("there is room", false)
		p.expect(t, "there is room", state{stale: true})
	case "on the full disk":
		_ = p.f.Close(t.Context()) // it cannot record how it ended
		p.f = nil
		must(t, p.route.Live.Close())
		p = startProcess(t, p.world, p.disk, false, onDisk)
		failed("started on the full disk", true)
		p.expect(t, "started on the full disk", state{stale: true})
		makeRoom()
		failed("there is room", false)
		p.expect(t, "there is room", state{stale: true})
	case "with room again":
		makeRoom()
		p = p.end(t, false, false, onDisk)
		failed("started with room", false)
		p.expect(t, "started with room", state{stale: true})
	}
	p.reconcile(t)
	p.expect(t, "compared", state{fresh: true})
	p.write(t, journal.Write{Kind: journal.Delete, IDs: ids(3)}, func() { p.world.remove(t, 3) })
	<-time.After(time.Minute)
	p.expect(t, "a write that the journal took", state{fresh: true})
	p = p.end(t, true, false, onDisk)
	p.expect(t, "in the next process", state{fresh: true})
}

// TestFullDiskAtStart: a process that starts on a full disk and is killed leaves no clean record.
func TestFullDiskAtStart(t *testing.T) {
	disk, err := smalldisk.New(t, 1<<20)
	if err != nil {
		t.Skipf("this machine makes no small file system: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		onDisk := func(o *follow.Options, _ *follow.Route) { o.Dir, o.Disk = filepath.Join(disk, "state"), nil }
		p := reconciled(t, 10, onDisk)
		p.close(t, true)
		must(t, p.route.Live.Close())
		filler, names := smalldisk.Fill(t, disk), smalldisk.FillNames(t, disk)
		p = startProcess(t, p.world, p.disk, false, onDisk)
		p.expect(t, "started on the full disk", state{stale: true})
		if left, _ := filepath.Glob(filepath.Join(disk, "state", "*", "record.json")); len(left) > 0 {
			t.Errorf("%v is there, and says that nothing was missed", left)
		}
		must(t, os.Remove(filler))
		must(t, os.RemoveAll(names))
	})
}

// TestRecordCannotBeWritten: a process that cannot record its start removes the record of the
// process before, so that a kill or a loss of power is noticed.
func TestRecordCannotBeWritten(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		synctest.Test(t, func(t *testing.T) {
			p := reconciled(t, 10)
			p.close(t, true)
			must(t, p.route.Live.Close())
			p.disk.Fail(func(call string) error {
				if strings.HasPrefix(call, "create .record.json") {
					return syscall.ENOSPC
				}
				return nil
			})
			p = startProcess(t, p.world, p.disk, false)
			p.expect(t, "it cannot be written down", state{stale: true})
			p.world.remove(t, 1) // nobody sees it
			next := p.kill(t, loss, false)
			next.expect(t, "in the next process", state{stale: true, differing: 1})
			p.disk.Fail(nil)
		})
	}
}

// TestDamagedJournal: after a journal could not be read completely, nothing is fresh until all rows
// were compared, even if the last process ended cleanly.
func TestDamagedJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reconciled(t, 10)
		p.link.down.Store(true)
		p.write(t, journal.Write{Kind: journal.Delete, Filter: `{"damaged":"here"}`}, func() { p.world.remove(t, 3) })
		other := p.begin(t, journal.Write{Kind: journal.Delete, Filter: `{"damaged":"not"}`})
		other()
		p.close(t, true)
		must(t, p.route.Live.Close())
		left := p.disk.Lose(t, rand.New(rand.NewPCG(1, 1)), powerloss.None)
		segments, err := filepath.Glob(filepath.Join(left.Root(), "state", items, "journal", "*.journal"))
		must(t, err)
		damaged := 0
		for _, name := range segments {
			b, err := os.ReadFile(name)
			must(t, err)
			if at := bytes.Index(b, []byte("here")); at > 0 {
				b[at]++
				damaged++
			}
			must(t, os.WriteFile(name, b, 0o600))
		}
		if damaged != 1 {
			t.Fatalf("%d of %v were damaged", damaged, segments)
		}
		p = startProcess(t, p.world, left, false)
		p.expect(t, "in the next process", state{pending: 1, stale: true, differing: 1})
		p.reconcile(t)
		p.expect(t, "compared", state{fresh: true})
	})
}

// TestRecordPowerLoss loses power before every call to the disk, from the start of a process to a
// write that is followed. The next process compares all rows, or has the write, or there was none
// yet.
func TestRecordPowerLoss(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		synctest.Test(t, func(t *testing.T) {
			p := reconciled(t, 5)
			p.close(t, true)
			must(t, p.route.Live.Close())
			var mu sync.Mutex
			var lost []*powerloss.Disk
			rng := rand.New(rand.NewPCG(uint64(loss), 8))
			lose := func(string) {
				mu.Lock()
				defer mu.Unlock()
				lost = append(lost, p.disk.Lose(t, rng, loss))
			}
			p = startProcess(t, p.world, p.disk, false)
			p.expect(t, "started", state{fresh: true})
			done := p.begin(t, journal.Write{Kind: journal.Delete, IDs: ids(1)})
			p.world.remove(t, 1)
			lose("while it is on its way")
			p.disk.Before(lose)
			done()
			<-time.After(time.Minute)
			p.expect(t, "followed", state{fresh: true})
			p.close(t, true)
			p.disk.Before(nil)
			must(t, p.route.Live.Close())
			if len(lost) < 5 {
				t.Errorf("power was lost %d times", len(lost))
			}
			for i, d := range lost {
				next := startProcess(t, p.world, d, false)
				if i == 0 && (!next.f.Status()[0].Stale || next.f.Status()[0].Pending != 1) {
					t.Errorf("loss %d while a write was on its way: %+v", loss, next.f.Status()[0])
				}
				<-time.After(time.Minute)
				if s := next.f.Status()[0]; !s.Stale && s.Pending == 0 {
					next.expect(t, "it ended in order", state{fresh: true})
				} else {
					next.expect(t, "followed by the journal", state{stale: true})
				}
				next.close(t, false)
				must(t, next.route.Live.Close())
			}
		})
	}
}

// TestFrozenKilled: after a kill or a loss of power it is known that a write came after the table
// was built.
func TestFrozenKilled(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		synctest.Test(t, func(t *testing.T) {
			w, d := newWorld(t, 3), powerloss.New(t)
			r := w.fixed(t, time.Now().Add(-time.Hour))
			open := func(d *powerloss.Disk) *follow.Follower {
				f, err := follow.New(follow.Options{Store: w.db, Dir: d.Root(), Disk: d}, []follow.Route{{Route: r}})
				must(t, err)
				t.Cleanup(func() { must(t, f.Close(t.Context())) })
				return f
			}
			f := open(d)
			if s := f.Status()[0]; !r.Freshness.Fresh() || s.Stale {
				t.Errorf("before any write: %+v", s)
			}
			begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
			<-time.After(2 * time.Second) // it is saved once a second
			left := d.Lose(t, rand.New(rand.NewPCG(1, 1)), loss)
			f = open(left)
			if s := f.Status()[0]; r.Freshness.Fresh() || !s.Stale {
				t.Errorf("loss %d: in the next process: %+v", loss, s)
			}
		})
	}
}

// TestFrozenKilledAtOnce: the next process knows of a write that the database may have carried out,
// however soon after sending it the process was killed or lost power, even if the table was built
// between two writes of one second. A refused write is forgotten.
func TestFrozenKilledAtOnce(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		synctest.Test(t, func(t *testing.T) {
			w, d := newWorld(t, 3), powerloss.New(t)
			<-time.After(time.Until(time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)))
			open := func(d *powerloss.Disk, built time.Time) (*follow.Follower, *route.Route) {
				r := w.fixed(t, built)
				f, err := follow.New(follow.Options{Store: w.db, Dir: d.Root(), Disk: d}, []follow.Route{{Route: r}})
				must(t, err)
				t.Cleanup(func() { must(t, f.Close(t.Context())) })
				return f, r
			}
			kill := func(when string, d *powerloss.Disk, built time.Time, fresh bool) {
				t.Helper()
				left := d.Lose(t, rand.New(rand.NewPCG(1, uint64(loss))), loss)
				if _, r := open(left, built); r.Freshness.Fresh() != fresh {
					t.Errorf("loss %d, %s: fresh is %t in the next process", loss, when, !fresh)
				}
			}
			before := time.Now().Add(-time.Hour)
			f, _ := open(d, before)
			kill("nothing was written", d, before, true)
			refused := f.Begin(t.Context(), journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})
			kill("a write was sent", d, before, false)
			refused(false, nil)
			<-time.After(3 * time.Second)
			kill("it was refused", d, before, true)
			doubtful := f.Doubt(items)
			kill("a doubtful write was sent", d, before, false)
			doubtful(nil)
			<-time.After(3 * time.Second)
			kill("it was refused", d, before, true)

			write := journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)}
			begin(t.Context(), f, write)()
			<-time.After(200 * time.Millisecond)
			built := time.Now()
			<-time.After(300 * time.Millisecond)
			begin(t.Context(), f, write)()
			kill("two writes, and a table was built between them", d, built, false)
			slow := f.Begin(t.Context(), write)
			<-time.After(10 * time.Second)
			kill("a write takes long", d, time.Now(), false)
			slow(true, nil)
			<-time.After(3 * time.Second)
			kill("a table is built after the last write", d, time.Now(), true)
		})
	}
}

// TestFrozenFullDisk: if the time of a write cannot be saved, writes continue without delay, and
// saving is retried occasionally.
func TestFrozenFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t, 3), powerloss.New(t)
		r := w.fixed(t, time.Now().Add(-time.Hour))
		tries := 0
		d.Fail(func(call string) error {
			if strings.HasPrefix(call, "create .written.json") {
				tries++
			}
			return syscall.ENOSPC
		})
		f, err := follow.New(follow.Options{Store: w.db, Dir: d.Root(), Disk: d}, []follow.Route{{Route: r}})
		must(t, err)
		began := time.Now()
		for range 100 {
			begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
		}
		synctest.Wait()
		if tries != 1 || time.Since(began) > 0 {
			t.Errorf("100 writes took %v and %d tries", time.Since(began), tries)
		}
		d.Fail(nil)
		<-time.After(3 * time.Second)
		left := d.Lose(t, rand.New(rand.NewPCG(1, 1)), powerloss.None)
		must(t, f.Close(t.Context()))
		next := w.fixed(t, time.Now().Add(-time.Hour))
		f, err = follow.New(follow.Options{Store: w.db, Dir: left.Root(), Disk: left}, []follow.Route{{Route: next}})
		must(t, err)
		if next.Freshness.Fresh() {
			t.Error("with room again the writes were not saved")
		}
		must(t, f.Close(t.Context()))
	})
}

// TestFrozenWithinTheSecond: a table's time is cut to seconds, so a write within that second counts
// as later.
func TestFrozenWithinTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // the table's time is exact now
		r := w.fixed(t, time.Now())
		f, err := follow.New(follow.Options{Store: w.db}, []follow.Route{{Route: r}})
		must(t, err)
		t.Cleanup(func() { must(t, f.Close(t.Context())) })
		begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(1)})()
		if r.Freshness.Fresh() {
			t.Error("fresh after a write in the second in which the table was begun")
		}
	})
}
