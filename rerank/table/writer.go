package table

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// Writer builds a table file from batches. Packed features go straight to disk; ids stay in
// memory, 8 bytes each if they are numbers. A Writer is not safe for concurrent use.
//
// Until Close the table grows in files beside its path: path.part holds the features,
// path.part.full the full-precision features, path.part.ids the ids, and path.part.json the
// last checkpoint.
type Writer struct {
	disk     disk.Disk
	path     string
	meta     Meta
	pack     *packer
	ids      idColumn
	starts   []int32 // one entry per item and the end, even if no item owns several rows
	features *appendFile
	full     *appendFile // empty unless Meta.Full
	journal  *appendFile // ids and row counts, for Resume
	saved    bool        // a checkpoint exists
	done     bool
	origin   origin // of a live table
}

// NewWriter starts a table at path. meta names the model, its version, the collection, and
// the length of a feature row. NewWriter fills in the counts and, if empty, the time. It
// replaces leftovers of an unfinished Writer for the same path.
func NewWriter(path string, meta Meta) (*Writer, error) { return newWriter(disk.OS{}, path, meta) }

func newWriter(d disk.Disk, path string, meta Meta) (*Writer, error) {
	meta.Rows, meta.Items = 0, 0
	meta.fill()
	if meta.Created == "" {
		meta.Created = time.Now().UTC().Format(time.RFC3339)
	}
	if err := checkMeta(meta); err != nil {
		return nil, err
	}
	if _, err := (fileHeader{Meta: meta}).encode(); err != nil {
		return nil, err // names too long: fail now, not at the end
	}
	w := &Writer{disk: d, path: path, meta: meta, pack: newPacker(meta), starts: []int32{0}}
	if err := removeAll(w.disk, w.checkpointPath()); err != nil {
		return nil, err
	}
	if err := w.open(0, 0, 0); err != nil {
		return nil, err
	}
	return w, nil
}

// open opens the growing files and truncates them to the given lengths.
func (w *Writer) open(features, full, journal int64) (err error) {
	for _, f := range []struct {
		file         **appendFile
		suffix       string
		skip, length int64
	}{
		{&w.features, ".part", headerSize, features},
		{&w.full, ".part.full", 0, full},
		{&w.journal, ".part.ids", 0, journal},
	} {
		if *f.file, err = openAppend(w.disk, w.path+f.suffix, f.skip, f.skip+f.length); err != nil {
			w.closeFiles()
			return err
		}
	}
	return nil
}

func (w *Writer) files() []*appendFile { return []*appendFile{w.features, w.full, w.journal} }

// closeFiles closes the open files. Buffered data is lost.
func (w *Writer) closeFiles() {
	for _, f := range w.files() {
		if f != nil {
			_ = f.file.Close()
		}
	}
}

// Append adds items of one row each: ids[i] has row i of features. It returns ErrTable for
// a row of the wrong length or an id that names nothing. An id that occurs twice is
// detected by Close.
func (w *Writer) Append(ids []rerank.ID, features rerank.Matrix) error {
	if len(ids) != features.Rows {
		return fmt.Errorf("%w: %d ids for %d rows", ErrTable, len(ids), features.Rows)
	}
	for i, id := range ids {
		if err := w.AppendGroup(id, features.Slice(i, i+1)); err != nil {
			return err
		}
	}
	return nil
}

// AppendGroup adds one item that owns all of the rows, at least one. It returns the same
// errors as Append.
func (w *Writer) AppendGroup(id rerank.ID, rows rerank.Matrix) error {
	switch {
	case id.IsZero():
		return fmt.Errorf("%w: item %d has no id", ErrTable, w.ids.len())
	case rows.Rows < 1:
		return fmt.Errorf("%w: item %s owns no row", ErrTable, id)
	case rows.Cols != w.meta.Features || len(rows.Data) != rows.Rows*rows.Cols:
		return fmt.Errorf("%w: item %s has %d numbers in rows of %d, want rows of %d",
			ErrTable, id, len(rows.Data), rows.Cols, w.meta.Features)
	case rows.Rows > MaxRows-w.Rows():
		return fmt.Errorf("%w: more than %d rows; divide the collection", ErrTable, MaxRows)
	}
	if err := w.write(id, rows); err != nil {
		return err
	}
	tagged := appendID(nil, id)
	record := binary.AppendUvarint(nil, uint64(rows.Rows))
	record = binary.AppendUvarint(record, uint64(len(tagged)))
	if err := w.journal.write(append(record, tagged...)); err != nil {
		return err
	}
	w.add(id, rows.Rows)
	return nil
}

// appendPacked adds rows of LayoutRows that are already packed. The caller must merge their
// loss.
func (w *Writer) appendPacked(id rerank.ID, packed []uint32, full []float32, rows int) error {
	if err := errors.Join(w.features.write(wordBytes(packed)), w.full.write(floatBytes(full))); err != nil {
		return err
	}
	w.add(id, rows)
	return nil
}

// write packs rows and appends them to the features.
func (w *Writer) write(id rerank.ID, rows rerank.Matrix) error {
	for r := range rows.Rows {
		packed, ok := w.pack.add(rows.Row(r))
		if !ok {
			return fmt.Errorf("%w: item %s has %w", ErrTable, id, w.pack.tooLarge())
		}
		if err := w.features.write(wordBytes(packed)); err != nil {
			return err
		}
	}
	if w.meta.Full {
		return w.full.write(floatBytes(rows.Data))
	}
	return nil
}

func (w *Writer) add(id rerank.ID, rows int) {
	w.ids.add(id)
	w.starts = append(w.starts, w.starts[len(w.starts)-1]+int32(rows))
}

// Rows returns the number of rows appended so far.
func (w *Writer) Rows() int { return int(w.starts[len(w.starts)-1]) }

// Items returns the number of items appended so far.
func (w *Writer) Items() int { return w.ids.len() }

// Close checks the ids, completes the file, and renames it to its path in one step. On an
// error, the path is unchanged. Close returns ErrTable for an id that occurs twice.
func (w *Writer) Close() error {
	if w.done {
		return nil
	}
	err := w.finish()
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	w.done = true
	_, _ = w.journal.file.Close(), w.full.file.Close()
	return removeAll(w.disk, w.path+".part.ids", w.path+".part.full", w.checkpointPath())
}

func (w *Writer) finish() error {
	index, err := buildIndex(&w.ids)
	if err != nil {
		return err
	}
	h := fileHeader{
		Meta: w.meta, IDs: w.ids.form, Grouped: w.Rows() != w.ids.len(), Origin: w.origin,
	}
	h.Meta.Rows, h.Meta.Items = w.Rows(), w.ids.len()
	if h.IDs == "" {
		h.IDs = formDense
	}
	if err := w.features.write(wordBytes(w.pack.rest())); err != nil {
		return err
	}
	h.Sections.Features = section{Offset: headerSize, Length: w.features.length - headerSize, CRC32C: w.features.sum}
	var starts []byte
	if h.Grouped {
		starts = encode32(w.starts)
	}
	if h.Sections.Full, err = w.features.adopt(w.full); err != nil {
		return err
	}
	for _, s := range []struct {
		section *section
		content []byte
	}{
		{&h.Sections.Loss, encodeLoss(w.pack.loss)}, {&h.Sections.Starts, starts},
		{&h.Sections.IDs, w.ids.encode()}, {&h.Sections.Index, encode32(index)},
	} {
		if *s.section, err = w.features.section(s.content); err != nil {
			return err
		}
	}
	header, err := h.encode()
	if err != nil {
		return err
	}
	if err := w.features.flush(); err != nil {
		return err
	}
	if _, err := w.features.file.WriteAt(header, 0); err != nil {
		return err
	}
	return atomicfile.Rename(w.disk, w.features.file, w.path)
}

// Abort stops the build. If there is a checkpoint, the files that Resume needs stay;
// otherwise they are removed. After Close, Abort does nothing.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.closeFiles()
	if w.saved {
		return nil
	}
	return removeAll(w.disk, w.path+".part", w.path+".part.full", w.path+".part.ids")
}

// appendFile is a growing file, with the checksum of the appended bytes.
type appendFile struct {
	file   disk.File
	buf    *bufio.Writer
	length int64
	sum    uint32
}

// fileMode is the mode of tables and their logs. Others on the machine must not read them,
// because feature rows reveal much about the vectors they were made from.
const fileMode = 0o640

// openAppend opens path, truncates it to length, and computes the checksum of the content
// after the first skip bytes.
func openAppend(d disk.Disk, path string, skip, length int64) (*appendFile, error) {
	flags := os.O_RDWR | os.O_CREATE
	if length == skip {
		flags |= os.O_TRUNC
	}
	f, err := d.OpenFile(path, flags, fileMode)
	if err != nil {
		return nil, err
	}
	a := &appendFile{file: f, buf: bufio.NewWriterSize(f, 1<<18), length: length}
	if err := a.prepare(skip); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return a, nil
}

func (a *appendFile) prepare(skip int64) error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if a.length > skip && info.Size() < a.length {
		return fmt.Errorf("%w: it has %d bytes, %d were written", ErrTable, info.Size(), a.length)
	}
	if err := a.file.Truncate(a.length); err != nil {
		return err
	}
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, io.NewSectionReader(a.file, skip, a.length-skip)); err != nil {
		return err
	}
	a.sum = h.Sum32()
	_, err = a.file.Seek(a.length, io.SeekStart)
	return err
}

func (a *appendFile) write(b []byte) error {
	if _, err := a.buf.Write(b); err != nil {
		return fmt.Errorf("writing %s: %w", a.file.Name(), err)
	}
	a.length += int64(len(b))
	a.sum = crc32.Update(a.sum, castagnoli, b)
	return nil
}

// section appends content as a new section.
func (a *appendFile) section(content []byte) (section, error) {
	padding := make([]byte, alignUp(a.length)-a.length)
	if err := errors.Join(a.write(padding), a.write(content)); err != nil {
		return section{}, err
	}
	length := int64(len(content))
	return section{Offset: a.length - length, Length: length, CRC32C: crc32.Checksum(content, castagnoli)}, nil
}

// adopt appends the content of another file as a new section.
func (a *appendFile) adopt(other *appendFile) (section, error) {
	if err := errors.Join(other.flush(), a.write(make([]byte, alignUp(a.length)-a.length)), a.flush()); err != nil {
		return section{}, err
	}
	s := section{Offset: a.length, Length: other.length, CRC32C: other.sum}
	n, err := io.Copy(a.file, io.NewSectionReader(other.file, 0, other.length))
	a.length += n
	if err == nil && n != s.Length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return section{}, fmt.Errorf("writing %s: %w", a.file.Name(), err)
	}
	return s, nil
}

func (a *appendFile) flush() error {
	if err := a.buf.Flush(); err != nil {
		return fmt.Errorf("writing %s: %w", a.file.Name(), err)
	}
	return nil
}

func wordBytes(v []uint32) []byte {
	if b, ok := mmap.AsBytes(v); ok {
		return b
	}
	return encode32(v)
}

func floatBytes(v []float32) []byte {
	if b, ok := mmap.AsBytes(v); ok {
		return b
	}
	b, _ := binary.Append(nil, binary.LittleEndian, v) // cannot fail for numbers
	return b
}

func encode32[T int32 | uint32](v []T) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, n := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func removeAll(d disk.Disk, paths ...string) error {
	for _, p := range paths {
		if err := d.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
