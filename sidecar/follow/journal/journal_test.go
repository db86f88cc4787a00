package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

// numbered returns write n.
func numbered(n int) journal.Write {
	return journal.Write{Collection: "c", Kind: journal.Upsert, IDs: []rerank.ID{rerank.UintID(uint64(n)), rerank.TextID(fmt.Sprint("id ", n))}}
}

func open(t testing.TB, dir string, o journal.Options) (*journal.Journal, []journal.Entry) {
	t.Helper()
	j, entries, err := journal.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return j, entries
}

func closed(t testing.TB, j *journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, j *journal.Journal, w journal.Write) uint64 {
	t.Helper()
	seq, err := j.Append(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWhatIsNotDoneComesBackInOrder(t *testing.T) {
	dir := t.TempDir()
	j, entries := open(t, dir, journal.Options{})
	if len(entries) != 0 {
		t.Fatalf("a new journal has %v", entries)
	}
	writes := []journal.Write{
		numbered(1),
		{Collection: "ä/\x00", Kind: journal.Delete, Filter: `{"must":[]}`},
		{Collection: "c", Kind: journal.Collection, All: true},
		{Collection: "c", Kind: journal.Payload, IDs: []rerank.ID{rerank.UintID(1<<64 - 1), rerank.IntID(-1), rerank.TextID("7")}},
	}
	var want []journal.Entry
	for i, w := range writes {
		seq := add(t, j, w)
		if i == 0 {
			j.Done(seq)
			j.Done(seq)
			j.Done(1 << 40)
			continue
		}
		want = append(want, journal.Entry{Seq: seq, Write: w})
	}
	closed(t, j)
	closed(t, j)
	for range 2 { // writes that are not done come again
		j, entries = open(t, dir, journal.Options{})
		if !reflect.DeepEqual(entries, want) {
			t.Fatalf("%+v\nwant %+v", entries, want)
		}
		closed(t, j)
	}
	j, _ = open(t, dir, journal.Options{})
	if seq := add(t, j, numbered(5)); seq <= want[len(want)-1].Seq {
		t.Errorf("number %d was given again", seq)
	}
	closed(t, j)
	if _, err := j.Append(t.Context(), numbered(6)); !errors.Is(err, journal.ErrClosed) {
		t.Error(err)
	}
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir, journal.Options{})
	defer closed(t, j)
	if _, _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, filelock.ErrHeld) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}

// TestConcurrentAppends: every caller's write is in the journal, and finished files are removed.
func TestConcurrentAppends(t *testing.T) {
	dir, o := t.TempDir(), journal.Options{Segment: 4 << 10}
	j, _ := open(t, dir, o)
	var group sync.WaitGroup
	kept := make([][]uint64, 16)
	for i := range kept {
		group.Go(func() {
			for n := range 60 {
				seq := add(t, j, numbered(n))
				if n%30 == 0 {
					kept[i] = append(kept[i], seq)
				} else {
					j.Done(seq)
				}
			}
		})
	}
	group.Wait()
	closed(t, j)
	j, entries := open(t, dir, o)
	want := slices.Sorted(slices.Values(slices.Concat(kept...)))
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d", len(entries), len(want))
	}
	for i, e := range entries {
		if e.Seq != want[i] {
			t.Fatalf("entry %d is %d, want %d", i, e.Seq, want[i])
		}
		j.Done(e.Seq)
	}
	j.Done(add(t, j, numbered(0)))
	last := add(t, j, numbered(0)) // the commit before it has written down all that was done, and removed what nobody needs
	if s := j.Stats(); s.Pending != 1 || s.Segments != 1 {
		t.Errorf("%+v, %v", s, files(t, dir))
	}
	j.Done(last)
	closed(t, j)
}

// TestFull: an unfinished write takes only its own space, and unfinished writes together are
// limited.
func TestFull(t *testing.T) {
	dir, o := t.TempDir(), journal.Options{Limit: 8 << 10}
	j, _ := open(t, dir, o)
	first := add(t, j, numbered(0))
	for n := range 600 {
		j.Done(add(t, j, numbered(n)))
	}
	var kept []uint64
	for {
		seq, err := j.Append(t.Context(), numbered(1))
		if err != nil {
			if !errors.Is(err, journal.ErrFull) || !strings.Contains(err.Error(), fmt.Sprint(o.Limit)) {
				t.Fatal(err)
			}
			break
		}
		kept = append(kept, seq)
	}
	if s := j.Stats(); s.Bytes > o.Limit || s.Bytes < o.Limit/4 || s.Pending != len(kept)+1 {
		t.Errorf("%+v, %d kept", s, len(kept))
	}
	for _, seq := range kept {
		j.Done(seq)
	}
	for {
		seq, err := j.Append(t.Context(), numbered(2))
		if err == nil {
			j.Done(seq)
			break
		}
		if !errors.Is(err, journal.ErrFull) { // until it has made room
			t.Fatal(err)
		}
	}
	closed(t, j)
	j, entries := open(t, dir, o)
	if len(entries) != 1 || entries[0].Seq != first || !reflect.DeepEqual(entries[0].Write, numbered(0)) {
		t.Errorf("%+v", entries)
	}
	closed(t, j)
}

func TestWithdrawn(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir, journal.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				if seq, err := j.Append(ctx, numbered(1)); err == nil {
					j.Done(seq)
				} else if !errors.Is(err, context.Canceled) || seq != 0 {
					t.Error(seq, err)
				}
			}
		})
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	group.Wait()
	closed(t, j)
	j, entries := open(t, dir, journal.Options{})
	if len(entries) != 0 {
		t.Errorf("%d entries that nobody waits for", len(entries))
	}
	closed(t, j)
}

// TestTorn cuts the last file at every third byte: the complete records before the cut are read.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir, journal.Options{})
	ends := []int64{j.Stats().Bytes}
	for n := range 3 {
		add(t, j, numbered(n))
		ends = append(ends, j.Stats().Bytes)
	}
	closed(t, j)
	name := files(t, dir)[0]
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut += 3 {
		for _, tail := range []int{0, len(whole) - cut} { // as after the end of the process, and after a loss of power
			at := t.TempDir()
			if err := os.WriteFile(filepath.Join(at, filepath.Base(name)), append(slices.Clone(whole[:cut]), make([]byte, tail)...), 0o600); err != nil {
				t.Fatal(err)
			}
			j, entries := open(t, at, journal.Options{})
			closed(t, j)
			want := 0
			for want < 3 && ends[want+1] <= int64(cut) {
				want++
			}
			if len(entries) != want {
				t.Fatalf("cut at %d: %d entries, want %d", cut, len(entries), want)
			}
		}
	}
}

// TestDamaged changes every third byte of a finished file: the error names the file, and readable
// records are returned.
func TestDamaged(t *testing.T) {
	dir, o := t.TempDir(), journal.Options{Segment: 200}
	j, _ := open(t, dir, o)
	const writes = 8
	for n := range writes {
		add(t, j, numbered(n))
	}
	closed(t, j)
	name := files(t, dir)[0]
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(whole); i += 3 {
		bad := slices.Clone(whole)
		bad[i] ^= 0x10
		at := t.TempDir()
		if err := os.CopyFS(at, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, filepath.Base(name)), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		j, entries, err := journal.Open(at, o)
		if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(at, filepath.Base(name))+" at byte ") {
			t.Fatalf("byte %d: %v", i, err)
		}
		if len(entries) < writes-1 {
			t.Fatalf("byte %d: %d entries", i, len(entries))
		}
		if _, err := j.Append(t.Context(), numbered(9)); err != nil {
			t.Fatal(err)
		}
		closed(t, j)
	}
	if err := os.Remove(files(t, dir)[1]); err != nil {
		t.Fatal(err)
	}
	j, _, err = journal.Open(dir, o)
	if !errors.Is(err, journal.ErrDamaged) {
		t.Fatalf("a file is missing: %v", err)
	}
	closed(t, j)
}

func BenchmarkAppend(b *testing.B) {
	for _, at := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", at), func(b *testing.B) {
			j, _ := open(b, b.TempDir(), journal.Options{})
			defer closed(b, j)
			if at == 1 {
				for b.Loop() {
					j.Done(add(b, j, numbered(1)))
				}
				return
			}
			b.SetParallelism(max(1, at/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					j.Done(add(b, j, numbered(1)))
				}
			})
		})
	}
}
