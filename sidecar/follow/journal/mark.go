package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/internal/atomicfile"
)

// The mark is a file beside the segments of a shared journal. While it exists, every write that the
// process sends to the database was in the journal before. It is removed before the first write
// that the journal lacks. A new mark has new content.
const markName = "complete"

// openMark finds out whether the last process left a mark, and writes the first mark of a journal.
// A damaged journal loses its mark.
func (j *Journal) openMark(damaged bool) error {
	_, err := readMark(j.dir)
	j.interrupted = errors.Is(err, ErrInterrupted)
	switch {
	case err != nil && !j.interrupted:
		return err
	case damaged:
		return j.Interrupt()
	case j.interrupted && len(j.segments) == 0:
		return j.makeMark()
	}
	return nil
}

// Interrupt tells the readers of a shared journal that from now on the process may send writes to
// the database that the journal lacks. It returns once readers can see that the mark is gone.
func (j *Journal) Interrupt() error {
	j.markMu.Lock()
	defer j.markMu.Unlock()
	if j.interrupted {
		return nil
	}
	err := j.o.Disk.Remove(filepath.Join(j.dir, markName))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = j.o.Disk.SyncDir(j.dir)
	}
	if err != nil {
		return fmt.Errorf("journal %s: %w", j.dir, err)
	}
	j.interrupted = true
	return nil
}

// Resume writes a new mark, once every write that the journal lacks has ended and can be read from
// the database; readers then compare all rows. It does nothing unless the journal is interrupted
// and allowed returns true. allowed is called under the lock that Interrupt takes.
func (j *Journal) Resume(allowed func() bool) error {
	j.markMu.Lock()
	defer j.markMu.Unlock()
	if !j.interrupted || !allowed() {
		return nil
	}
	return j.makeMark()
}

func (j *Journal) makeMark() error {
	content := rand.Text()
	err := atomicfile.WriteOn(j.o.Disk, filepath.Join(j.dir, markName), func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		return fmt.Errorf("journal %s: %w", j.dir, err)
	}
	j.interrupted = false
	return nil
}

// Interrupted reports whether readers were told that the journal lacks writes.
func (j *Journal) Interrupted() bool {
	j.markMu.Lock()
	defer j.markMu.Unlock()
	return j.interrupted
}

// readMark returns the content of the mark, or ErrInterrupted without one.
func readMark(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %s", ErrInterrupted, dir)
	}
	return string(b), err
}
