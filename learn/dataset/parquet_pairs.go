package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// readParquetPairs reads a log with the columns that columns lists.
func readParquetPairs(ctx context.Context, path string, counts *Counts, add func(entry) error) error {
	return withParquet(path, func(p *parquetFile) error {
		r, err := p.openPairs(counts)
		if err != nil {
			return err
		}
		return errors.Join(r.readAll(ctx, add), r.close())
	})
}

// pairReader reads the columns of a log row by row.
type pairReader struct {
	columns []*valueReader
	setters []func(e *entry, v parquet.Value) error // stores a value of each column in an entry
}

func (p *parquetFile) openPairs(counts *Counts) (*pairReader, error) {
	r := &pairReader{}
	for _, f := range p.Schema().Fields() {
		name := f.Name()
		leaf, ok, err := p.findLeaf(name)
		var set func(e *entry, v parquet.Value) error
		switch name {
		case columnQuery, columnItem:
			set, err = idSetter(leaf, name, err)
		case columnWeight:
			set, err = weightSetter(leaf, err)
		case columnTime:
			set, err = timeSetter(leaf, err)
		case columnSeen:
			set, err = seenSetter(leaf, err)
		case columnAnswer:
			set, err = answerSetter(leaf, err)
		case columnPosition:
			set, err = positionSetter(leaf, err)
		default:
			counts.ignoreColumn(name)
			continue
		}
		if err != nil || !ok {
			return nil, errors.Join(err, r.close())
		}
		r.columns, r.setters = append(r.columns, p.readValues(leaf)), append(r.setters, set)
	}
	for _, name := range []string{columnQuery, columnItem} {
		if _, ok, _ := p.findLeaf(name); !ok {
			return nil, fmt.Errorf("there is no column %q; the columns are %s", name, p.columnNames())
		}
	}
	return r, nil
}

func (r *pairReader) readAll(ctx context.Context, add func(entry) error) error {
	for row := 0; ; row++ {
		if row%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := entry{line: row + 1}
		ended := 0
		for i, c := range r.columns {
			v, err := c.nextValue()
			if errors.Is(err, io.EOF) {
				ended++
				continue
			}
			if err == nil {
				err = r.setters[i](&e, v)
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", row+1, err)
			}
		}
		if ended == len(r.columns) {
			return nil
		}
		if ended > 0 {
			return fmt.Errorf("row %d: the columns have different lengths: the file is damaged", row+1)
		}
		if err := add(e); err != nil {
			return fmt.Errorf("row %d: %w", row+1, err)
		}
	}
}

func (r *pairReader) close() error {
	var failed []error
	for _, c := range r.columns {
		failed = append(failed, c.Close())
	}
	return errors.Join(failed...)
}

func idSetter(leaf parquet.LeafColumn, name string, err error) (func(*entry, parquet.Value) error, error) {
	if err != nil {
		return nil, err
	}
	id, err := idConverter(leaf)
	return func(e *entry, v parquet.Value) error {
		if v.IsNull() {
			return fmt.Errorf("%s is null", name)
		}
		one, err := id(v)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if name == columnQuery {
			e.query = one.String()
		} else {
			e.item = one.String()
		}
		return nil
	}, err
}

func weightSetter(leaf parquet.LeafColumn, err error) (func(*entry, parquet.Value) error, error) {
	if err != nil {
		return nil, err
	}
	var weight func(v parquet.Value) float64
	switch kind := leaf.Node.Type().Kind(); kind {
	case parquet.Float:
		weight = func(v parquet.Value) float64 { return float64(v.Float()) }
	case parquet.Double:
		weight = parquet.Value.Double
	case parquet.Int32:
		weight = func(v parquet.Value) float64 { return float64(v.Int32()) }
	case parquet.Int64:
		weight = func(v parquet.Value) float64 { return float64(v.Int64()) }
	default:
		return nil, fmt.Errorf("column %q holds %s; weights are numbers", columnWeight, leaf.Node.Type())
	}
	return func(e *entry, v parquet.Value) error {
		if !v.IsNull() {
			e.weight, e.hasWeight = weight(v), true
		}
		return nil
	}, nil
}

func timeSetter(leaf parquet.LeafColumn, err error) (func(*entry, parquet.Value) error, error) {
	if err != nil {
		return nil, err
	}
	read, err := timeConverter(leaf.Node.Type())
	return func(e *entry, v parquet.Value) (err error) {
		if v.IsNull() {
			return nil
		}
		e.hasTime = true
		e.time, err = read(v)
		return err
	}, err
}

func answerSetter(leaf parquet.LeafColumn, err error) (func(*entry, parquet.Value) error, error) {
	if err != nil {
		return nil, err
	}
	id, err := idConverter(leaf)
	return func(e *entry, v parquet.Value) error {
		if v.IsNull() {
			return nil
		}
		answer, err := id(v)
		e.answer = answer.String()
		return err
	}, err
}

func positionSetter(leaf parquet.LeafColumn, err error) (func(*entry, parquet.Value) error, error) {
	if err != nil {
		return nil, err
	}
	var position func(v parquet.Value) int64
	switch kind := leaf.Node.Type().Kind(); kind {
	case parquet.Int32:
		position = func(v parquet.Value) int64 { return int64(v.Int32()) }
	case parquet.Int64:
		position = parquet.Value.Int64
	default:
		return nil, fmt.Errorf("column %q holds %s; positions are integers", columnPosition, leaf.Node.Type())
	}
	return func(e *entry, v parquet.Value) (err error) {
		if !v.IsNull() {
			e.position, err = checkPosition(position(v))
		}
		return err
	}, nil
}

func seenSetter(leaf parquet.LeafColumn, err error) (func(*entry, parquet.Value) error, error) {
	if err != nil {
		return nil, err
	}
	if kind := leaf.Node.Type().Kind(); kind != parquet.Boolean {
		return nil, fmt.Errorf("column %q holds %s; it holds true or false", columnSeen, leaf.Node.Type())
	}
	return func(e *entry, v parquet.Value) error {
		e.seen = !v.IsNull() && v.Boolean()
		return nil
	}, nil
}

// timeConverter returns a function that converts values of a type to Unix seconds.
func timeConverter(t parquet.Type) (func(parquet.Value) (int64, error), error) {
	var unit time.Duration
	if l := t.LogicalType(); l != nil {
		if stamp, ok := l.Value.(*format.TimestampType); ok && stamp.Unit.Value != nil {
			unit = stamp.Unit.Value.Duration()
		}
	}
	switch kind := t.Kind(); {
	case kind == parquet.Int64 && unit > 0:
		perSecond := float64(time.Second / unit)
		return func(v parquet.Value) (int64, error) { return int64(math.Floor(float64(v.Int64()) / perSecond)), nil }, nil
	case kind == parquet.Int64:
		return func(v parquet.Value) (int64, error) { return unixTime(v.Int64()) }, nil
	case kind == parquet.Int32 && hasLogicalType[*format.DateType](t):
		return func(v parquet.Value) (int64, error) { return int64(v.Int32()) * 86400, nil }, nil
	case kind == parquet.Int32:
		return func(v parquet.Value) (int64, error) { return int64(v.Int32()), nil }, nil
	case kind == parquet.Int96: // INT96: nanoseconds within the day, then the Julian day
		return func(v parquet.Value) (int64, error) {
			stamp := v.Int96()
			nanoseconds := uint64(stamp[1])<<32 | uint64(stamp[0])
			return (int64(stamp[2])-2440588)*86400 + int64(nanoseconds/uint64(time.Second)), nil
		}, nil
	case kind == parquet.ByteArray:
		return func(v parquet.Value) (int64, error) { return parseTime(string(v.ByteArray())) }, nil
	default:
		return nil, fmt.Errorf("column %q holds %s; times are timestamps, integers or text", columnTime, strconv.Quote(t.String()))
	}
}
