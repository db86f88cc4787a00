package powerloss_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/powerloss"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, d *powerloss.Disk, name string) disk.File {
	t.Helper()
	f, err := d.OpenFile(filepath.Join(d.Root(), name), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func write(t *testing.T, f disk.File, b []byte, at int64) {
	t.Helper()
	_, err := f.WriteAt(b, at)
	must(t, err)
}

// content reads a file after a power failure. It returns nil if the file does not exist.
func content(t *testing.T, d *powerloss.Disk, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.Root(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must(t, err)
	return append([]byte{}, b...)
}

// TestNames: a name lasts with its directory's sync, and not with its file's.
func TestNames(t *testing.T) {
	d, rng := powerloss.New(t), rand.New(rand.NewPCG(1, 1))
	f := create(t, d, "a")
	write(t, f, []byte("x"), 0)
	must(t, f.Sync())
	if b := content(t, d.Lose(t, rng, powerloss.All), "a"); b != nil {
		t.Errorf("a name without a sync of its directory is there, with %q", b)
	}
	if b := content(t, d.Lose(t, rng, powerloss.None), "a"); string(b) != "x" {
		t.Errorf("%q where nothing was lost", b)
	}
	must(t, d.SyncDir(d.Root()))
	if b := content(t, d.Lose(t, rng, powerloss.All), "a"); string(b) != "x" {
		t.Errorf("%q under a durable name", b)
	}
	must(t, d.Rename(filepath.Join(d.Root(), "a"), filepath.Join(d.Root(), "b")))
	left := d.Lose(t, rng, powerloss.All)
	if a, b := content(t, left, "a"), content(t, left, "b"); string(a) != "x" || b != nil {
		t.Errorf("a rename that was not synced: %q and %q", a, b)
	}
	must(t, d.SyncDir(d.Root()))
	left = d.Lose(t, rng, powerloss.All)
	if a, b := content(t, left, "a"), content(t, left, "b"); a != nil || string(b) != "x" {
		t.Errorf("a durable rename: %q and %q", a, b)
	}
	must(t, d.Remove(filepath.Join(d.Root(), "b")))
	if b := content(t, d.Lose(t, rng, powerloss.All), "b"); string(b) != "x" {
		t.Errorf("a removal that was not synced: %q", b)
	}
	must(t, d.SyncDir(d.Root()))
	if b := content(t, d.Lose(t, rng, powerloss.All), "b"); b != nil {
		t.Errorf("a durable removal: %q", b)
	}
}

// TestContent: sectors that were written and not synced are lost in any order; synced sectors are
// not.
func TestContent(t *testing.T) {
	d, rng := powerloss.New(t), rand.New(rand.NewPCG(1, 2))
	f := create(t, d, "a")
	must(t, d.SyncDir(d.Root()))
	first, second := bytes.Repeat([]byte{1}, 512), bytes.Repeat([]byte{2}, 3*512)
	write(t, f, first, 0)
	must(t, f.Sync())
	write(t, f, second, 512)
	seen := map[string]bool{}
	for range 400 {
		b := content(t, d.Lose(t, rng, powerloss.Some), "a")
		if !bytes.HasPrefix(b, first) {
			t.Fatalf("what was synced is lost: %d bytes", len(b))
		}
		var kinds strings.Builder
		for at := len(first); at < len(b); at += 512 {
			part := b[at:min(at+512, len(b))]
			switch {
			case bytes.Equal(part, second[:512]):
				kinds.WriteString("2")
			case bytes.Equal(part, make([]byte, 512)):
				kinds.WriteString("0")
			default:
				t.Fatalf("a sector is torn: %v", part)
			}
		}
		seen[kinds.String()] = true
	}
	for _, kinds := range []string{"", "2", "02", "002", "202", "222", "000", "200"} {
		if !seen[kinds] {
			t.Errorf("no loss left the sectors %q; seen: %v", kinds, seen)
		}
	}
	must(t, f.Truncate(100))
	if n := len(content(t, d.Lose(t, rng, powerloss.All), "a")); n != 512 {
		t.Errorf("%d bytes after a truncation that was lost with what was written before", n)
	}
	must(t, f.Sync())
	if n := len(content(t, d.Lose(t, rng, powerloss.All), "a")); n != 100 {
		t.Errorf("%d bytes after a durable truncation", n)
	}
}

// TestOthers: what was there before and what the disk was not told of is durable.
func TestOthers(t *testing.T) {
	from := t.TempDir()
	must(t, os.Mkdir(filepath.Join(from, "dir"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "dir", "old"), []byte("old"), 0o600))
	d, rng := powerloss.New(t, from), rand.New(rand.NewPCG(1, 3))
	f := create(t, d, "dir/old")
	write(t, f, []byte("new"), 0)
	calls := []string{}
	d.Before(func(call string) { calls = append(calls, call) })
	must(t, f.Truncate(1))
	if len(calls) != 1 || calls[0] != "truncate old" {
		t.Errorf("%v", calls)
	}
	if b := content(t, d.Lose(t, rng, powerloss.All), "dir/old"); string(b) != "old" {
		t.Errorf("%q", b)
	}
	if b := content(t, d.Lose(t, rng, powerloss.None), "dir/old"); string(b) != "n" {
		t.Errorf("%q", b)
	}
}
