package journal_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/powerloss"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// pending applies events to the writes that are not done.
func pending(all map[uint64]journal.Write, events []journal.Event) {
	for _, e := range events {
		if e.Done {
			delete(all, e.Seq)
		} else {
			all[e.Seq] = e.Write
		}
	}
}

// TestReader: a reader knows every write as soon as Append has returned, and its end after the next
// commit, while segments begin, are compacted and pruned, and over restarts. Nothing is lost.
func TestReader(t *testing.T) {
	rng, dir := rand.New(rand.NewPCG(1, 8)), t.TempDir()
	o := journal.Options{Segment: 400, Limit: 4 << 10, Shared: true}
	j, _ := open(t, dir, o)
	r := journal.NewReader(dir)
	want, got := map[uint64]journal.Write{}, map[uint64]journal.Write{}
	read := func() {
		t.Helper()
		events, lost, err := r.Read()
		if err != nil || lost {
			t.Fatalf("lost %t, err = %v", lost, err)
		}
		pending(got, events)
	}
	for n := range 600 {
		w := numbered(n)
		seq := add(t, j, w)
		want[seq] = w
		read()
		if !reflect.DeepEqual(got[seq], w) {
			t.Fatalf("write %d is %+v, want %+v", seq, got[seq], w)
		}
		for seq := range maps.Clone(want) {
			if len(want) > 8 || rng.IntN(3) == 0 && seq > 1 { // the first is compacted again and again
				delete(want, seq)
				j.Done(seq)
			}
		}
		if n%50 == 49 {
			closed(t, j)
			read() // both the end and the beginning of a process may begin segments, and one old segment is kept
			j, _ = open(t, dir, o)
			read()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("after a restart %v is pending, want %v", got, want)
			}
		}
	}
	late := map[uint64]journal.Write{}
	events, lost, err := journal.NewReader(dir).Read()
	if pending(late, events); err != nil || !lost || !reflect.DeepEqual(late, want) {
		t.Errorf("a late reader: lost %t, %v is pending, want %v; err = %v", lost, late, want, err)
	}
	closed(t, j)
}

// TestReaderPowerLoss loses power before every call to the disk. The remaining files name every
// acknowledged write that is not done, before and after its process opens them again. Unless the
// reader says that writes are lost, it also names those that are done.
func TestReaderPowerLoss(t *testing.T) {
	for _, loss := range powerloss.Losses() {
		d, rng, l := powerloss.New(t), rand.New(rand.NewPCG(uint64(loss), 9)), newLedger()
		o := journal.Options{Segment: 300, Limit: 4 << 10, Disk: d, Shared: true}
		check := func(at string) {
			l.mu.Lock()
			left, want, last := d.Lose(t, rng, loss), maps.Clone(l.acknowledged), l.last
			l.mu.Unlock()
			dir := filepath.Join(left.Root(), "journal")
			for _, opens := range []bool{false, true} {
				if opens {
					j, _, err := journal.Open(dir, journal.Options{Disk: left, Shared: true})
					if j == nil || err != nil && !errors.Is(err, journal.ErrDamaged) {
						t.Errorf("at %s, loss %d: %v", at, loss, err)
						return
					}
					closed(t, j) // it has begun a segment
				}
				events, lost, err := journal.NewReader(dir).Read()
				if last == 0 && err != nil {
					continue // its process has sent no write
				}
				got, seen := map[uint64]journal.Write{}, map[uint64]bool{}
				for _, e := range events {
					seen[e.Seq] = true
				}
				pending(got, events)
				for seq, w := range want {
					if !reflect.DeepEqual(got[seq], w) {
						t.Errorf("at %s, loss %d, opened %t: write %d is %+v; err = %v", at, loss, opens, seq, got[seq], err)
					}
				}
				if err != nil && (opens || !errors.Is(err, journal.ErrIncomplete)) {
					t.Errorf("at %s, loss %d, opened %t: err = %v", at, loss, opens, err)
				}
				for seq := uint64(1); seq <= last && !lost; seq++ {
					if !seen[seq] {
						t.Errorf("at %s, loss %d, opened %t: write %d is missing, and nothing is lost", at, loss, opens, seq)
					}
				}
			}
		}
		checks := 0
		d.Before(func(call string) {
			if checks++; !t.Failed() && (checks%3 == 0 || checks < 60) { // of the many that are alike some
				check(call)
			}
		})
		dir := filepath.Join(d.Root(), "journal")
		j, _ := open(t, dir, o)
		first := l.append(t, j, numbered(0))
		for n := 0; n < 40 && !t.Failed(); n++ {
			if seq := l.append(t, j, numbered(n)); n%3 > 0 {
				l.done(j, seq)
			}
			if n == 20 {
				closed(t, j)
				j, _ = open(t, dir, o)
			}
		}
		l.done(j, first)
		closed(t, j)
	}
}

// TestReaderDamage: whatever happens to the files, a reader says that writes are lost, or that
// there may be more than it can read.
func TestReaderDamage(t *testing.T) {
	change := func(of func(b []byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := files(t, dir)[0]
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, of(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(pattern string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			paths, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, path := range paths {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	record := []byte("\xF7JR\xFD\x02\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{}")
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		lost   bool
		err    error
	}{
		"nothing":              {change(slices.Clone[[]byte]), false, nil},
		"an incomplete record": {change(func(b []byte) []byte { return append(b, record[:9]...) }), false, journal.ErrIncomplete},
		"a wrong checksum":     {change(func(b []byte) []byte { return append(b, record...) }), false, journal.ErrIncomplete},
		"records behind it": {change(func(b []byte) []byte {
			_, first, _ := bytes.Cut(b, record[:4])
			return slices.Concat(b, record, record[:4], first)
		}), true, nil},
		"shorter":    {change(func(b []byte) []byte { return b[:len(b)-3] }), true, journal.ErrIncomplete},
		"no header":  {change(func([]byte) []byte { return nil }), true, nil},
		"no segment": {remove("*.journal"), true, journal.ErrIncomplete},
		"no mark":    {remove("complete"), false, journal.ErrInterrupted},
		"no folder":  {remove(""), false, journal.ErrInterrupted},
		"another mark": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "complete"), []byte("other"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j, _ := open(t, dir, journal.Options{Shared: true})
			add(t, j, numbered(1))
			closed(t, j)
			r := journal.NewReader(dir)
			if _, lost, err := r.Read(); lost || err != nil {
				t.Fatalf("lost %t, err = %v", lost, err)
			}
			c.damage(t, dir)
			_, lost, err := r.Read()
			if lost != c.lost || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("lost %t, err = %v", lost, err)
			}
		})
	}
}

// TestInterrupt: a shared journal that failed accepts no write before its readers can see that it
// lacks some. They compare all rows once it has every write again.
func TestInterrupt(t *testing.T) {
	d := powerloss.New(t)
	dir := filepath.Join(d.Root(), "journal")
	j, _ := open(t, dir, journal.Options{Disk: d, Shared: true, Retry: time.Millisecond})
	defer closed(t, j)
	r := journal.NewReader(dir)
	failing := func(calls ...string) {
		d.Fail(func(call string) error {
			if slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(call, c) }) {
				return errBroken
			}
			return nil
		})
	}
	read := func(wantLost bool, want error) {
		t.Helper()
		if _, lost, err := r.Read(); lost != wantLost || !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("lost %t, err = %v, want %t, %v", lost, err, wantLost, want)
		}
	}
	add(t, j, numbered(1))
	read(false, nil)
	failing("write 0", "remove complete")
	if _, err := j.Append(t.Context(), numbered(2)); !errors.Is(err, journal.ErrDisk) {
		t.Errorf("err = %v", err)
	}
	if err := j.Interrupt(); !errors.Is(err, errBroken) {
		t.Errorf("err = %v", err)
	}
	failing("remove complete")
	for range 3 { // however often the committer tries
		if _, err := j.Append(t.Context(), numbered(3)); !errors.Is(err, journal.ErrDisk) {
			t.Errorf("a write was taken while the mark is there: %v", err)
		}
	}
	failing()
	for tick := time.Tick(time.Millisecond); j.Stats().Failed != nil; <-tick {
	}
	seq := add(t, j, numbered(4))
	read(false, journal.ErrInterrupted)
	if err := j.Resume(func() bool { return false }); err != nil || !j.Interrupted() {
		t.Errorf("err = %v, interrupted %t", err, j.Interrupted())
	}
	if err := j.Resume(func() bool { return true }); err != nil || j.Interrupted() {
		t.Errorf("err = %v, interrupted %t", err, j.Interrupted())
	}
	events, lost, err := r.Read()
	if err != nil || !lost || !slices.ContainsFunc(events, func(e journal.Event) bool { return e.Seq == seq }) {
		t.Errorf("%v, lost %t, err = %v", events, lost, err)
	}
	read(false, nil)
}

// TestMark: a new journal has every write, a damaged one loses its mark, and the entries of its
// last process stay.
func TestMark(t *testing.T) {
	for name, c := range map[string]struct {
		between func(dir string) error
		want    bool
	}{
		"a restart":     {func(string) error { return nil }, false},
		"without mark":  {func(dir string) error { return os.Remove(filepath.Join(dir, "complete")) }, true},
		"a bit flipped": {flip, true},
	} {
		dir, o := t.TempDir(), journal.Options{Shared: true}
		j, _ := open(t, dir, o)
		if j.Interrupted() {
			t.Error("a new journal is interrupted")
		}
		add(t, j, numbered(1))
		add(t, j, numbered(2))
		closed(t, j)
		if err := c.between(dir); err != nil {
			t.Fatal(err)
		}
		j, _, err := journal.Open(dir, o)
		if err != nil && !errors.Is(err, journal.ErrDamaged) {
			t.Fatal(err)
		}
		if _, failed := os.Stat(filepath.Join(dir, "complete")); j.Interrupted() != c.want || errors.Is(failed, fs.ErrNotExist) != c.want {
			t.Errorf("%s: interrupted %t, %v", name, j.Interrupted(), failed)
		}
		closed(t, j)
	}
}

// flip changes a bit of the first write.
func flip(dir string) error {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.journal"))
	b, err := os.ReadFile(paths[0])
	if err != nil {
		return err
	}
	b[60] ^= 1
	return os.WriteFile(paths[0], b, 0o600)
}
