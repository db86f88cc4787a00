package dataset

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// columnPositions holds the position of each column of a log, −1 for an absent column.
type columnPositions struct{ query, item, weight, time, seen, answer, position int }

// readCSV reads a log with a header line. It ignores unknown columns and names them in
// counts.
func readCSV(r io.Reader, counts *Counts, add func(entry) error) error {
	rows := newRecordReader(r)
	rows.ReuseRecord, rows.TrimLeadingSpace = true, true
	at, err := readHeader(rows, counts)
	if err != nil {
		return err
	}
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		e, err := at.parseEntry(record)
		if err == nil {
			e.line = line
			err = add(e)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

const headerRemedy = `the first line names the columns: "query,item", and "weight" and "time" if there are any`

func readHeader(rows recordReader, counts *Counts) (columnPositions, error) {
	at := columnPositions{-1, -1, -1, -1, -1, -1, -1}
	header, err := rows.readHeader()
	if errors.Is(err, io.EOF) {
		return at, errors.New("the file is empty; " + headerRemedy)
	}
	if err != nil {
		return at, fmt.Errorf("%w; %s", err, headerRemedy)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	for i, name := range header {
		name = strings.TrimSpace(name)
		place := at.positionOf(name)
		switch {
		case place == nil:
			counts.ignoreColumn(name)
		case *place >= 0:
			return at, fmt.Errorf("line 1: column %q stands there twice", name)
		default:
			*place = i
		}
	}
	if at.query < 0 || at.item < 0 {
		return at, fmt.Errorf("line 1 is %.200q; %s", strings.Join(header, ","), headerRemedy)
	}
	return at, nil
}

func (at *columnPositions) positionOf(name string) *int {
	switch name {
	case columnQuery:
		return &at.query
	case columnItem:
		return &at.item
	case columnWeight:
		return &at.weight
	case columnTime:
		return &at.time
	case columnSeen:
		return &at.seen
	case columnAnswer:
		return &at.answer
	case columnPosition:
		return &at.position
	default:
		return nil
	}
}

// ignoreColumn records the name of an unknown column. It keeps only the first few names.
func (c *Counts) ignoreColumn(name string) {
	const most = 20
	if len(c.Ignored) < most && !slices.Contains(c.Ignored, name) {
		c.Ignored = append(c.Ignored, name)
	}
}

// parseEntry converts a record. An empty weight is 1; an empty time means no time.
func (at *columnPositions) parseEntry(record []string) (e entry, err error) {
	e.query, e.item = record[at.query], record[at.item]
	if at.weight >= 0 && record[at.weight] != "" {
		text := strings.TrimSpace(record[at.weight])
		if e.weight, err = strconv.ParseFloat(text, 64); err != nil {
			return e, fmt.Errorf("weight %.80q is not a number", text)
		}
		e.hasWeight = true
	}
	if at.time >= 0 && record[at.time] != "" {
		if e.time, err = parseTime(strings.TrimSpace(record[at.time])); err != nil {
			return e, err
		}
		e.hasTime = true
	}
	if at.answer >= 0 {
		e.answer = record[at.answer]
	}
	if at.position >= 0 && record[at.position] != "" {
		if e.position, err = parsePosition(strings.TrimSpace(record[at.position])); err != nil {
			return e, err
		}
	}
	if at.seen >= 0 {
		e.seen, err = parseSeen(strings.TrimSpace(record[at.seen]))
	}
	return e, err
}
