package table

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/likenessdb/likeness/rerank"
)

// liveTable opens a live table of some items with one number each.
func liveTable(t *testing.T, path string, o LiveOptions) *Live {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		w, err := NewWriter(path, Meta{Model: "m", ModelVersion: "v", Collection: "c", Kind: "dot", Features: 1})
		check(t, err)
		check(t, w.Append(numbered(4), rerank.NewMatrix(4, 1)))
		check(t, w.Close())
	}
	l, err := OpenLive(path, Expect{}, o)
	check(t, err)
	return l
}

func numbered(n int) (all []rerank.ID) {
	for i := range n {
		all = append(all, rerank.UintID(uint64(i)))
	}
	return all
}

// TestTornRecordIsCutOff: what is left of a long record is gone before a short one takes its place, so that the log can be read
// again.
func TestTornRecordIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.table")
	l := liveTable(t, path, LiveOptions{})
	check(t, l.Upsert(numbered(100), rerank.NewMatrix(100, 1), nil))
	check(t, l.Close())
	log := logPath(path, 0)
	info, err := os.Stat(log)
	check(t, err)
	check(t, os.Truncate(log, info.Size()-64))
	l = liveTable(t, path, LiveOptions{})
	check(t, l.Delete(numbered(1)))
	check(t, l.Close())
	l = liveTable(t, path, LiveOptions{})
	if s := l.Stats(); s.Items != 3 {
		t.Errorf("%+v, want three items", s)
	}
	check(t, l.Close())
}

// TestCloseFreesATable: the last one who lets go of a closed table frees its rows, and an interrupted compaction leaves nothing.
func TestCloseFreesATable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.table")
	check(t, os.WriteFile(path+compactSuffix, []byte("left"), 0o600))
	l := liveTable(t, path, LiveOptions{})
	if _, err := os.Stat(path + compactSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of an interrupted compaction: %v", err)
	}
	snap, arena := l.Snapshot(), l.w.arena
	check(t, l.Close())
	if n := arena.references.Load(); n != 1 {
		t.Errorf("%d hold the rows of a closed table with one snapshot", n)
	}
	if snap.Release(); arena.references.Load() != 0 || arena.base.arenas.Load() != 0 {
		t.Errorf("%d hold the rows, %d the file, and nobody the table", arena.references.Load(), arena.base.arenas.Load())
	}
}

// TestCloseWaitsForACompaction, also for whoever is told of its outcome.
func TestCloseWaitsForACompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.table")
	synctest.Test(t, func(t *testing.T) {
		told, closed := make(chan error), false
		l := liveTable(t, path, LiveOptions{CompactItems: 1, CompactShare: 0.01, Compacted: func(err error) { told <- err }})
		check(t, l.Delete(numbered(2)))
		go func() {
			check(t, l.Close())
			closed = true
		}()
		if synctest.Wait(); closed {
			t.Error("the table closes while a compaction ends")
		}
		if err := <-told; err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if synctest.Wait(); !closed {
			t.Error("the table does not close")
		}
	})
}
