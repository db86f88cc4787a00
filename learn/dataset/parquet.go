package dataset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// parquetFile is an open Parquet file whose lengths were checked.
type parquetFile struct {
	file *os.File
	size int64
	*parquet.File
}

// withParquet opens a Parquet file and calls read. The Parquet library trusts some of
// its input; withParquet turns the library's panics and memory faults on a damaged
// file into errors. Errors do not name the path.
func withParquet(path string, read func(p *parquetFile) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the file is damaged: %v", r)
		}
	}()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	p := &parquetFile{file: file, size: info.Size()}
	if err := checkFooter(file, p.size); err != nil {
		return err
	}
	p.File, err = parquet.OpenFile(file, p.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.OptimisticRead(false))
	if err != nil {
		return err
	}
	return read(p)
}

// findLeaf finds the column of single values with the given name. It returns false if
// there is no such column.
func (p *parquetFile) findLeaf(name string) (parquet.LeafColumn, bool, error) {
	field := slices.IndexFunc(p.Schema().Fields(), func(f parquet.Field) bool { return f.Name() == name })
	if field < 0 {
		return parquet.LeafColumn{}, false, nil
	}
	leaf, ok := p.Schema().Lookup(name)
	if !ok || leaf.MaxRepetitionLevel > 0 {
		return leaf, false, fmt.Errorf("column %q holds %s, want one value a row", name, describeNode(p.Schema().Fields()[field]))
	}
	return leaf, true, nil
}

// columnNames lists the top-level columns for error messages.
func (p *parquetFile) columnNames() string {
	var names []string
	for _, f := range p.Schema().Fields() {
		names = append(names, fmt.Sprintf("%q", f.Name()))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func describeNode(n parquet.Node) string {
	if n.Leaf() {
		return n.Type().String()
	}
	return "a group or a list"
}

// valueReader reads the values of one leaf column, row group after row group, in pieces. It
// is not safe for concurrent use.
type valueReader struct {
	file       *parquetFile
	leaf       parquet.LeafColumn
	group      int // index of the next row group
	pages      parquet.Pages
	page       parquet.Page
	pageValues parquet.ValueReader
	buf        []parquet.Value // valueReader read but not yet returned
	space      [512]parquet.Value
	row        int // number of rows begun
}

func (p *parquetFile) readValues(leaf parquet.LeafColumn) *valueReader {
	return &valueReader{file: p, leaf: leaf}
}

// nextValue returns the next value, or io.EOF.
func (v *valueReader) nextValue() (parquet.Value, error) {
	for len(v.buf) == 0 {
		if err := v.fillBuffer(); err != nil {
			return parquet.Value{}, err
		}
	}
	value := v.buf[0]
	v.buf = v.buf[1:]
	if value.RepetitionLevel() == 0 {
		v.row++
	}
	return value, nil
}

// fillBuffer reads more values. It may read none although more follow.
func (v *valueReader) fillBuffer() error {
	if v.pageValues == nil {
		return v.openPage()
	}
	n, err := v.pageValues.ReadValues(v.space[:])
	v.buf = v.space[:n]
	if errors.Is(err, io.EOF) || err == nil && n == 0 {
		v.pageValues = nil
		return nil
	}
	return err
}

// openPage opens the next page, or returns io.EOF.
func (v *valueReader) openPage() error {
	if v.page != nil {
		parquet.Release(v.page)
		v.page = nil
	}
	if v.pages == nil {
		groups := v.file.RowGroups()
		if v.group == len(groups) {
			return io.EOF
		}
		if err := v.file.checkPages(v.group, v.leaf.ColumnIndex); err != nil {
			return err
		}
		v.pages = groups[v.group].ColumnChunks()[v.leaf.ColumnIndex].Pages()
		v.group++
	}
	page, err := v.pages.ReadPage()
	if errors.Is(err, io.EOF) {
		err = v.pages.Close()
		v.pages = nil
		return err
	}
	if err != nil {
		return err
	}
	v.page, v.pageValues = page, page.Values()
	return nil
}

// Close releases the open page.
func (v *valueReader) Close() error {
	if v.page != nil {
		parquet.Release(v.page)
	}
	if v.pages == nil {
		return nil
	}
	return v.pages.Close()
}
