package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/likenessdb/likeness/rerank"
)

// columnID is the name of the column with the vectors' ids.
const columnID = "id"

// openParquetVectors copies a column of lists to a mapped temporary file and reads the
// ids beside it.
func openParquetVectors(ctx context.Context, path, name string) (*Vectors, error) {
	v, s := &Vectors{}, &vectorSpool{}
	err := withParquet(path, func(p *parquetFile) error {
		leaf, err := p.findList(name)
		if err != nil {
			return err
		}
		read := listReader{spool: s, values: p.readValues(leaf), toFloat32: p.numberConverter(leaf)}
		if err := errors.Join(read.readAll(ctx), read.values.Close()); err != nil {
			return fmt.Errorf("column %q: %w", leaf.Path[0], err)
		}
		id, ok, err := p.findLeaf(columnID)
		if err != nil || !ok {
			return err
		}
		if v.IDs, err = p.readIDColumn(id); err == nil && len(v.IDs) != read.rows {
			err = fmt.Errorf("column %q has %d rows, %q %d: the file is damaged", columnID, len(v.IDs), leaf.Path[0], read.rows)
		}
		return err
	})
	if err == nil {
		v.Matrix, err = s.mapMatrix()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	v.closer = s
	return v, nil
}

// findList finds the column of number lists with the given name. Without a name it finds
// the only such column.
func (p *parquetFile) findList(name string) (parquet.LeafColumn, error) {
	var lists []parquet.LeafColumn // findList columns with a single leaf, by the column's own name
	var names []string
	for _, path := range p.Schema().Columns() {
		leaf, ok := p.Schema().Lookup(path...)
		if !ok || leaf.MaxRepetitionLevel != 1 || p.numberConverter(leaf) == nil {
			continue
		}
		if name == path[0] || name == "" {
			leaf.Path = path[:1]
			lists, names = append(lists, leaf), append(names, fmt.Sprintf("%q", path[0]))
		}
	}
	switch {
	case len(lists) == 1:
		return lists[0], nil
	case len(lists) > 1:
		return parquet.LeafColumn{}, fmt.Errorf("there are several columns of lists of numbers (%s); name one as FILE#COLUMN", strings.Join(names, ", "))
	case name != "":
		return parquet.LeafColumn{}, fmt.Errorf("there is no column %q of lists of floating-point numbers; the columns are %s", name, p.columnNames())
	default:
		return parquet.LeafColumn{}, fmt.Errorf("there is no column of lists of floating-point numbers; the columns are %s", p.columnNames())
	}
}

// numberConverter returns a function that converts a leaf's values to float32, or nil
// if they are not numbers.
func (p *parquetFile) numberConverter(leaf parquet.LeafColumn) func(parquet.Value) float32 {
	t := leaf.Node.Type()
	switch {
	case t.Kind() == parquet.Float:
		return parquet.Value.Float
	case t.Kind() == parquet.Double:
		return func(v parquet.Value) float32 { return float32(v.Double()) }
	case t.Kind() == parquet.FixedLenByteArray && t.Length() == 2 && p.isFloat16(leaf):
		return func(v parquet.Value) float32 { return widenFloat16(binary.LittleEndian.Uint16(v.ByteArray())) }
	default:
		return nil
	}
}

// isFloat16 looks for the FLOAT16 annotation in the footer, because the library's
// types do not show it.
func (p *parquetFile) isFloat16(leaf parquet.LeafColumn) bool {
	column := 0
	for _, e := range p.Metadata().Schema {
		if e.NumChildren.Valid && e.NumChildren.V > 0 {
			continue
		}
		if column == leaf.ColumnIndex {
			_, ok := e.LogicalType.Value.(*format.Float16Type)
			return ok
		}
		column++
	}
	return false
}

// hasLogicalType reports whether a type is annotated with the logical type T.
func hasLogicalType[T any](t parquet.Type) bool {
	l := t.LogicalType()
	if l == nil {
		return false
	}
	_, ok := l.Value.(T)
	return ok
}

// widenFloat16 converts an IEEE 754 binary16 to float32.
func widenFloat16(h uint16) float32 {
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 0x1f:
		v = math.Inf(1)
		if fraction != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if h>>15 == 1 {
		v = -v
	}
	return float32(v)
}

// listReader reads lists of equal length into rows.
type listReader struct {
	spool     *vectorSpool
	values    *valueReader
	toFloat32 func(parquet.Value) float32
	cols      int // length of the first row; 0 until it ends
	rows      int
	rowLength int // readValues so far of the unfinished row at the end of data
	data      []float32
}

// batch is the number of values that are gathered before rows are written.
const batch = 1 << 16

func (l *listReader) readAll(ctx context.Context) error {
	whole := l.values.leaf.MaxDefinitionLevel
	for {
		v, err := l.values.nextValue()
		if errors.Is(err, io.EOF) {
			return errors.Join(l.endRow(), l.writeRows())
		}
		if err != nil {
			return err
		}
		if v.RepetitionLevel() == 0 {
			if err := l.endRow(); err != nil {
				return err
			}
			if len(l.data) >= batch {
				if err := errors.Join(ctx.Err(), l.writeRows()); err != nil {
					return err
				}
			}
		}
		if v.DefinitionLevel() < whole {
			return fmt.Errorf("row %d is null, empty or holds a null", l.rows)
		}
		l.data = append(l.data, l.toFloat32(v))
		if l.rowLength++; l.rowLength > math.MaxInt32/2 {
			return fmt.Errorf("row %d has more than %d numbers", l.rows, math.MaxInt32/2)
		}
	}
}

// endRow ends the current row, if there is one, before a new row begins.
func (l *listReader) endRow() error {
	if l.rowLength == 0 {
		return nil
	}
	if l.cols == 0 {
		l.cols = l.rowLength
	}
	if l.rowLength != l.cols {
		return fmt.Errorf("row %d has %d numbers, the rows before it %d; every vector needs the same length", l.rows, l.rowLength, l.cols)
	}
	l.rows, l.rowLength = l.rows+1, 0
	return nil
}

func (l *listReader) writeRows() error {
	if len(l.data) == 0 {
		return nil
	}
	err := l.spool.appendRows(rerank.Matrix{Rows: len(l.data) / l.cols, Cols: l.cols, Data: l.data})
	l.data = l.data[:0]
	return err
}

// readParquetIDs reads a column of ids.
func readParquetIDs(path, name string) (ids []rerank.ID, err error) {
	if name == "" {
		name = columnID
	}
	err = withParquet(path, func(p *parquetFile) error {
		leaf, ok, err := p.findLeaf(name)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("there is no column %q; the columns are %s", name, p.columnNames())
		}
		ids, err = p.readIDColumn(leaf)
		return err
	})
	return ids, err
}

func (p *parquetFile) readIDColumn(leaf parquet.LeafColumn) ([]rerank.ID, error) {
	id, err := idConverter(leaf)
	if err != nil {
		return nil, err
	}
	v := p.readValues(leaf)
	var ids []rerank.ID
	for {
		value, err := v.nextValue()
		if errors.Is(err, io.EOF) {
			return ids, v.Close()
		}
		if err == nil && value.IsNull() {
			err = fmt.Errorf("column %q: row %d is null", leaf.Path[0], len(ids))
		}
		if err != nil {
			return nil, errors.Join(err, v.Close())
		}
		one, err := id(value)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("column %q: row %d: %w", leaf.Path[0], len(ids), err), v.Close())
		}
		ids = append(ids, one)
	}
}

// idConverter returns a function that converts a leaf's values to ids.
func idConverter(leaf parquet.LeafColumn) (func(parquet.Value) (rerank.ID, error), error) {
	t := leaf.Node.Type()
	unsigned := false
	if l := t.LogicalType(); l != nil {
		if i, ok := l.Value.(*format.IntType); ok {
			unsigned = !i.IsSigned
		}
	}
	switch {
	case t.Kind() == parquet.Int32 && unsigned:
		return func(v parquet.Value) (rerank.ID, error) { return rerank.UintID(uint64(v.Uint32())), nil }, nil
	case t.Kind() == parquet.Int32:
		return func(v parquet.Value) (rerank.ID, error) { return rerank.IntID(int64(v.Int32())), nil }, nil
	case t.Kind() == parquet.Int64 && unsigned:
		return func(v parquet.Value) (rerank.ID, error) { return rerank.UintID(v.Uint64()), nil }, nil
	case t.Kind() == parquet.Int64:
		return func(v parquet.Value) (rerank.ID, error) { return rerank.IntID(v.Int64()), nil }, nil
	case t.Kind() == parquet.FixedLenByteArray && t.Length() == len(uuid.UUID{}) && hasLogicalType[*format.UUIDType](t):
		return func(v parquet.Value) (rerank.ID, error) {
			return rerank.TextID(uuid.UUID(v.ByteArray()).String()), nil
		}, nil
	case t.Kind() == parquet.ByteArray:
		return textID, nil
	default:
		return nil, fmt.Errorf("column %q holds %s; ids are integers or text", leaf.Path[0], t)
	}
}

func textID(v parquet.Value) (rerank.ID, error) {
	text := string(v.ByteArray())
	if text == "" || !utf8.ValidString(text) {
		return rerank.ID{}, fmt.Errorf("%.80q is empty or not UTF-8", text)
	}
	return rerank.TextID(text), nil
}
