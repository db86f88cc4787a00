package table_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

var errBroken = errors.New("the disk is broken")

// failsAt has the calls fail that begin with a text.
func failsAt(call string) func(string) error {
	return func(c string) error {
		if strings.HasPrefix(c, call) {
			return errBroken
		}
		return nil
	}
}

// faultyLive is a live table of 20 items, to which one write was made, on a disk that can
// fail.
func faultyLive(t *testing.T) (c liveCase, d *powerloss.Disk, l *table.Live, m model) {
	t.Helper()
	c = liveCase{meta: meta}
	from, m := c.base(t, rand.New(rand.NewPCG(1, 9)), 20)
	d = powerloss.New(t, filepath.Dir(from))
	l = openLive(t, filepath.Join(d.Root(), "t.table"), table.LiveOptions{CompactShare: -1, Disk: d})
	t.Cleanup(func() { _ = l.Close() })
	id := []rerank.ID{rerank.UintID(0)}
	if err := l.Delete(id); err != nil {
		t.Fatal(err)
	}
	delete(m, id[0])
	return c, d, l, m
}

// reopened closes a table and compares what is there then.
func reopened(t *testing.T, c liveCase, d *powerloss.Disk, l *table.Live, m model) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLive(t, filepath.Join(d.Root(), "t.table"), table.LiveOptions{Disk: d})
	defer l.Close()
	snap := l.Snapshot()
	defer snap.Release()
	c.compare(t, snap, m)
}

// TestWriteFails: a write that the disk took only half of leaves the table unchanged, and the next
// write succeeds.
func TestWriteFails(t *testing.T) {
	c, d, l, m := faultyLive(t)
	d.Fail(failsAt("write"))
	many := []rerank.ID{rerank.UintID(30), rerank.UintID(31), rerank.UintID(32)}
	if err := l.Upsert(many, features(3), nil); !errors.Is(err, errBroken) || errors.Is(err, table.ErrClosed) {
		t.Errorf("err = %v", err)
	}
	snap := l.Snapshot()
	c.compare(t, snap, m)
	snap.Release()
	d.Fail(nil)
	if err := l.Delete([]rerank.ID{rerank.UintID(1)}); err != nil {
		t.Fatal(err)
	}
	delete(m, rerank.UintID(1))
	reopened(t, c, d, l, m)
}

// TestSyncFails: once the disk could not say whether a write is there, none is taken any
// more, and the write is not shown.
func TestSyncFails(t *testing.T) {
	c, d, l, m := faultyLive(t)
	d.Fail(failsAt("sync"))
	if err := l.Delete([]rerank.ID{rerank.UintID(1)}); !errors.Is(err, table.ErrClosed) || !errors.Is(err, errBroken) {
		t.Errorf("err = %v", err)
	}
	d.Fail(nil)
	if err := l.Delete([]rerank.ID{rerank.UintID(2)}); !errors.Is(err, table.ErrClosed) {
		t.Errorf("a write behind it: %v", err)
	}
	if err := l.Compact(); !errors.Is(err, table.ErrClosed) {
		t.Errorf("a compaction behind it: %v", err)
	}
	snap := l.Snapshot()
	c.compare(t, snap, m)
	snap.Release()
}

// TestTruncateFails: where half of a write can neither be finished nor cut off, none is
// taken any more. The next process drops it.
func TestTruncateFails(t *testing.T) {
	c, d, l, m := faultyLive(t)
	d.Fail(func(call string) error {
		return errors.Join(failsAt("write")(call), failsAt("truncate")(call))
	})
	if err := l.Upsert([]rerank.ID{rerank.UintID(30)}, features(1), nil); !errors.Is(err, table.ErrClosed) {
		t.Errorf("err = %v", err)
	}
	d.Fail(nil)
	if err := l.Delete([]rerank.ID{rerank.UintID(2)}); !errors.Is(err, table.ErrClosed) {
		t.Errorf("a write behind it: %v", err)
	}
	reopened(t, c, d, l, m)
}

// TestCompactionFails: wherever a compaction fails, the table is as it was, takes writes,
// and can be compacted later.
func TestCompactionFails(t *testing.T) {
	calls := 0
	for at := 0; at <= calls; at++ {
		c, d, l, m := faultyLive(t)
		n := 0
		d.Fail(func(string) error {
			if n++; n == at {
				return errBroken
			}
			return nil
		})
		err := l.Compact()
		calls = max(calls, n)
		d.Fail(nil)
		if at > 0 && at <= n && err != nil && !errors.Is(err, errBroken) {
			t.Errorf("call %d of a compaction fails: %v", at, err)
		}
		if err := l.Delete([]rerank.ID{rerank.UintID(2)}); err != nil {
			t.Fatalf("a write behind a compaction of which call %d failed: %v", at, err)
		}
		delete(m, rerank.UintID(2))
		if err := l.Compact(); err != nil {
			t.Fatalf("a compaction behind one of which call %d failed: %v", at, err)
		}
		if logs, _ := filepath.Glob(filepath.Join(d.Root(), "t.table.*")); len(logs) != 2 {
			t.Errorf("call %d failed: beside the table lie %v, want its lock and one log", at, logs)
		}
		reopened(t, c, d, l, m)
	}
	if calls < 10 {
		t.Errorf("a compaction is %d calls", calls)
	}
}

// TestMissingLog: a table of whose logs one is missing is refused. Compactions that failed
// leave several.
func TestMissingLog(t *testing.T) {
	_, d, l, _ := faultyLive(t)
	for id := range uint64(2) {
		d.Fail(failsAt("rename"))
		if err := l.Compact(); !errors.Is(err, errBroken) {
			t.Fatalf("err = %v", err)
		}
		d.Fail(nil)
		if err := l.Delete([]rerank.ID{rerank.UintID(5 + id)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(d.Root(), "t.table.log.*"))
	if err != nil || len(logs) != 3 {
		t.Fatalf("%v, %v", logs, err)
	}
	for _, missing := range logs[:2] {
		left := d.Lose(t, rand.New(rand.NewPCG(1, 1)), powerloss.None)
		if err := left.Remove(filepath.Join(left.Root(), filepath.Base(missing))); err != nil {
			t.Fatal(err)
		}
		if _, err := table.OpenLive(filepath.Join(left.Root(), "t.table"), table.Expect{}, table.LiveOptions{Disk: left}); !errors.Is(err, table.ErrTable) {
			t.Errorf("without %s: %v", filepath.Base(missing), err)
		}
	}
	whole := openLive(t, filepath.Join(d.Root(), "t.table"), table.LiveOptions{Disk: d})
	defer whole.Close()
	if n := whole.Stats().Items; n != 17 {
		t.Errorf("%d items with all logs, want 17", n)
	}
}
