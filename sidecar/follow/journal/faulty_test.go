package journal_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// faultyDisk is the operating system's disk with a fault.
type faultyDisk struct {
	disk.OS
	mu    sync.Mutex
	fault func(call string) error // nil: no call fails
}

func (d *faultyDisk) set(fault func(call string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

func (d *faultyDisk) try(call string) error {
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(call)
}

func (d *faultyDisk) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := d.try("open"); err != nil {
		return nil, err
	}
	f, err := d.OS.OpenFile(path, flag, perm)
	return &faultyFile{f, d}, err
}

type faultyFile struct {
	disk.File
	disk *faultyDisk
}

// WriteAt writes half of the bytes if it fails.
func (f *faultyFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.disk.try("write"); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.File.WriteAt(b, at)
}

func (f *faultyFile) Sync() error {
	if err := f.disk.try("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

var errBroken = errors.New("the disk is broken")

func failsAt(calls ...string) func(string) error {
	return func(call string) error {
		if slices.Contains(calls, call) {
			return errBroken
		}
		return nil
	}
}

// TestRefusedWrites: a write that was refused after the disk failed is in no later journal,
// wherever the disk failed, and the writes before and after it are.
func TestRefusedWrites(t *testing.T) {
	for _, call := range []string{"write", "sync"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, dir := &faultyDisk{}, t.TempDir()
				o := journal.Options{Disk: d, Retry: time.Second}
				j, _ := open(t, dir, o)
				first := add(t, j, numbered(1))
				d.set(failsAt(call, "open"))
				if _, err := j.Append(t.Context(), numbered(2)); !errors.Is(err, journal.ErrDisk) || !errors.Is(err, errBroken) {
					t.Errorf("err = %v", err)
				}
				d.set(nil)
				if _, err := j.Append(t.Context(), numbered(3)); !errors.Is(err, journal.ErrDisk) || j.Stats().Failed == nil {
					t.Errorf("before the disk was tried again: err = %v, %+v", err, j.Stats())
				}
				<-time.After(1500 * time.Millisecond)
				if s := j.Stats(); s.Failed != nil {
					t.Errorf("the disk was tried again: %+v", s)
				}
				last := add(t, j, numbered(4))
				if last <= first+1 {
					t.Errorf("write %d has the number of one that was refused", last)
				}
				closed(t, j)
				j, entries := open(t, dir, o)
				if len(entries) != 2 || entries[0].Seq != first || entries[1].Seq != last {
					t.Errorf("%+v, want the writes %d and %d", entries, first, last)
				}
				closed(t, j)
			})
		})
	}
}

// TestDoneOnABrokenDisk: a write that ends while the disk fails does not come back, although its
// end could not be recorded.
func TestDoneOnABrokenDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := &faultyDisk{}, t.TempDir()
		o := journal.Options{Disk: d, Retry: time.Second}
		j, _ := open(t, dir, o)
		before, during := add(t, j, numbered(1)), add(t, j, numbered(2))
		kept := add(t, j, numbered(3))
		d.set(failsAt("write", "open"))
		j.Done(before)
		<-time.After(3500 * time.Millisecond)
		j.Done(during)
		<-time.After(3500 * time.Millisecond)
		if s := j.Stats(); s.Pending != 1 || s.Failed == nil {
			t.Errorf("%+v", s)
		}
		d.set(nil)
		<-time.After(1500 * time.Millisecond)
		closed(t, j)
		j, entries := open(t, dir, o)
		if len(entries) != 1 || entries[0].Seq != kept {
			t.Errorf("%+v, want the write %d", entries, kept)
		}
		closed(t, j)
	})
}

// TestWritesBehindAFailure: writes that arrive while the disk fails get an error, and do not wait.
func TestWritesBehindAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &faultyDisk{}
		j, _ := open(t, t.TempDir(), journal.Options{Disk: d, Retry: time.Second})
		release := make(chan struct{})
		d.set(func(string) error { <-release; return errBroken })
		failed := make(chan error, 3)
		for n := range 3 {
			go func() { _, err := j.Append(t.Context(), numbered(n)); failed <- err }()
			synctest.Wait()
		}
		if len(failed) > 0 {
			t.Errorf("a write did not wait for the disk: %v", <-failed)
		}
		close(release)
		synctest.Wait()
		if len(failed) != 3 {
			t.Errorf("%d of 3 writes were told at once", len(failed))
		}
		for range 3 {
			if err := <-failed; !errors.Is(err, journal.ErrDisk) {
				t.Errorf("err = %v", err)
			}
		}
		if s := j.Stats(); s.Pending != 0 {
			t.Errorf("%+v", s)
		}
		d.set(nil)
		<-time.After(1500 * time.Millisecond)
		add(t, j, numbered(4))
		closed(t, j)
	})
}

// TestWithdrawnWhileWritten: a write that its caller gave up during the write is neither pending
// nor in the next journal, and its space is free again.
func TestWithdrawnWhileWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := &faultyDisk{}, t.TempDir()
		j, _ := open(t, dir, journal.Options{Disk: d, Limit: 2 << 10})
		for n := range 40 { // together they have more than the limit
			release := make(chan struct{})
			d.set(func(string) error { <-release; return nil })
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 2)
			for range 2 { // one is written, and one waits behind it
				go func() { _, err := j.Append(ctx, numbered(n)); gone <- err }()
				synctest.Wait()
			}
			cancel()
			for range 2 {
				if err := <-gone; errors.Is(err, journal.ErrFull) || err == nil {
					t.Fatalf("write %d: %v", n, err)
				}
			}
			close(release)
			synctest.Wait()
			if s := j.Stats(); s.Pending != 0 {
				t.Fatalf("write %d: %+v", n, s)
			}
		}
		d.set(nil)
		closed(t, j)
		j, entries := open(t, dir, journal.Options{})
		if len(entries) > 0 {
			t.Errorf("%d writes that nobody waits for", len(entries))
		}
		closed(t, j)
	})
}

// TestLimit: writes that wait for the disk count too.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &faultyDisk{}
		o := journal.Options{Disk: d, Limit: 2 << 10}
		j, _ := open(t, t.TempDir(), o)
		release := make(chan struct{})
		d.set(func(string) error { <-release; return nil })
		ended := make(chan error, 100)
		for n := range 100 {
			go func() { _, err := j.Append(t.Context(), numbered(n)); ended <- err }()
			synctest.Wait()
		}
		close(release)
		full := 0
		for range 100 {
			if err := <-ended; errors.Is(err, journal.ErrFull) {
				full++
			} else if err != nil {
				t.Error(err)
			}
		}
		if s := j.Stats(); s.Bytes > o.Limit || full == 0 || s.Pending != 100-full {
			t.Errorf("%d bytes of %d at most; %d of 100 writes were refused, %d are pending", s.Bytes, o.Limit, full, s.Pending)
		}
		d.set(nil)
		closed(t, j)
	})
}

// TestFilesGo: files that are no longer needed are removed, and only those.
func TestFilesGo(t *testing.T) {
	dir, o := t.TempDir(), journal.Options{Segment: 200}
	j, _ := open(t, dir, o)
	var all []uint64
	for n := range 12 {
		all = append(all, add(t, j, numbered(n)))
	}
	if n := len(files(t, dir)); n < 4 {
		t.Fatalf("%d files", n)
	}
	for i, seq := range all[:len(all)-1] {
		j.Done(seq)
		later := add(t, j, numbered(100)) // behind it, what is done is written down
		j.Done(later)
		if left := filepath.Base(files(t, dir)[0]); i == len(all)-2 && left == "00000000000000000001.journal" {
			t.Error("the first file is there, though nothing of it is needed")
		}
	}
	closed(t, j)
	j, entries := open(t, dir, o)
	if len(entries) != 1 || entries[0].Seq != all[len(all)-1] {
		t.Errorf("%+v", entries)
	}
	closed(t, j)
}

// TestBytes: the journal counts the bytes of the files that are there.
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j, _ := open(t, dir, journal.Options{Segment: 200})
		check := func(when string, n int) {
			t.Helper()
			synctest.Wait()
			size := int64(0)
			for _, name := range files(t, dir) {
				info, err := os.Stat(name)
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			if s := j.Stats(); s.Bytes != size || s.Segments != len(files(t, dir)) {
				t.Errorf("write %d %s: %+v, and %d files have %d bytes", n, when, s, len(files(t, dir)), size)
			}
		}
		for n := range 20 {
			seq := add(t, j, numbered(n))
			check("is added", n) // which may have removed a file
			j.Done(seq)
			check("is done", n)
		}
		closed(t, j)
	})
}

// TestDoneWhileCarried: a write that ends while it is copied to another file is done.
func TestDoneWhileCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dir := &faultyDisk{}, t.TempDir()
		o := journal.Options{Disk: d, Limit: 8 << 10}
		j, _ := open(t, dir, o)
		first := add(t, j, numbered(0))
		done := false
		d.set(func(call string) error {
			// The first write beyond half of the limit compacts the journal.
			if s := j.Stats(); call == "write" && !done && s.Bytes >= o.Limit/2 && s.Pending == 1 {
				j.Done(first)
				done = true
			}
			return nil
		})
		for n := range 200 {
			j.Done(add(t, j, numbered(n)))
			synctest.Wait()
		}
		if s := j.Stats(); !done || s.Pending != 0 {
			t.Errorf("done %t, %+v", done, s)
		}
		d.set(nil)
		closed(t, j)
		j, entries := open(t, dir, o)
		if len(entries) > 0 {
			t.Errorf("%+v", entries)
		}
		closed(t, j)
	})
}
