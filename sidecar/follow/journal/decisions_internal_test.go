package journal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/rerank"
)

// opened opens a journal in dir.
func opened(t *testing.T, dir string, o Options) *Journal {
	t.Helper()
	j, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// added appends a write of the row, and returns its number.
func added(t *testing.T, j *Journal, id uint64) uint64 {
	t.Helper()
	seq, err := j.Append(t.Context(), Write{Collection: "c", Kind: Upsert, IDs: []rerank.ID{rerank.UintID(id)}})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// TestDefaults: a segment is at most an eighth of the limit, so that segments of done writes can be removed.
func TestDefaults(t *testing.T) {
	for given, want := range map[Options]Options{
		{}: {Limit: 64 << 20, Segment: 4 << 20, Retry: time.Second}, {Limit: 800}: {Limit: 800, Segment: 100, Retry: time.Second},
		{Limit: 800, Segment: 50, Retry: time.Minute}: {Limit: 800, Segment: 50, Retry: time.Minute}, {Limit: -1, Segment: -1, Retry: -1}: {Limit: 64 << 20, Segment: 4 << 20, Retry: time.Second},
	} {
		got := given.withDefaults()
		if got.Disk == nil {
			t.Error("no disk")
		}
		if got.Disk = nil; got != want {
			t.Errorf("%+v: %+v, want %+v", given, got, want)
		}
	}
}

// TestGivenUpAfterTheCommit: a write whose caller gives up just after it was written is done, though nobody ends it.
func TestGivenUpAfterTheCommit(t *testing.T) {
	j := opened(t, t.TempDir(), Options{})
	seq := added(t, j, 1)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.withdraw(given, &request{seq: seq}); !errors.Is(err, context.Canceled) || j.Stats().Pending != 0 {
		t.Errorf("%d writes are pending, %v", j.Stats().Pending, err)
	}
}

// TestMarkOfAJournalThatWasLeft: only a new shared journal gets a mark at its start. One that lost its mark, or is
// damaged, lacks writes until it is resumed.
func TestMarkOfAJournalThatWasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		leave       func(dir string, j *Journal) error
		interrupted bool
	}{
		"new":         {nil, false},
		"whole":       {func(string, *Journal) error { return nil }, false},
		"interrupted": {func(_ string, j *Journal) error { return j.Interrupt() }, true},
		"damaged": {func(dir string, _ *Journal) error {
			b, err := os.ReadFile(segmentPath(dir, 1))
			b[segmentHeader+1] ^= 1 // in the first of two records
			return errors.Join(err, os.WriteFile(segmentPath(dir, 1), b, 0o600))
		}, true},
	} {
		dir := filepath.Join(t.TempDir(), "journal")
		if c.leave != nil {
			j := opened(t, dir, Options{Shared: true})
			added(t, j, 1)
			added(t, j, 2)
			if err := errors.Join(j.Close(), c.leave(dir, j)); err != nil {
				t.Fatal(err)
			}
		}
		j, _, err := Open(dir, Options{Shared: true})
		if j == nil || errors.Is(err, ErrDamaged) != (name == "damaged") {
			t.Fatalf("%s: %v", name, err)
		}
		if j.Interrupted() != c.interrupted {
			t.Errorf("%s: interrupted %t", name, j.Interrupted())
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReaderBeginsAgain: a reader that begins again at the oldest segment does not take what it read before for what is
// there.
func TestReaderBeginsAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := opened(t, dir, Options{Shared: true, Segment: 1}) // each write has its own segment
	for id := range uint64(3) {
		added(t, j, id)
	}
	r := NewReader(dir)
	if events, lost, err := r.Read(); err != nil || lost || len(events) != 3 {
		t.Fatalf("%d events, lost %t, %v", len(events), lost, err)
	}
	numbers, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segmentPath(dir, numbers[0])); err != nil { // with the first write
		t.Fatal(err)
	}
	r.mark = "" // it begins again
	if _, isWhole, err := r.readAll(); err != nil || isWhole {
		t.Errorf("a journal without its first write is whole: %t, %v", isWhole, err)
	}
}

// TestReaderOfAFileThatFails: a reader that lost its place and then met a file that it cannot read begins again at the
// oldest one, with what it has not passed on.
func TestReaderOfAFileThatFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := opened(t, dir, Options{Shared: true, Segment: 1}) // each write has its own segment
	for id := range uint64(3) {
		added(t, j, id)
	}
	numbers, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(dir)
	if events, _, err := r.Read(); err != nil || len(events) != 3 {
		t.Fatal(events, err)
	}
	aside := t.TempDir()
	for _, n := range []uint64{numbers[1], numbers[len(numbers)-1]} {
		if err := os.Rename(segmentPath(dir, n), segmentPath(aside, n)); err != nil {
			t.Fatal(err)
		}
	}
	second := segmentPath(dir, numbers[1])
	if err := os.Mkdir(second, 0o700); err != nil { // which cannot be read as a file
		t.Fatal(err)
	}
	if events, lost, err := r.Read(); err == nil || !lost || len(events) > 0 {
		t.Fatalf("%d events, lost %t, %v", len(events), lost, err)
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{numbers[1], numbers[len(numbers)-1]} {
		if err := os.Rename(segmentPath(aside, n), segmentPath(dir, n)); err != nil {
			t.Fatal(err)
		}
	}
	if events, _, err := r.Read(); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v; want every write again", len(events), err)
	}
}

// TestListSegments: only files with the name of a segment are read, removed and counted as one.
func TestListSegments(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{filepath.Base(segmentPath(dir, 12)), filepath.Base(segmentPath(dir, 3)), "7.journal", "+0000000000000000008.journal", "a.journal", "00000000000000000009.journal.tmp", "00000000000000000010"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := listSegments(dir); err != nil || !slices.Equal(got, []uint64{3, 12}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestAReaderHoldsTheLockForAMoment: a shared journal opens though a reader tests its lock just then, and any other journal refuses
// at once. Neither waits longer than lockPatience.
func TestAReaderHoldsTheLockForAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		shared      bool
		held, waits time.Duration
		isTaken     bool
	}{
		"shared": {true, lockPatience / 4, lockPatience / 4, true}, "shared, for long": {true, time.Hour, lockPatience, false}, "of one process": {false, lockPatience / 4, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			held, err := filelock.Take(filepath.Join(dir, lockName))
			if err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(c.held, func() { _ = held.Close() })
			defer timer.Stop()
			began := time.Now()
			lock, err := (&Journal{dir: dir, o: Options{Shared: c.shared}}).takeLock()
			if (err == nil) != c.isTaken || err != nil && !errors.Is(err, filelock.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took < c.waits || took > c.waits+lockPatience/10 {
				t.Errorf("%s: it waited for %s, want %s", name, took, c.waits)
			}
			if err == nil {
				err = lock.Close()
			} else if timer.Stop() {
				err = held.Close()
			}
			if err != nil && !errors.Is(err, filelock.ErrHeld) {
				t.Error(err)
			}
		})
	}
}

// TestDoneIsWrittenDown: the next process does not follow again what was done, though no other write followed it into the file.
func TestDoneIsWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := opened(t, t.TempDir(), Options{})
		seq := added(t, j, 1)
		synctest.Wait()
		before := j.Stats().Bytes
		j.Done(seq)
		if synctest.Wait(); j.Stats().Bytes <= before {
			t.Errorf("the file has %d bytes, as before the write was done", before)
		}
	})
}

// countingDisk counts the syncs of files and of folders.
type countingDisk struct {
	disk.Disk
	files, folders *atomic.Int32
}

type countingFile struct {
	disk.File
	synced *atomic.Int32
}

func (d countingDisk) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.Disk.OpenFile(path, flag, perm)
	return countingFile{f, d.files}, err
}

func (d countingDisk) SyncDir(dir string) error {
	d.folders.Add(1)
	return d.Disk.SyncDir(dir)
}

func (f countingFile) Sync() error {
	f.synced.Add(1)
	return f.File.Sync()
}

// TestWhatOthersHaveToSee is durable at once: that a write was added and, in a shared journal, that one is done, and that the mark
// is gone.
func TestWhatOthersHaveToSee(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := countingDisk{disk.OrOS(nil), new(atomic.Int32), new(atomic.Int32)}
			j := opened(t, t.TempDir(), Options{Shared: shared, Disk: d})
			synctest.Wait()
			before := d.files.Load()
			seq := added(t, j, 1)
			if synctest.Wait(); d.files.Load() == before {
				t.Errorf("shared %t: a new write is not synced", shared)
			}
			before = d.files.Load()
			j.Done(seq)
			if synctest.Wait(); (d.files.Load() > before) != shared {
				t.Errorf("shared %t: that a write is done is synced %d times", shared, d.files.Load()-before)
			}
			if !shared {
				return
			}
			before = d.folders.Load()
			if err := j.Interrupt(); err != nil || d.folders.Load() == before {
				t.Errorf("that the mark is gone is not synced, %v", err)
			}
		})
	}
}

// TestRemoveBesideAReader: the journal of a process that is gone is removed though a reader tests its lock just then.
func TestRemoveBesideAReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	if err := opened(t, dir, Options{Shared: true}).Close(); err != nil {
		t.Fatal(err)
	}
	tested, err := filelock.Share(filepath.Join(dir, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tested.Close() }()
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
}

// TestCompactsInOneCommit: a commit copies from one segment after the other until the files take less than half of the limit.
func TestCompactsInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := opened(t, t.TempDir(), Options{Limit: 4000, Segment: 200})
		var all []uint64
		for id := uint64(0); j.Stats().Bytes < 1800; id++ {
			all = append(all, added(t, j, id))
		}
		j.mu.Lock()
		for i, seq := range all {
			if i%3 != 0 { // each segment keeps a pending write
				j.forget(seq)
			}
		}
		j.mu.Unlock()
		large, err := j.Append(t.Context(), Write{Collection: "c", Kind: Upsert, IDs: slices.Repeat([]rerank.ID{rerank.UintID(1)}, 600)})
		if err != nil {
			t.Fatal(err)
		}
		before := j.Stats()
		j.Done(large)
		synctest.Wait()
		if s := j.Stats(); before.Bytes < 3000 || s.Bytes >= 2000 {
			t.Errorf("after one commit: %+v, before: %+v", s, before)
		}
	})
}
