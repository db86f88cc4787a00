package table

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

const (
	magic = "LKNSTBL\n"
	// version 2 added the number formats, LayoutTiles, full precision and the loss. Files
	// of version 1 (float32 rows, no loss) can still be read.
	version = 2
	// headerSize is the space reserved for the header, in front of the first section.
	headerSize = 4096
	// fixedSize is the length of the fields in front of the header's JSON: the magic, the
	// version, the length of the JSON, and the checksum of the rest of the header (u32
	// each).
	fixedSize = len(magic) + 12
	// align is the multiple of bytes at which every section begins.
	align = 64
)

// castagnoli selects CRC-32C, for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileHeader is the JSON part of the header.
type fileHeader struct {
	Meta     Meta    `json:"meta"`
	IDs      idForm  `json:"ids"`
	Grouped  bool    `json:"grouped"`
	Origin   origin  `json:"origin,omitzero"`
	Sections layouts `json:"sections"`

	version uint32
}

// origin links the file of a compacted live table to its logs.
type origin struct {
	// Lineage is the digest of the header of the file with which the first log began.
	Lineage string `json:"lineage,omitempty"`
	// Generation is the generation of the first log that continues the file. Sequence is
	// the number of the last record that the file contains.
	Generation uint64 `json:"generation,omitempty"`
	Sequence   uint64 `json:"sequence,omitempty"`
}

// layouts lists the sections in the order of the file. Features come first, so that they
// can be written before anything else is known. Version 1 has neither Full nor Loss.
type layouts struct {
	Features section `json:"features"`
	Full     section `json:"full"`
	Loss     section `json:"loss"`
	Starts   section `json:"starts"`
	IDs      section `json:"ids"`
	Index    section `json:"index"`
}

// section is a byte range of the file.
type section struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	CRC32C uint32 `json:"crc32c"`
}

// namedSections returns the sections with their names, in the order of the file.
func (h fileHeader) namedSections() []namedSection {
	l := h.Sections
	all := []namedSection{
		{"features", l.Features}, {"full", l.Full}, {"loss", l.Loss}, {"starts", l.Starts}, {"ids", l.IDs}, {"index", l.Index},
	}
	if h.version == 1 {
		return slices.Delete(all, 1, 3)
	}
	return all
}

type namedSection struct {
	name string
	section
}

// alignUp returns the first offset at or after n at which a section can begin.
func alignUp(n int64) int64 { return (n + align - 1) / align * align }

// encode returns the header's headerSize bytes.
func (h fileHeader) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if limit := headerSize - fixedSize; len(text) > limit {
		return nil, fmt.Errorf("%w: the header has %d bytes, at most %d; use shorter names", ErrTable, len(text), limit)
	}
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(text)))
	copy(b[fixedSize:], text)
	binary.LittleEndian.PutUint32(b[16:], headerSum(b))
	return b, nil
}

// headerSum returns the checksum of a header, excluding the checksum field itself.
func headerSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:fixedSize-4], castagnoli), castagnoli, b[fixedSize:headerSize])
}

// parseHeader decodes and checks a header. It does not read the sections.
func parseHeader(b []byte) (fileHeader, error) {
	var h fileHeader
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return h, errors.New("it does not begin with a table's magic; build it with `likeness index`")
	}
	h.version = binary.LittleEndian.Uint32(b[8:])
	if h.version < 1 || h.version > version {
		return h, fmt.Errorf("format version is %d, want 1 to %d: a newer likeness wrote it; read it with that one, or build it again with `likeness index`", h.version, version)
	}
	length := int(min(binary.LittleEndian.Uint32(b[12:]), headerSize))
	if limit := headerSize - fixedSize; length > limit {
		return h, fmt.Errorf("the header claims %d bytes, at most %d", length, limit)
	}
	if want, have := binary.LittleEndian.Uint32(b[16:]), headerSum(b); want != have {
		return h, fmt.Errorf("the header's checksum is %08x, want %08x; build it again with `likeness index`", have, want)
	}
	dec := json.NewDecoder(bytes.NewReader(b[fixedSize : fixedSize+length]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	if h.version == 1 && (h.Meta.Format != "" || h.Meta.Full || h.Sections.Full.Length > 0 || h.Sections.Loss.Length > 0) {
		return h, errors.New("the header of format version 1 has fields of version 2")
	}
	h.Meta.fill()
	return h, h.check(int64(len(b)))
}

// check verifies that the sections fit the counts and the file's size.
func (h fileHeader) check(size int64) error {
	if err := checkMeta(h.Meta); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		section
		want int64
	}{
		{"features", h.Sections.Features, h.Meta.featuresLength()},
		{"full", h.Sections.Full, h.Meta.fullLength()},
		{"loss", h.Sections.Loss, h.lossLength()},
		{"starts", h.Sections.Starts, h.startsLength()},
		{"index", h.Sections.Index, h.indexLength()},
	} {
		if s.Length != s.want {
			return fmt.Errorf("section %s of %d items in %d rows of %d %s needs %d bytes and has %d",
				s.name, h.Meta.Items, h.Meta.Rows, h.Meta.Features, h.Meta.Format, s.want, s.Length)
		}
	}
	at := int64(headerSize)
	for _, s := range h.namedSections() {
		if s.Offset != alignUp(at) || s.Length < 0 || s.Length > size-s.Offset {
			return fmt.Errorf("section %s has %d bytes at %d of a file of %d; the file is truncated or damaged",
				s.name, s.Length, s.Offset, size)
		}
		at = s.Offset + s.Length
	}
	if at != size {
		return fmt.Errorf("%d bytes follow the last section", size-at)
	}
	return nil
}

// featuresLength returns the number of bytes of the packed rows.
func (m Meta) featuresLength() int64 {
	rows := int64(m.Rows)
	if m.Layout == LayoutTiles {
		rows = (rows + rerank.Lanes - 1) / rerank.Lanes * rerank.Lanes
	}
	return rows * int64(m.packing().RowWords()) * 4
}

func (m Meta) fullLength() int64 {
	if !m.Full {
		return 0
	}
	return int64(m.Rows) * int64(m.Features) * 4
}

// lossLength returns the length of the loss section: two float32 for the whole row and two
// for every block.
func (h fileHeader) lossLength() int64 {
	if h.version == 1 {
		return 0
	}
	return 8 * int64(1+h.Meta.packing().Blocks())
}

func (h fileHeader) startsLength() int64 {
	if !h.Grouped {
		return 0
	}
	return 4 * int64(h.Meta.Items+1)
}

func (h fileHeader) indexLength() int64 {
	if h.IDs == formDense || h.Meta.Items == 0 {
		return 0
	}
	return 4 * int64(slotsFor(h.Meta.Items))
}
