// Package atomicfile writes a file so that its name shows the old content or
// the whole new one, never a part, even after a loss of power.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write has fill write a new file, makes it durable, and renames it to path.
// On an error path is as it was.
func Write(path string, fill func(w io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(fill(w), w.Flush(), f.Chmod(0o644)); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return Rename(f, path)
}

// Rename makes an open file durable, closes it, and renames it to path.
func Rename(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return Move(f.Name(), path)
}

// Move renames a durable file to path, in the same directory.
func Move(from, path string) error {
	if err := os.Rename(from, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename durable. A system that cannot sync a directory loses
// at most the rename.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync()
	return nil
}
