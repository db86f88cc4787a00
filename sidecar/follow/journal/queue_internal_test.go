package journal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/internal/record"
)

// TestAppendQueue: the counted bytes of the queue equal the bytes of its requests.
func TestAppendQueue(t *testing.T) {
	var q appendQueue
	short, long, other := &request{record: make([]byte, 3)}, &request{record: make([]byte, 50)}, &request{}
	q.add(short)
	q.add(long)
	if q.bytes != 53 {
		t.Fatalf("%d bytes, want 53", q.bytes)
	}
	if q.withdraw(other) || !q.withdraw(short) || q.withdraw(short) {
		t.Error("a request was withdrawn that is not in the queue, or not withdrawn")
	}
	if q.bytes != 50 {
		t.Errorf("%d bytes after one was withdrawn, want 50", q.bytes)
	}
	if taken := q.take(); !slices.Equal(taken, []*request{long}) || q.bytes != 0 || len(q.requests) != 0 {
		t.Errorf("%d requests were taken, %d bytes are left", len(taken), q.bytes)
	}
}

// TestCompactionPays: at half of the limit, if at most half of that is needed.
func TestCompactionPays(t *testing.T) {
	for _, c := range []struct {
		size, needed int64
		segments     int
		want         bool
	}{{50, 25, 2, true}, {49, 0, 2, false}, {50, 26, 2, false}, {100, 25, 1, false}, {100, 25, 9, true}} {
		if got := compactionPays(c.size, c.needed, 100, c.segments); got != c.want {
			t.Errorf("%d of 100 bytes, %d needed, %d segments: %t", c.size, c.needed, c.segments, got)
		}
	}
}

// TestBooks: a segment, and the whole journal, need the bytes of their pending writes, and none of those that were removed.
func TestBooks(t *testing.T) {
	b, first, second := newBooks(), &segment{size: 70}, &segment{size: 50}
	b.segments = []*segment{first, second}
	check := func(firstLive, secondLive int, firstNeeded, secondNeeded int64) {
		t.Helper()
		if first.live != firstLive || second.live != secondLive || first.needed != firstNeeded || second.needed != secondNeeded ||
			b.needed != firstNeeded+secondNeeded || len(b.pending) != firstLive+secondLive {
			t.Errorf("%+v and %+v; %d bytes of %d writes are needed", first, second, b.needed, len(b.pending))
		}
	}
	b.add(1, location{first, 30})
	b.add(2, location{first, 40})
	b.add(3, location{second, 50})
	check(2, 1, 70, 50)
	if b.remove(4) || !b.remove(2) || b.remove(2) {
		t.Error("a write is removed that is not there, or is not removed")
	}
	check(1, 1, 30, 50)
	if b.measure(); b.size != 120 {
		t.Errorf("the segments have %d bytes, want 120", b.size)
	}
}

// TestSealing: a finished segment whose trailer is not durable is not sealed, since a reader would wait there for ever. Sealed once,
// it is not sealed again.
func TestSealing(t *testing.T) {
	d := powerloss.New(t)
	s, err := createSegment(d, d.Root(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.complete()
	broken := errors.New("the disk is broken")
	for _, failing := range []string{"truncate", "write", "sync"} {
		d.Fail(func(call string) error {
			if strings.HasPrefix(call, failing) {
				return broken
			}
			return nil
		})
		if err := s.seal(d, 2); !errors.Is(err, broken) || s.sealed || s.size != segmentHeader {
			t.Errorf("%s: %v, sealed %t, %d bytes", failing, err, s.sealed, s.size)
		}
	}
	d.Fail(nil)
	for range 2 {
		if err := s.seal(d, 2); err != nil || !s.sealed || s.size != segmentHeader+int64(len(encodeTrailer(2))) {
			t.Errorf("%v, sealed %t, %d bytes", err, s.sealed, s.size)
		}
	}
}

// TestCloseCommits: Close commits a write that waits, and tells its caller.
func TestCloseCommits(t *testing.T) {
	dir := t.TempDir()
	j, _, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &request{record: append(record.Begin(nil), `{}`...), committed: make(chan error, 1)}
	if err := j.enqueue(r); err != nil { // and nothing wakes the committer
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.committed:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the caller was not told")
	}
	j, entries, err := Open(dir, Options{})
	if err != nil || len(entries) != 1 || entries[0].Seq != r.seq {
		t.Fatalf("%+v, %v", entries, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
