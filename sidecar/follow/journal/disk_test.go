package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/smalldisk"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// TestOpenOnAFullDisk: a journal can be opened on a full disk. It returns the entries that can be
// read, and accepts writes once there is room.
func TestOpenOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // there is a journal already
		fill   func(testing.TB, string) string
		seen   int // entries
	}{
		"no room, nothing yet":         {false, smalldisk.Fill, 0},
		"no room, a journal":           {true, smalldisk.Fill, 1},
		"no more files, nothing yet":   {false, smalldisk.FillNames, 0},
		"no more files, but a journal": {true, smalldisk.FillNames, 1},
	} {
		t.Run(name, func(t *testing.T) {
			disk, err := smalldisk.New(t, 1<<20)
			if err != nil {
				t.Skipf("this machine makes no small file system: %v", err)
			}
			dir, o := filepath.Join(disk, "journal"), journal.Options{Retry: time.Millisecond}
			if c.before {
				j, _ := open(t, dir, o)
				add(t, j, numbered(1))
				closed(t, j)
			}
			filler := c.fill(t, disk)
			j, entries, err := journal.Open(dir, o)
			if j == nil || !errors.Is(err, journal.ErrDisk) || !errors.Is(err, syscall.ENOSPC) || len(entries) != c.seen {
				t.Fatalf("%v, %d entries, %v", j, len(entries), err)
			}
			if _, err := j.Append(t.Context(), numbered(2)); !errors.Is(err, journal.ErrDisk) || j.Stats().Failed == nil {
				t.Errorf("the disk is full: %v, %+v", err, j.Stats())
			}
			for _, e := range entries {
				j.Done(e.Seq)
			}
			if err := os.RemoveAll(filler); err != nil {
				t.Fatal(err)
			}
			accepts(t, j, 3)
			if s := j.Stats(); s.Failed != nil || s.Pending != 1 {
				t.Errorf("%+v", s)
			}
			closed(t, j)
			j, entries = open(t, dir, o)
			defer closed(t, j)
			if len(entries) != 1 || entries[0].Write.IDs[0] != numbered(3).IDs[0] {
				t.Errorf("%+v", entries)
			}
		})
	}
}

// accepts retries until the journal takes write n.
func accepts(t *testing.T, j *journal.Journal, n int) {
	t.Helper()
	for {
		_, err := j.Append(t.Context(), numbered(n))
		if err == nil {
			return
		}
		if !errors.Is(err, journal.ErrDisk) {
			t.Fatal(err)
		}
	}
}

// TestClaimedLate: if a journal's lock could not be taken when it was opened, its entries are
// dropped once it can. The caller of Open was told that any write may be missing.
func TestClaimedLate(t *testing.T) {
	disk, err := smalldisk.New(t, 1<<20)
	if err != nil {
		t.Skipf("this machine makes no small file system: %v", err)
	}
	dir, o := filepath.Join(disk, "journal"), journal.Options{Retry: time.Millisecond}
	j, _ := open(t, dir, o)
	add(t, j, numbered(1))
	closed(t, j)
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	filler := smalldisk.FillNames(t, disk)
	j, entries, err := journal.Open(dir, o)
	if j == nil || !errors.Is(err, journal.ErrDisk) || len(entries) != 0 {
		t.Fatalf("%v, %v, %v", j, entries, err)
	}
	if err := os.RemoveAll(filler); err != nil {
		t.Fatal(err)
	}
	accepts(t, j, 2)
	if _, _, err := journal.Open(dir, o); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("it is open: %v", err)
	}
	closed(t, j)
	j, entries = open(t, dir, o)
	defer closed(t, j)
	if len(entries) != 1 || entries[0].Write.IDs[0] != numbered(2).IDs[0] {
		t.Errorf("%+v", entries)
	}
}

// TestClosedOnAFullDisk: a journal that is closed while the disk is full ends.
func TestClosedOnAFullDisk(t *testing.T) {
	disk, err := smalldisk.New(t, 1<<20)
	if err != nil {
		t.Skipf("this machine makes no small file system: %v", err)
	}
	smalldisk.FillNames(t, disk)
	j, _, err := journal.Open(filepath.Join(disk, "journal"), journal.Options{})
	if !errors.Is(err, journal.ErrDisk) {
		t.Fatal(err)
	}
	closed(t, j)
}
