package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// writeSegment writes a file of a journal.
func writeSegment(t *testing.T, dir string, number uint64, header []byte, records ...[]byte) {
	t.Helper()
	for _, r := range records {
		header = append(header, r...)
	}
	if err := os.WriteFile(segmentPath(dir, number), header, 0o600); err != nil {
		t.Fatal(err)
	}
}

const someBody = `{"collection":"c","kind":"upsert","ids":[1]}`

func mustOpen(t *testing.T, dir string) (*Journal, []Entry) {
	t.Helper()
	j, entries, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j, entries
}

// TestUnreadableWrite: a complete record whose write cannot be read is damage, and the records
// after it count.
func TestUnreadableWrite(t *testing.T) {
	dir := t.TempDir()
	writeSegment(t, dir, 1, encodeHeader(0), encoded(1, `{"collection":`), encoded(2, someBody))
	j, entries, err := Open(dir, Options{})
	if j == nil || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), segmentPath(dir, 1)) {
		t.Fatalf("err = %v", err)
	}
	if len(entries) != 1 || entries[0].Seq != 2 || entries[0].Write.Collection != "c" || entries[0].Write.IDs[0] != rerank.UintID(1) {
		t.Errorf("%+v", entries)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestCarriedTwice: a process was killed after it had copied a write to a new file and before it
// had removed the old one. The write is read once, and both files are removed.
func TestCarriedTwice(t *testing.T) {
	dir := t.TempDir()
	writeSegment(t, dir, 1, encodeHeader(0), encoded(1, someBody), encoded(2, someBody), encoded(2, ""))
	writeSegment(t, dir, 2, encodeHeader(2), encoded(1, someBody), encoded(3, someBody))
	j, entries := mustOpen(t, dir)
	if len(entries) != 2 || entries[0].Seq != 1 || entries[1].Seq != 3 {
		t.Fatalf("%+v", entries)
	}
	if _, err := os.Stat(segmentPath(dir, 1)); !os.IsNotExist(err) {
		t.Errorf("the old file is there: %v", err)
	}
	for _, e := range entries {
		j.Done(e.Seq)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, entries = mustOpen(t, dir)
	if s := j.Stats(); len(entries) != 0 || s.Pending != 0 || s.Segments != 1 || j.needed != 0 {
		t.Errorf("%+v, %+v, %d bytes are needed", entries, s, j.needed)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOldestHeaderCutOff: the oldest file was begun when the process was killed, and no file before it is left that could lack a
// write. In a journal with an older file the write is missing.
func TestOldestHeaderCutOff(t *testing.T) {
	for older, want := range map[bool]error{false: nil, true: ErrDamaged} {
		dir := t.TempDir()
		if older {
			writeSegment(t, dir, 1, encodeHeader(0))
		}
		writeSegment(t, dir, 2, encodeHeader(0)[:7])
		writeSegment(t, dir, 3, encodeHeader(5), encoded(6, someBody))
		_, entries, damage, err := recoverFrom(dir)
		if err != nil || !errors.Is(damage, want) || (damage == nil) != (want == nil) || len(entries) != 1 || entries[0].Seq != 6 {
			t.Errorf("older file %t: %+v, damage %v, %v; want %v", older, entries, damage, err, want)
		}
	}
}

// TestLaterVersion: a journal of another version of likeness takes no writes, and its file stays. Once
// the file is gone, the journal takes writes.
func TestLaterVersion(t *testing.T) {
	dir := t.TempDir()
	header := encodeHeader(0)
	binary.LittleEndian.PutUint32(header[8:], segmentVersion+1)
	binary.LittleEndian.PutUint32(header[20:], crc32.Checksum(header[:20], castagnoli))
	writeSegment(t, dir, 1, header, encoded(1, someBody))
	j, entries, err := Open(dir, Options{Retry: time.Millisecond})
	if j == nil || len(entries) > 0 || !errors.Is(err, ErrDisk) || !errors.Is(err, errVersion) || !strings.Contains(err.Error(), segmentPath(dir, 1)) {
		t.Fatalf("%v, %+v, %v", j, entries, err)
	}
	if _, err := j.Append(t.Context(), Write{Collection: "c", All: true}); !errors.Is(err, ErrDisk) {
		t.Errorf("a write was taken: %v", err)
	}
	if err := os.Remove(segmentPath(dir, 1)); err != nil {
		t.Fatal(err) // the journal has removed a file that it cannot read
	}
	for err = ErrDisk; errors.Is(err, ErrDisk) && t.Context().Err() == nil; {
		_, err = j.Append(t.Context(), Write{Collection: "c", All: true})
	}
	if err := errors.Join(err, j.Close()); err != nil {
		t.Error(err)
	}
}

// TestMissingFile: a header states the last acknowledged write before the file. A missing file is
// damage, unless it was removed on purpose.
func TestMissingFile(t *testing.T) {
	for name, c := range map[string]struct {
		first, second uint64 // the writes in the files; 0: the file is missing
		durable       uint64 // as the third file states
		damaged       bool
	}{
		"nothing":              {1, 2, 2, false},
		"the first":            {0, 2, 2, false},
		"both":                 {0, 0, 2, false},
		"the second":           {1, 0, 2, true},
		"writes of the second": {1, 2, 3, true},
	} {
		dir := t.TempDir()
		if c.first > 0 {
			writeSegment(t, dir, 1, encodeHeader(0), encoded(c.first, someBody))
		}
		if c.second > 0 {
			writeSegment(t, dir, 2, encodeHeader(1), encoded(c.second, someBody))
		}
		writeSegment(t, dir, 3, encodeHeader(c.durable))
		j, _, err := Open(dir, Options{})
		if j == nil || errors.Is(err, ErrDamaged) != c.damaged {
			t.Fatalf("%s is missing: %v", name, err)
		}
		if seq, err := j.Append(t.Context(), Write{Collection: "c"}); err != nil || seq != c.durable+1 {
			t.Errorf("%s is missing: the next write has the number %d, want %d; %v", name, seq, c.durable+1, err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}
