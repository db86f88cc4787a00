package follow

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// recordedWrites records the calls of peers: "see", "done" and "open" with the write's first id,
// and "miss".
type recordedWrites []string

func (r *recordedWrites) seePeerWrite(jw journal.Write) *write {
	*r = append(*r, "see "+jw.IDs[0].String())
	return &write{}
}

func (r *recordedWrites) queuePeerWrite(w openWrite) {
	*r = append(*r, "done "+w.written.IDs[0].String())
}

func (r *recordedWrites) missPeerWrites(_ string, open []openWrite) {
	*r = append(*r, "miss")
	begin := len(*r)
	for _, o := range open {
		*r = append(*r, "open "+o.written.IDs[0].String())
	}
	slices.Sort((*r)[begin:])
}

// openShared opens the journal that a sidecar shares with others.
func openShared(t *testing.T, o Options) *ownJournal {
	t.Helper()
	if err := os.MkdirAll(statedir.Collection(o.Shared, "items"), 0o700); err != nil {
		t.Fatal(err)
	}
	j, _, err := journal.Open(journalDir(o, "items"), journal.Options{Disk: o.Disk, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return &ownJournal{Journal: j, isShared: true, log: slog.New(slog.DiscardHandler)}
}

// TestPeersPassOnWrites: each event of another sidecar's journal is passed on once. Writes may be
// missed if a sidecar ends, is absent, or has an interrupted journal.
func TestPeersPassOnWrites(t *testing.T) {
	o := Options{Shared: filepath.Join(t.TempDir(), "shared"), Replica: "other", Replicas: 2, Disk: disk.OrOS(nil), Logger: slog.New(slog.DiscardHandler)}
	other := openShared(t, o)
	o.Replica = "own"
	var passed recordedWrites
	p := newPeers(o, "items", &passed)
	expect := func(step string, isComplete bool, want ...string) {
		t.Helper()
		if err := p.read(true); (err == nil) != isComplete || !slices.Equal(passed, want) {
			t.Errorf("%s: passed on %q, want %q; problem: %v", step, passed, want, err)
		}
		passed = nil
	}
	add := func(id uint64) uint64 {
		t.Helper()
		seq, err := other.append(t.Context(), journal.Write{Collection: "items", Kind: journal.Upsert, IDs: []rerank.ID{rerank.UintID(id)}}, 0, func() { t.Error("the journal lacks a write") })
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	expect("nothing was written", true)
	first := add(1)
	expect("a write begins", true, "see 1")
	expect("read again", true)
	other.Done(first)
	add(2) // the journal writes both
	expect("it is done, and the next begins", true, "done 1", "see 2")
	other.interrupt()
	expect("the journal lacks a write", false)
	other.resume(func() bool { return false })
	expect("the others do not show it", false)
	other.resume(func() bool { return true })
	expect("it has every write again, and is read from its start", true, "miss", "open 2", "see 1", "done 1", "see 2")
	add(3)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	expect("its process ended with a write on its way", false, "see 3", "miss", "open 2", "open 3")
	p.all["other"].absentSince = time.Now().Add(-departedAfter)
	expect("it has not run for a long time", false)
	if _, err := os.Stat(journalDir(Options{Shared: o.Shared, Replica: "other"}, "items")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	expect("its folder is removed, and nothing was missed", false)
	if len(p.all) > 0 {
		t.Errorf("%d sidecars are left", len(p.all))
	}
}

// TestPeersRemoveOnlyTheDeparted: the folder of a sidecar stays while it runs or until it has been
// gone for a long time, and with it what is no journal's. A sidecar that slept meanwhile, or
// whose folder is removed while it runs, may have missed writes.
func TestPeersRemoveOnlyTheDeparted(t *testing.T) {
	o := Options{Shared: filepath.Join(t.TempDir(), "shared"), Replica: "other", Replicas: 2, Disk: disk.OrOS(nil), Logger: slog.New(slog.DiscardHandler)}
	other := openShared(t, o)
	dir := journalDir(o, "items")
	o.Replica = "own"
	var passed recordedWrites
	p := newPeers(o, "items", &passed)
	read := func(step string, isThere bool, want ...string) {
		t.Helper()
		_ = p.read(true)
		if _, err := os.Stat(dir); (err == nil) != isThere || !slices.Equal(passed, want) {
			t.Errorf("%s: %v, passed on %q, want %q", step, err, passed, want)
		}
		passed = nil
	}
	longAgo := time.Now().Add(-departedAfter)
	read("it runs", true)
	p.all["other"].absentSince = longAgo
	read("it runs still", true)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	read("it has ended", true)
	read("it has ended a moment ago", true)
	foreign := filepath.Join(dir, "foreign")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.all["other"].absentSince = longAgo
	read("the folder has another file", true)
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || names[0].Name() != "foreign" {
		t.Errorf("left are %v, %v", names, err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	other = openShared(t, Options{Shared: o.Shared, Replica: "other", Disk: o.Disk})
	read("it runs again, with a new journal", true, "miss")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	read("its folder was removed while it ran", false, "miss")
	_ = other.Close()
	if err := openShared(t, Options{Shared: o.Shared, Replica: "other", Disk: o.Disk}).Close(); err != nil {
		t.Fatal(err)
	}
	read("it ran for a moment", true)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.lastRead = longAgo
	read("its folder was removed while this process slept", false, "miss")
}

// TestDoubtIsHeldBack: a doubt that the journal lacks keeps it interrupted until the doubt ends.
func TestDoubtIsHeldBack(t *testing.T) {
	j := openShared(t, Options{Shared: t.TempDir(), Replica: "own", Disk: disk.OrOS(nil)})
	if err := j.Close(); err != nil { // it takes no writes any more
		t.Fatal(err)
	}
	end := j.beginDoubt("items")
	if !j.Interrupted() {
		t.Fatal("the journal lacks a doubt, and the others are not told")
	}
	j.resume(func() bool { return true })
	if !j.Interrupted() {
		t.Error("the journal is resumed while a doubt that it lacks is on its way")
	}
	end()
	if j.missedDoubts != 0 {
		t.Errorf("%d doubts are left", j.missedDoubts)
	}
}

// TestNumbersOfAPeer: a write that is copied to another segment is the same one, and another write of its number is
// followed too, but tells that writes may be missed.
func TestNumbersOfAPeer(t *testing.T) {
	seen := &recordedWrites{}
	p, q := &peers{writes: seen}, &peer{open: map[uint64]openWrite{}}
	first, second := journal.Write{Kind: journal.Upsert, IDs: idsOf(1)}, journal.Write{Kind: journal.Upsert, IDs: idsOf(2)}
	p.takeEvents(q, []journal.Event{
		{Entry: journal.Entry{Seq: 7, Write: first}}, {Entry: journal.Entry{Seq: 7, Write: first}}, {Entry: journal.Entry{Seq: 7, Write: second}}, {Entry: journal.Entry{Seq: 7}, Done: true},
	}, false)
	if want := []string{"see 1", "miss", "open 1", "see 2", "done 2"}; !slices.Equal(*seen, want) || len(q.open) != 0 {
		t.Errorf("%q, %d writes are open; want %q", *seen, len(q.open), want)
	}
}

// TestWatchTicks: the journals of the others are read at intervals, after which this process looks whether its own can be resumed,
// and whenever a search waits for a read. The search learns why a write may have been missed.
func TestWatchTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := Options{Shared: t.TempDir(), Replica: "own", Replicas: 1, Logger: slog.New(slog.DiscardHandler)}
		p, ticks := newPeers(o, "items", &recordedWrites{}), atomic.Int64{}
		go p.watch(ctx, func() { ticks.Add(1) })
		for range 3 {
			if err := p.awaitRead(peerPatience); !errors.Is(err, fs.ErrNotExist) || p.lastProblem() == nil {
				t.Errorf("without a folder: %v, %v", err, p.lastProblem())
			}
		}
		if err := os.MkdirAll(p.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := p.awaitRead(peerPatience); err != nil || p.lastProblem() != nil || ticks.Load() != 0 {
			t.Errorf("with a folder: %v, %v; %d ticks", err, p.lastProblem(), ticks.Load())
		}
		<-time.After(3*peerInterval + 1)
		if synctest.Wait(); ticks.Load() != 3 {
			t.Errorf("%d ticks in three intervals", ticks.Load())
		}
		cancel()
		p.waitForWatch()
		if err := p.awaitRead(time.Hour); !errors.Is(err, errHangs) {
			t.Errorf("after the end: %v", err)
		}
	})
}
