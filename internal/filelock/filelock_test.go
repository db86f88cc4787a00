//go:build unix

package filelock_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/internal/filelock"
)

// TestTakeAndShare: one holder takes a lock, or several share it.
func TestTakeAndShare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held := func(want bool) {
		t.Helper()
		if got, err := filelock.IsHeld(path); got != want || err != nil {
			t.Errorf("held: %t, %v", got, err)
		}
	}
	if _, err := filelock.Share(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sharing a lock without a file: %v", err)
	}
	held(false)
	taken := lock(t, filelock.Take, path)
	held(true)
	for name, again := range map[string]func(string) (*filelock.Lock, error){"take": filelock.Take, "share": filelock.Share} {
		if _, err := again(path); !errors.Is(err, filelock.ErrHeld) {
			t.Errorf("%s while it is taken: %v", name, err)
		}
	}
	unlock(t, taken)
	one, two := lock(t, filelock.Share, path), lock(t, filelock.Share, path)
	held(false)
	if _, err := filelock.Take(path); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("taking while it is shared: %v", err)
	}
	unlock(t, one)
	unlock(t, two)
	unlock(t, lock(t, filelock.Take, path))
}

// TestOneHolderOfARemovedLock: holders that remove the file before they close the lock never
// hold it at the same time as another.
func TestOneHolderOfARemovedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders, times atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for times.Load() < 2000 && !t.Failed() {
				l, err := filelock.Take(path)
				if errors.Is(err, filelock.ErrHeld) {
					continue
				}
				if err != nil || holders.Add(1) != 1 {
					t.Errorf("two hold the lock, or %v", err)
				}
				times.Add(1)
				holders.Add(-1)
				if err := errors.Join(os.Remove(path), l.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func lock(t *testing.T, how func(string) (*filelock.Lock, error), path string) *filelock.Lock {
	t.Helper()
	l, err := how(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l *filelock.Lock) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
