package statedir_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/statedir"
)

// TestLock: one sidecar has a folder, and the error of another says what to do.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	lock, err := statedir.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := statedir.Lock(dir); !errors.Is(err, filelock.ErrHeld) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "give each sidecar its own") {
		t.Errorf("a second sidecar: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if again, err := statedir.Lock(dir); err != nil || again.Close() != nil {
		t.Errorf("after the first one has ended: %v", err)
	}
}
