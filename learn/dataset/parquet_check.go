package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/format"
)

// maxFooter limits the footer's length, far above a file of thousands of columns.
const maxFooter = 64 << 20

// checkFooter walks the footer to check its lengths before the library decodes it.
func checkFooter(r io.ReaderAt, size int64) error {
	const magic = "PAR1"
	if size < 12 {
		return fmt.Errorf("%d bytes are too few for a Parquet file", size)
	}
	var head [4]byte
	var tail [8]byte
	if err := readAt(r, head[:], 0); err != nil {
		return err
	}
	if err := readAt(r, tail[:], size-8); err != nil {
		return err
	}
	switch {
	case string(head[:]) != magic:
		return fmt.Errorf("it does not begin with %q: it is not a plain Parquet file", magic)
	case string(tail[4:]) != magic:
		return fmt.Errorf("it does not end with %q: the file is cut short or encrypted", magic)
	}
	length := int64(binary.LittleEndian.Uint32(tail[:4]))
	if limit := min(size-12, maxFooter); length > limit {
		return fmt.Errorf("the footer claims %d bytes, at most %d are allowed in a file of %d", length, limit, size)
	}
	footer := make([]byte, length)
	if err := readAt(r, footer, size-8-length); err != nil {
		return err
	}
	if err := (&compact{data: footer}).walkFields(nil); err != nil {
		return fmt.Errorf("the footer is damaged: %w", err)
	}
	return nil
}

// checkPages walks the headers of a column's pages before any page is decoded.
func (p *parquetFile) checkPages(group, column int) error {
	columns := p.Metadata().RowGroups[group].Columns
	if column >= len(columns) {
		return fmt.Errorf("row group %d has %d columns, want more than %d: the file is damaged", group, len(columns), column)
	}
	chunk := columns[column]
	meta := chunk.MetaData
	if chunk.FilePath != "" || chunk.CryptoMetadata.Value != nil {
		return fmt.Errorf("row group %d lies in another file or is encrypted", group)
	}
	if meta.Codec == format.Lz4 || meta.Codec == format.Lz4Raw { // on a damaged page of these codecs the library allocates without limit
		return fmt.Errorf("row group %d is packed with %s; write the file with snappy, gzip, zstd, brotli or without", group, meta.Codec)
	}
	at := meta.DataPageOffset
	if meta.DictionaryPageOffset != 0 {
		at = meta.DictionaryPageOffset
	}
	end := at + meta.TotalCompressedSize
	if at < 4 || meta.TotalCompressedSize < 0 || end < at || end > p.size {
		return fmt.Errorf("row group %d claims bytes %d to %d of a file of %d: the file is damaged", group, at, end, p.size)
	}
	for at < end {
		header, err := p.readPageHeader(at, end)
		if err == nil {
			err = header.checkClaims(end - at)
		}
		if err != nil {
			return fmt.Errorf("row group %d: the page at byte %d is damaged: %w", group, at, err)
		}
		at += header.length + header.compressed
	}
	return nil
}

// pageHeader holds the sizes that the header of a page claims.
type pageHeader struct {
	length                           int64 // bytes of the header itself
	compressed, uncompressed, values int64 // −1 if absent
}

// checkClaims compares the claimed sizes with the number of bytes left of the column, header
// included. The limits lie above the best compression ratios, and allow a small page
// to grow to 32 MiB and 8 million values with any codec.
func (h pageHeader) checkClaims(left int64) error {
	const (
		ratio  = 1100 // gzip compresses at most 1,032 bytes to one
		bytes  = 32 << 20
		values = 8 << 20
	)
	switch {
	case h.compressed < 0 || h.uncompressed < 0:
		return errors.New("it has no size")
	case h.compressed > left-h.length:
		return fmt.Errorf("it claims %d bytes, %d are left", h.compressed, left-h.length)
	case h.uncompressed > bytes+ratio*h.compressed:
		return fmt.Errorf("it claims %d bytes, packed into %d", h.uncompressed, h.compressed)
	case h.values > values+64*h.uncompressed:
		return fmt.Errorf("it claims %d values in %d bytes", h.values, h.uncompressed)
	default:
		return nil
	}
}

// readPageHeader walks the header of a page. Statistics can make a header long.
func (p *parquetFile) readPageHeader(at, end int64) (pageHeader, error) {
	const most = 16 << 20
	for size := int64(1 << 10); ; size *= 8 {
		b := make([]byte, min(size, end-at, most))
		if err := readAt(p.file, b, at); err != nil {
			return pageHeader{}, err
		}
		h, err := parsePageHeader(b)
		if errors.Is(err, errShort) && int64(len(b)) == size {
			continue
		}
		return h, err
	}
}

func parsePageHeader(b []byte) (pageHeader, error) {
	c := &compact{data: b}
	h := pageHeader{compressed: -1, uncompressed: -1, values: -1}
	number := func(to *int64) func(int64, byte) (bool, error) {
		return func(id int64, kind byte) (bool, error) {
			if id != 1 || kind == compactStruct {
				return false, nil
			}
			n, err := c.zigzag()
			*to = max(*to, n)
			return true, err
		}
	}
	err := c.walkFields(func(id int64, kind byte) (known bool, err error) {
		switch {
		case id == 2 && kind != compactStruct:
			h.uncompressed, err = c.zigzag()
		case id == 3 && kind != compactStruct:
			h.compressed, err = c.zigzag()
		case (id == 5 || id == 7 || id == 8) && kind == compactStruct: // field ids of the data, dictionary and version-2 data page headers
			err = c.walkFields(number(&h.values))
		default:
			return false, nil
		}
		return true, err
	})
	h.length = int64(c.offset)
	return h, err
}

// readAt fills b from the given offset.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("reading %d bytes at %d: %w", len(b), at, err)
	}
	return nil
}
