package table

import (
	"bytes"
	"fmt"

	"github.com/likenessdb/likeness/internal/largepages"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// Open maps a table's file and verifies the checksums of all its sections, which reads
// every byte once. It returns ErrTable, naming both sides if the table belongs to another
// model version or collection than expected, or the system's error.
func Open(path string, expect Expect) (*Table, error) {
	file, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening table: %w", err)
	}
	largepages.Advise(file.Bytes)
	var t *Table
	h, err := parseHeader(file.Bytes)
	if err == nil {
		t, err = decode(file.Bytes, h, expect)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, path, err)
	}
	t.file = file
	h.Sections.Full.forget(file) // a search reads few of these rows
	return t, nil
}

// decode returns a table that aliases b, which begins with the header h.
func decode(b []byte, h fileHeader, expect Expect) (_ *Table, err error) {
	if err := expect.check(h.Meta); err != nil {
		return nil, err
	}
	if err := checkSums(b, h); err != nil {
		return nil, err
	}
	t := &Table{meta: h.Meta, index: numbers[uint32](h.Sections.Index.of(b))}
	t.packed = rerank.Packed{
		Packing: h.Meta.packing(), Rows: h.Meta.Rows, Tiled: h.Meta.Layout == LayoutTiles,
		Words: numbers[uint32](h.Sections.Features.of(b)),
	}
	if h.Meta.plain() {
		t.plain = rerank.Matrix{Rows: h.Meta.Rows, Cols: h.Meta.Features, Data: numbers[float32](h.Sections.Features.of(b))}
	}
	if h.Meta.Full {
		t.full = rerank.Matrix{Rows: h.Meta.Rows, Cols: h.Meta.Features, Data: numbers[float32](h.Sections.Full.of(b))}
	}
	if t.loss, err = decodeLoss(h, h.Sections.Loss.of(b)); err != nil {
		return nil, err
	}
	if h.Grouped {
		t.starts = numbers[int32](h.Sections.Starts.of(b))
	}
	if err := checkStarts(t.starts, h.Meta); err != nil {
		return nil, err
	}
	if t.ids, err = decodeIDs(h.IDs, h.Meta.Items, h.Sections.IDs.of(b)); err != nil {
		return nil, err
	}
	if len(t.index) == 0 {
		return t, nil
	}
	return t, t.index.check(h.Meta.Items)
}

func (e Expect) check(m Meta) error {
	switch {
	case e.ModelVersion != "" && e.ModelVersion != m.ModelVersion:
		return fmt.Errorf("it was built by version %s of the model, the route serves version %s; build it again with `likeness index`",
			m.ModelVersion, e.ModelVersion)
	case e.Collection != "" && e.Collection != m.Collection:
		return fmt.Errorf("it was built from the collection %q, the route serves %q", m.Collection, e.Collection)
	}
	return nil
}

// of returns the section's bytes within the file b. fileHeader.check has verified that they
// exist.
func (s section) of(b []byte) []byte { return b[s.Offset : s.Offset+s.Length] }

// forget takes the section's pages out of the process's memory until they are used.
func (s section) forget(file *mmap.Map) { file.Forget(s.Offset, s.Offset+s.Length) }

// checkSums verifies all bytes behind the header: the checksums of the sections, and zeros
// between them.
func checkSums(b []byte, h fileHeader) error {
	at := int64(headerSize)
	for _, s := range h.namedSections() {
		if gap := b[at:s.Offset]; len(bytes.Trim(gap, "\x00")) > 0 {
			return fmt.Errorf("the bytes in front of section %s are not zero; the file is damaged", s.name)
		}
		if have := checksum(s.of(b)); have != s.CRC32C {
			return fmt.Errorf("section %s has the checksum %08x, want %08x; the file is damaged: build it again with `likeness index`",
				s.name, have, s.CRC32C)
		}
		at = s.Offset + s.Length
	}
	return nil
}
