//go:build unix

package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/likenessdb/likeness/rerank/model"
)

// TestDirectoryStaysInside: a link out of the directory is not followed, one
// inside it is, and a pipe is not waited for.
func TestDirectoryStaysInside(t *testing.T) {
	outside, dir := smallDirectory(t), smallDirectory(t)
	weights := filepath.Join(dir, "model.safetensors")
	replace := func(put func() error) {
		t.Helper()
		if err := errors.Join(os.Remove(weights), put()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(weights, filepath.Join(dir, "v2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("v2", weights); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	replace(func() error { return os.Symlink(filepath.Join(outside, "model.safetensors"), weights) })
	if _, err := model.Open(dir); !errors.Is(err, model.ErrFile) {
		t.Errorf("link: err = %v, want ErrFile", err)
	}
	replace(func() error { return syscall.Mkfifo(weights, 0o644) })
	if _, err := model.Open(dir); !errors.Is(err, model.ErrFile) {
		t.Errorf("pipe: err = %v, want ErrFile", err)
	}
}
