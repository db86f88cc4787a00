package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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
