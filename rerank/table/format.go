package table

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	magic   = "LKNSTBL\n"
	version = 1
	// headerSize is the room of the header in front of the first section.
	headerSize = 4096
	// fixedSize is what stands in front of the header's JSON: the magic, the
	// version, the length of the JSON and the checksum of all the rest of the
	// header (u32 each).
	fixedSize = len(magic) + 12
	// align is the multiple on which every section begins.
	align = 64
)

// castagnoli is CRC-32C, which processors compute at memory speed.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileHeader is the JSON of the header.
type fileHeader struct {
	Meta     Meta    `json:"meta"`
	IDs      idForm  `json:"ids"`
	Grouped  bool    `json:"grouped"`
	Sections layouts `json:"sections"`
}

// layouts are the sections in the order of the file. Features are first, so that
// they can be written before anything else is known.
type layouts struct {
	Features section `json:"features"`
	Starts   section `json:"starts"`
	IDs      section `json:"ids"`
	Index    section `json:"index"`
}

// section is a part of the file.
type section struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	CRC32C uint32 `json:"crc32c"`
}

// named are the sections with their names, in the order of the file.
func (l layouts) named() []namedSection {
	return []namedSection{{"features", l.Features}, {"starts", l.Starts}, {"ids", l.IDs}, {"index", l.Index}}
}

type namedSection struct {
	name string
	section
}

// alignUp is the next offset on which a section can begin.
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

// headerSum is the checksum of a header without the checksum's own place.
func headerSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:fixedSize-4], castagnoli), castagnoli, b[fixedSize:headerSize])
}

// parseHeader reads and checks a header, without the sections' content.
func parseHeader(b []byte) (fileHeader, error) {
	var h fileHeader
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return h, errors.New("it does not begin with a table's magic; build it with `likeness index`")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return h, fmt.Errorf("format version is %d, want %d; build it again with `likeness index`", v, version)
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
	return h, h.check(int64(len(b)))
}

// check holds the sections against the counts and the file's size.
func (h fileHeader) check(size int64) error {
	if err := checkMeta(h.Meta); err != nil {
		return err
	}
	if want := int64(h.Meta.Rows) * int64(h.Meta.Features) * 4; h.Sections.Features.Length != want {
		return fmt.Errorf("%d rows of %d need %d bytes, their section has %d",
			h.Meta.Rows, h.Meta.Features, want, h.Sections.Features.Length)
	}
	if want := h.startsLength(); h.Sections.Starts.Length != want {
		return fmt.Errorf("the starts of %d items need %d bytes, their section has %d", h.Meta.Items, want, h.Sections.Starts.Length)
	}
	if want := h.indexLength(); h.Sections.Index.Length != want {
		return fmt.Errorf("the index of %d items needs %d bytes, its section has %d", h.Meta.Items, want, h.Sections.Index.Length)
	}
	at := int64(headerSize)
	for _, s := range h.Sections.named() {
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
