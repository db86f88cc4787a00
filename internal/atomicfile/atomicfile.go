// Package atomicfile writes a file so that its name shows the old content or
// the whole new one, never a part, even after a loss of power.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/likenessdb/likeness/internal/disk"
)

// Write has fill write a new file, makes it durable, and renames it to path.
// On an error path is as it was.
func Write(path string, fill func(w io.Writer) error) error { return WriteOn(disk.OS{}, path, fill) }

// WriteOn is Write on any disk.
func WriteOn(d disk.Disk, path string, fill func(w io.Writer) error) (err error) {
	f, err := d.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = d.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(fill(w), w.Flush(), f.Chmod(0o644)); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return Rename(d, f, path)
}

// Rename makes an open file of d durable, closes it, and renames it to path.
func Rename(d disk.Disk, f disk.File, path string) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return Move(d, f.Name(), path)
}

// Move renames a durable file of d to path, in the same directory.
func Move(d disk.Disk, from, path string) error {
	if err := d.Rename(from, path); err != nil {
		return err
	}
	// A system that cannot sync a directory loses at most the rename.
	_ = d.SyncDir(filepath.Dir(path))
	return nil
}
