package follow

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

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
	o := Options{Shared: filepath.Join(t.TempDir(), "shared"), Replica: "other", Replicas: 2, Disk: disk.OrOS(nil)}
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
	if err := os.RemoveAll(journalDir(Options{Shared: o.Shared, Replica: "other"}, "items")); err != nil {
		t.Fatal(err)
	}
	expect("its folder is gone", false, "miss")
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
