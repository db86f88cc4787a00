package torchfile

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// openZip reads the format of PyTorch 1.6 and later: a zip archive of data.pkl and one
// uncompressed record per storage.
func (f *File) openZip(r io.ReaderAt) (any, error) {
	archive, err := zip.NewReader(r, f.size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; the file is cut short or damaged", ErrFormat, err)
	}
	records := make(map[string]*zip.File, len(archive.File))
	prefix := ""
	for _, record := range archive.File {
		if records[record.Name] != nil {
			return nil, fmt.Errorf("%w: the record %q is there twice", ErrFormat, record.Name)
		}
		records[record.Name] = record
		if before, ok := strings.CutSuffix(record.Name, "data.pkl"); ok {
			prefix = before
		}
	}
	if records[prefix+"constants.pkl"] != nil {
		return nil, fmt.Errorf("%w: it is a TorchScript program; save the weights with torch.save(model.state_dict(), path)", ErrFormat)
	}
	if order := records[prefix+"byteorder"]; order != nil {
		b, err := f.record(order, 16)
		if err != nil {
			return nil, err
		}
		if string(b) != "little" {
			return nil, fmt.Errorf("%w: its byte order is %q, want little", ErrFormat, b)
		}
	}
	pickle := records[prefix+"data.pkl"]
	if pickle == nil {
		return nil, fmt.Errorf("%w: the archive has no data.pkl", ErrFormat)
	}
	b, err := f.record(pickle, maxPickle)
	if err != nil {
		return nil, err
	}
	f.storage = func(s storage) ([]byte, error) {
		record := records[prefix+"data/"+s.key]
		if record == nil {
			return nil, fmt.Errorf("%w: the archive has no record data/%s", ErrFormat, s.key)
		}
		b, err := f.record(record, f.size)
		return b, s.check(int64(len(b)), err)
	}
	root, _, err := unpickle(b, func(id tuple) (any, error) { return readStorage(id) })
	return root, err
}

// record reads a record of at most limit bytes and checks its CRC-32.
func (f *File) record(z *zip.File, limit int64) ([]byte, error) {
	size := z.UncompressedSize64
	if z.Method != zip.Store || size != z.CompressedSize64 || size > uint64(min(limit, f.size)) {
		return nil, fmt.Errorf("%w: the record %q has %d bytes (compression %d); records are stored, with %d at most",
			ErrFormat, z.Name, size, z.Method, min(limit, f.size))
	}
	r, err := z.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: the record %q: %w", ErrFormat, z.Name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%w: the record %q: %w; the file is damaged", ErrFormat, z.Name, err)
	}
	return b, nil
}

// check returns an error if fewer bytes are present than the storage needs.
func (s storage) check(have int64, err error) error {
	if want := s.count * storageTypes[s.kind]; err == nil && have < want {
		return fmt.Errorf("%w: the storage %q has %d bytes, want %d: the file is damaged", ErrFormat, s.key, have, want)
	}
	return err
}

// The beginning of the format before PyTorch 1.6.
const (
	legacyMagic    = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
	legacyProtocol = 1001
)

// openLegacy reads the format before PyTorch 1.6: five pickles (magic number, version,
// system, object, keys of the storages), then the storages in the order of the keys, each
// preceded by its count.
func (f *File) openLegacy(r io.ReaderAt) (any, error) {
	b := make([]byte, min(f.size, maxPickle))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, f.size), b); err != nil {
		return nil, err
	}
	storages := map[string]storage{}
	persistent := func(id tuple) (any, error) {
		s, err := readStorage(id)
		if err != nil {
			return nil, err
		}
		if len(id) > 5 && id[5] != nil {
			return nil, fmt.Errorf("the storage %q is a view of another; save the file again with PyTorch 1.6 or later", s.key)
		}
		if before, ok := storages[s.key]; ok && before != s {
			return nil, fmt.Errorf("the storage %q is described twice", s.key)
		}
		storages[s.key] = s
		return s, nil
	}
	var parts [5]any
	at := 0
	for i := range parts {
		v, n, err := unpickle(b[at:], persistent)
		if err == nil && (i == 0 && v != long(legacyMagic) || i == 1 && v != int64(legacyProtocol)) {
			err = ErrFormat
		}
		if err != nil {
			return nil, legacyError(i, err)
		}
		parts[i], at = v, at+n
	}
	offsets, err := f.legacyOffsets(r, int64(at), parts[4], storages)
	if err != nil {
		return nil, err
	}
	f.storage = func(s storage) ([]byte, error) {
		from, ok := offsets[s.key]
		if !ok {
			return nil, fmt.Errorf("%w: there is no storage %q", ErrFormat, s.key)
		}
		b := make([]byte, s.count*storageTypes[s.kind])
		_, err := r.ReadAt(b, from)
		return b, err
	}
	return parts[3], nil
}

func legacyError(part int, err error) error {
	if part < 2 {
		return fmt.Errorf("%w: it begins neither like a zip archive nor like the format before PyTorch 1.6", ErrFormat)
	}
	return err
}

// legacyOffsets returns the position of each storage, and checks that all storages lie
// within the file.
func (f *File) legacyOffsets(r io.ReaderAt, at int64, keys any, storages map[string]storage) (map[string]int64, error) {
	l, ok := keys.(*list)
	if !ok {
		return nil, fmt.Errorf("%w: the keys of the storages are missing", ErrFormat)
	}
	offsets := map[string]int64{}
	for _, key := range l.values {
		name, _ := key.(string)
		s, ok := storages[name]
		if !ok {
			return nil, fmt.Errorf("%w: the storage %q is of no tensor", ErrFormat, name)
		}
		var count [8]byte
		if _, err := r.ReadAt(count[:], at); err != nil {
			return nil, fmt.Errorf("%w: the file ends before the storage %q: it is cut short", ErrFormat, name)
		}
		at += 8
		if n := int64(binary.LittleEndian.Uint64(count[:])); n != s.count {
			return nil, fmt.Errorf("%w: the storage %q has %d numbers, want %d", ErrFormat, name, n, s.count)
		}
		size := storageTypes[s.kind]
		if s.count > (f.size-at)/size {
			return nil, fmt.Errorf("%w: the storage %q of %d numbers goes beyond the file's end: it is cut short", ErrFormat, name, s.count)
		}
		offsets[name], at = at, at+s.count*size
	}
	return offsets, nil
}
