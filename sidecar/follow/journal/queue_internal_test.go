package journal

import (
	"slices"
	"testing"

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
