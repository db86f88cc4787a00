package table

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/rerank"
)

// checkpoint is the content of path.part.json: how much of the growing files is valid.
type checkpoint struct {
	Meta   Meta   `json:"meta"`
	Cursor string `json:"cursor"`
	Items  int    `json:"items"`
	Rows   int    `json:"rows"`
	// Features and Journal are byte counts: of path.part after its header, and of
	// path.part.ids.
	Features int64 `json:"features"`
	Journal  int64 `json:"journal"`
	// Loss is the loss section so far. Tile holds the rows that do not fill a tile.
	Loss []byte `json:"loss"`
	Tile []byte `json:"tile,omitempty"`
	// Sums are checksums of the features, of the full-precision rows, of the journal, and
	// of Loss and Tile together.
	Sums [4]uint32 `json:"crc32c"`
}

func (w *Writer) checkpointPath() string { return w.path + ".part.json" }

// Checkpoint makes everything appended so far durable, together with a cursor (such as a
// scan's position), which Resume returns.
func (w *Writer) Checkpoint(cursor string) error {
	for _, a := range w.files() {
		if err := a.flush(); err != nil {
			return err
		}
		if err := a.file.Sync(); err != nil {
			return fmt.Errorf("writing %s: %w", a.file.Name(), err)
		}
	}
	c := checkpoint{
		Meta: w.meta, Cursor: cursor, Items: w.ids.len(), Rows: w.Rows(),
		Features: w.features.length - headerSize, Journal: w.journal.length,
		Loss: encodeLoss(w.pack.loss), Tile: wordBytes(w.pack.rest()),
	}
	c.Sums = w.sums(c)
	err := atomicfile.WriteOn(w.disk, w.checkpointPath(), func(out io.Writer) error { return json.NewEncoder(out).Encode(c) })
	w.saved = w.saved || err == nil
	return err
}

func (w *Writer) sums(c checkpoint) [4]uint32 {
	held := crc32.Update(crc32.Checksum(c.Loss, castagnoli), castagnoli, c.Tile)
	return [4]uint32{w.features.sum, w.full.sum, w.journal.sum, held}
}

// Resume continues a table from its last checkpoint and returns the checkpoint's cursor. It
// returns os.ErrNotExist if there is no checkpoint, and ErrTable if the checkpoint is
// damaged or if its model, version, collection, kind or row length differ from meta's.
func Resume(path string, meta Meta) (w *Writer, cursor string, err error) {
	w = &Writer{disk: disk.OS{}, path: path, starts: []int32{0}, saved: true}
	c, err := readCheckpoint(w.checkpointPath())
	if err != nil {
		return nil, "", err
	}
	w.meta = c.Meta
	meta.fill()
	if meta.Created = c.Meta.Created; meta != c.Meta {
		return nil, "", fmt.Errorf("%w: the checkpoint at %s is of %+v, not of %+v; begin again", ErrTable, path, c.Meta, meta)
	}
	meta.Rows = c.Rows
	if err := w.open(c.Features, meta.fullLength(), c.Journal); err != nil {
		return nil, "", err
	}
	if err := errors.Join(w.restore(c), w.replay(c)); err != nil {
		w.done = true
		w.closeFiles()
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
	if c.Items < 0 || c.Rows < c.Items || c.Rows > MaxRows || c.Journal < 0 || c.Features < 0 {
		return c, fmt.Errorf("%w: %s: %d items in %d rows, %d bytes of features and %d of ids",
			ErrTable, path, c.Items, c.Rows, c.Features, c.Journal)
	}
	return c, nil
}

// restore resets the packer to its state at the checkpoint.
func (w *Writer) restore(c checkpoint) error {
	w.pack = newPacker(w.meta)
	h := fileHeader{Meta: w.meta, version: version}
	if int64(len(c.Loss)) != h.lossLength() {
		return fmt.Errorf("a loss of %d bytes, want %d", len(c.Loss), h.lossLength())
	}
	var err error
	if w.pack.loss, err = decodeLoss(h, c.Loss); err != nil {
		return err
	}
	held, row := 0, int64(len(w.pack.row)*4)
	if w.pack.tiled {
		held = c.Rows % rerank.Lanes
	}
	if want := int64(c.Rows-held) * row; c.Features != want || len(c.Tile) != min(held, 1)*len(w.pack.tile)*4 {
		return fmt.Errorf("%d rows have %d bytes and a tile of %d", c.Rows, c.Features, len(c.Tile))
	}
	copy(w.pack.tile, numbers[uint32](c.Tile))
	w.pack.held = held
	return nil
}

// replay reads the ids back from the journal.
func (w *Writer) replay(c checkpoint) error {
	if have := w.sums(c); have != c.Sums {
		return fmt.Errorf("the files have the checksums %08x, want %08x", have, c.Sums)
	}
	r := bufio.NewReader(io.NewSectionReader(w.journal.file, 0, c.Journal))
	for range c.Items {
		rows, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		length, err := binary.ReadUvarint(r)
		if err != nil || length > uint64(c.Journal) || rows > uint64(c.Rows-w.Rows()) {
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
	if w.Rows() != c.Rows {
		return fmt.Errorf("the ids have %d rows, the features %d", w.Rows(), c.Rows)
	}
	return nil
}
