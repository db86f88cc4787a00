// Package atomicfile writes a file so that its name shows either the old content or the
// complete new content, even after a power failure.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/likenessdb/likeness/internal/disk"
)

// Write calls fill to write a new file, makes the file durable, and renames it to path.
// After an error, path is unchanged.
func Write(path string, fill func(w io.Writer) error) error { return WriteOn(disk.OS{}, path, fill) }

// WriteOn is Write on a given disk.
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
	// If the system cannot sync a directory, at most the rename is lost.
	_ = d.SyncDir(filepath.Dir(path))
	return nil
}
