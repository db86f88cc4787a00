package events

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/internal/record"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// TestTornRecordsAreCutDurably: the next start cuts an incomplete last record and syncs the file, so that the
// record does not come back if the power then fails.
func TestTornRecordsAreCutDurably(t *testing.T) {
	from := t.TempDir()
	feedback := appendFeedback(nil, &Feedback{ID: "e", Item: rerank.TextID("x"), Kind: "click", Time: time.UnixMilli(2)})
	whole := append(encodeHead(time.UnixMilli(1)), record.Append(nil, recordFeedback, feedback)...)
	if err := os.WriteFile(segmentPath(from, 1), append(whole[:len(whole):len(whole)], whole[headBytes:len(whole)-1]...), 0o600); err != nil {
		t.Fatal(err)
	}
	d := powerloss.New(t, from)
	if _, records, err := openFiles(d, d.Root()); err != nil || len(records) != 2 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	left := d.Lose(t, rand.New(rand.NewPCG(1, 1)), powerloss.All)
	if got, err := os.ReadFile(segmentPath(left.Root(), 1)); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d bytes are left, want %d: %v", len(got), len(whole), err)
	}
}

// TestFilesOfTheLastProcess: a file that an earlier process wrote may have events up to the beginning of the next one,
// and is kept until the youngest of them is old enough.
func TestFilesOfTheLastProcess(t *testing.T) {
	dir, begun := t.TempDir(), time.UnixMilli(1e12)
	for n := range 3 {
		if err := os.WriteFile(segmentPath(dir, uint64(n+1)), encodeHead(begun.Add(time.Duration(n)*time.Hour)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, _, err := openFiles(disk.OS{}, dir)
	if err != nil || len(f.segments) != 3 || f.next != 4 {
		t.Fatalf("%d files, the next is %d; %v", len(f.segments), f.next, err)
	}
	o := LogOptions{Retention: 24 * time.Hour}.withDefaults()
	for after, want := range map[time.Duration]int{25 * time.Hour: 3, 25*time.Hour + time.Second: 2} {
		again := f
		again.disk = kept{}
		if err := again.prune(begun.Add(after), o); err != nil || len(again.segments) != want {
			t.Errorf("after %s %d files are kept, want %d; %v", after, len(again.segments), want, err)
		}
	}
}

// kept is a disk on which nothing is removed.
type kept struct{ disk.Disk }

func (kept) Remove(string) error { return nil }

// TestRoomForTheNextFile: before a file begins, the oldest ones are deleted until a whole file and a commit fit the
// limit, and not sooner.
func TestRoomForTheNextFile(t *testing.T) {
	o, now := LogOptions{Size: 64 << 10}.withDefaults(), time.UnixMilli(1e12)
	for room, want := range map[int64]int{16 << 10: 2, 16<<10 - 1: 1} { // an eighth for a file, and as much for a commit
		f := files{disk: kept{}, segments: []*segment{{size: 100, ended: now}, {size: o.Size - room - 100, ended: now}}}
		if err := f.prune(now, o); err != nil || len(f.segments) != want {
			t.Errorf("%d bytes are left: %d files are kept, want %d; %v", room, len(f.segments), want, err)
		}
	}
}

// TestADiskThatFailsIsLeftAlone for a while, however many answers come, and is tried again then.
func TestADiskThatFailsIsLeftAlone(t *testing.T) {
	d, now, calls := powerloss.New(t), time.Unix(1e9, 0), 0
	l := &Log{dir: d.Root(), o: LogOptions{Disk: d, Now: func() time.Time { return now }}.withDefaults(), wake: make(chan struct{}, 1)}
	l.recent = newWindow(1)
	if err := l.load(); err != nil {
		t.Fatal(err)
	}
	d.Fail(func(string) error { calls++; return errors.New("the disk fails") })
	show := func() {
		l.Show(&Impression{Answer: AnswerID{Part: 1}})
		l.commit()
	}
	show()
	tried := calls
	for range 3 {
		show()
	}
	if tried == 0 || calls != tried || !errors.Is(l.Stats().Failed, ErrDisk) {
		t.Errorf("%d calls of the disk, and %d in the moment after; it failed with %v", tried, calls-tried, l.Stats().Failed)
	}
	now = now.Add(retryAfter)
	d.Fail(nil)
	show()
	if s := l.Stats(); s.Failed != nil || s.Impressions != 1 || s.Dropped != 4 {
		t.Errorf("when it works again: %+v", s)
	}
	if err := l.files.close(); err != nil {
		t.Fatal(err)
	}
}

// TestTheKeyIsPrivate: nobody else on the machine can read the key that answers are signed with.
func TestTheKeyIsPrivate(t *testing.T) {
	dir := t.TempDir()
	if _, err := ownKey(dir); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(filepath.Join(dir, keyName)); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", is.Mode(), err)
	}
}

// TestFlagsOfAnImpression: what an impression says with one bit comes back, whatever the others say.
func TestFlagsOfAnImpression(t *testing.T) {
	for _, arm := range []experiment.Arm{experiment.Neither, experiment.Control, experiment.Candidate} {
		for _, degraded := range []bool{false, true} {
			for _, narrowed := range []bool{false, true} {
				m := &Impression{Arm: arm, Degraded: degraded, Narrowed: narrowed}
				if got, err := decodeImpression(appendImpression(nil, m)); err != nil || got.Arm != arm || got.Degraded != degraded || got.Narrowed != narrowed {
					t.Errorf("arm %q, degraded %t, narrowed %t: %+v, %v", arm, degraded, narrowed, got, err)
				}
			}
		}
	}
}
