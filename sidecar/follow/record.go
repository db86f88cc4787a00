package follow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
)

// record is the state of a collection that a process stores for the next process.
type record struct {
	// Clean: the process ended in order and missed no write. It is false while the process runs,
	// and so also after a kill.
	Clean bool `json:"clean"`
	// Reconciled is when the last pass over all rows ended. Drift holds the differences that it
	// found, by route.
	Reconciled time.Time        `json:"reconciled,omitzero"`
	Drift      map[string]Drift `json:"drift,omitempty"`
	// Complete is when the last pass over all rows began that the same process ended: derived data
	// shows every write before that time.
	Complete time.Time `json:"complete,omitzero"`
	// Foreign describes rows that were written past this process. It is nil if there were none
	// since an operator was last told of some.
	Foreign *Foreign `json:"foreign,omitempty"`
	// Place is the position of a pass that has not ended.
	Place *place `json:"place,omitempty"`
}

// place is a position in a pass over all rows. Stages is the number of stages that the pass had.
type place struct {
	Stage  int              `json:"stage"`
	Stages int              `json:"stages"`
	Cursor string           `json:"cursor"`
	Drift  map[string]Drift `json:"drift"`
}

// recordPath returns the file of the record in the folder of a collection.
func recordPath(dir string) string { return filepath.Join(dir, "record.json") }

// readRecord reads a record. Without a file the record is empty, and not clean.
func readRecord(path string) (r record, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w; remove the file, and all rows are compared", path, err)
	}
	return r, nil
}

// write stores the record as JSON in the file at path, which it replaces atomically.
func (r record) write(d disk.Disk, path string) error {
	return atomicfile.WriteOn(d, path, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
}

// recordFile writes the record of a collection while it is followed. One goroutine uses it.
type recordFile struct {
	disk   disk.Disk
	path   string
	log    *slog.Logger
	failed bool // the last attempt failed
}

// save writes the record. If that fails, the next process has to compare more rows.
func (f *recordFile) save(r record) {
	err := r.write(f.disk, f.path)
	if err != nil && !f.failed {
		f.log.Warn("follow: record cannot be written, will retry after the next pass", "error", err)
	}
	f.failed = err != nil
}

// removeFile removes a file durably, if it exists.
func removeFile(d disk.Disk, path string) error {
	err := d.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}
