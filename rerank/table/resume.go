package table

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/likenessdb/likeness/rerank/internal/atomicfile"
)

// checkpoint is what path.part.json says: how much of the growing files counts.
type checkpoint struct {
	Meta    Meta   `json:"meta"`
	Cursor  string `json:"cursor"`
	Items   int    `json:"items"`
	Rows    int    `json:"rows"`
	Journal int64  `json:"journal"` // bytes of path.part.ids
	// Sums are the checksums of the features and of the journal.
	Sums [2]uint32 `json:"crc32c"`
}

func (w *Writer) checkpointPath() string { return w.path + ".part.json" }

// Checkpoint makes everything appended so far durable, with a cursor of the
// caller's, such as a scan's, that Resume gives back.
func (w *Writer) Checkpoint(cursor string) error {
	for _, a := range []*appendFile{w.features, w.journal} {
		if err := a.flush(); err != nil {
			return err
		}
		if err := a.file.Sync(); err != nil {
			return fmt.Errorf("writing %s: %w", a.file.Name(), err)
		}
	}
	c := checkpoint{
		Meta: w.meta, Cursor: cursor, Items: w.ids.len(), Rows: w.rows(),
		Journal: w.journal.length, Sums: [2]uint32{w.features.sum, w.journal.sum},
	}
	err := atomicfile.Write(w.checkpointPath(), func(out io.Writer) error { return json.NewEncoder(out).Encode(c) })
	w.saved = w.saved || err == nil
	return err
}

// Resume goes on with a table at its last checkpoint and returns that one's
// cursor. It returns os.ErrNotExist if there is none, and ErrTable if the
// checkpoint is damaged or of a table with another model, version, collection,
// kind or length of a feature row than meta's.
func Resume(path string, meta Meta) (w *Writer, cursor string, err error) {
	w = &Writer{path: path, starts: []int32{0}, saved: true}
	c, err := readCheckpoint(w.checkpointPath())
	if err != nil {
		return nil, "", err
	}
	w.meta = c.Meta
	if meta.Created = c.Meta.Created; meta != c.Meta {
		return nil, "", fmt.Errorf("%w: the checkpoint at %s is of %+v, not of %+v; begin again", ErrTable, path, c.Meta, meta)
	}
	if err := w.open(int64(c.Rows)*int64(meta.Features)*4, c.Journal); err != nil {
		return nil, "", err
	}
	if err := w.replay(c); err != nil {
		w.done = true
		_, _ = w.features.file.Close(), w.journal.file.Close()
		return nil, "", fmt.Errorf("%w: the checkpoint at %s: %w; begin again", ErrTable, path, err)
	}
	return w, c.Cursor, nil
}

func readCheckpoint(path string) (c checkpoint, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("reading the checkpoint: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%w: %s: %w", ErrTable, path, err)
	}
	if err := checkMeta(c.Meta); err != nil {
		return c, err
	}
	if c.Items < 0 || c.Rows < c.Items || c.Rows > MaxRows || c.Journal < 0 {
		return c, fmt.Errorf("%w: %s: %d items in %d rows and %d bytes of ids", ErrTable, path, c.Items, c.Rows, c.Journal)
	}
	return c, nil
}

// replay reads the ids back.
func (w *Writer) replay(c checkpoint) error {
	if have := [2]uint32{w.features.sum, w.journal.sum}; have != c.Sums {
		return fmt.Errorf("the files have the checksums %08x, want %08x", have, c.Sums)
	}
	r := bufio.NewReader(io.NewSectionReader(w.journal.file, 0, c.Journal))
	for range c.Items {
		rows, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		length, err := binary.ReadUvarint(r)
		if err != nil || length > uint64(c.Journal) || rows > uint64(c.Rows-w.rows()) {
			return errors.Join(err, fmt.Errorf("item %d has %d rows and an id of %d bytes", w.ids.len(), rows, length))
		}
		tagged := make([]byte, length)
		if _, err := io.ReadFull(r, tagged); err != nil {
			return err
		}
		id, err := parseID(string(tagged))
		if err != nil {
			return err
		}
		w.add(id, int(rows))
	}
	if w.rows() != c.Rows {
		return fmt.Errorf("the ids have %d rows, the features %d", w.rows(), c.Rows)
	}
	return nil
}
