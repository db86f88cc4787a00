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
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o700), os.Symlink(outside, filepath.Join(dir, "sub", "out"))); err != nil {
		t.Fatal(err)
	}
	back := filepath.Join("..", filepath.Base(outside))
	for to, put := range map[string]func(to, at string) error{
		filepath.Join(outside, "model.safetensors"):      os.Symlink, // absolute
		filepath.Join(back, "model.safetensors"):         os.Symlink, // by the parent
		filepath.Join("sub", "out", "model.safetensors"): os.Symlink, // by a link of a folder inside
		filepath.Join(dir, "v2"):                         os.Symlink, // back in by an absolute path
		"/proc/self/cwd/" + back + "/model.safetensors":  os.Symlink,
		"model.safetensors":                              os.Symlink, // to itself
		"/dev/zero":                                      os.Symlink,
		"sub":                                            os.Symlink, // a folder
		"":                                               func(_, at string) error { return syscall.Mkfifo(at, 0o644) },
		"none":                                           os.Symlink,
		"v2\x00":                                         func(_, at string) error { return os.WriteFile(at, nil, 0o600) },
		filepath.Join("sub", "..", "..", filepath.Base(dir), "v2"): os.Symlink, // out and in again
	} {
		for _, file := range []string{"model.safetensors", "config.json", "distilled.safetensors"} {
			path := filepath.Join(dir, file)
			kept, err := os.ReadFile(path)
			_ = os.Remove(path)
			if err := put(to, path); err != nil {
				t.Fatal(err)
			}
			m, opened := model.Open(dir)
			if !errors.Is(opened, model.ErrFile) && (to != "none" || file != "distilled.safetensors") {
				t.Errorf("%s as %q: %v, %v; want ErrFile", file, to, m, opened)
			}
			_ = os.Remove(path)
			if err == nil {
				write(t, path, kept)
			}
		}
	}
	replace(func() error { return os.Symlink(filepath.Join(outside, "model.safetensors"), weights) })
	if _, err := model.Open(dir); !errors.Is(err, model.ErrFile) {
		t.Errorf("link: err = %v, want ErrFile", err)
	}
	replace(func() error { return syscall.Mkfifo(weights, 0o644) })
	if _, err := model.Open(dir); !errors.Is(err, model.ErrFile) {
		t.Errorf("pipe: err = %v, want ErrFile", err)
	}
}
