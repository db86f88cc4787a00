package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// maxLine is the greatest length of a JSON line, in bytes.
const maxLine = 1 << 20

// readJSONL reads a log with one JSON object on each line. It skips empty lines,
// ignores unknown fields and names those in counts.
func readJSONL(r io.Reader, counts *Counts, add func(entry) error) error {
	return eachLine(r, func(n int, line []byte) error {
		e, err := parseObject(line, counts)
		if err != nil {
			return err
		}
		e.line = n
		return add(e)
	})
}

// eachLine calls f for each line that is not empty, with its number from 1. It adds
// the line number to an error of f.
func eachLine(r io.Reader, f func(n int, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(line) == 0 {
			continue
		}
		if err := f(n, line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d has more than %d bytes; the file has one JSON object a line", n+1, maxLine)
	}
	return lines.Err()
}

func parseObject(line []byte, counts *Counts) (e entry, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var fields map[string]json.RawMessage
	if err := dec.Decode(&fields); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the object does not end; is the file cut short?")
		}
		return e, fmt.Errorf("not a JSON object: %w", err)
	}
	if dec.More() || fields == nil {
		return e, errors.New("want one JSON object on the line and nothing else")
	}
	if e.query, err = idText(columnQuery, fields[columnQuery]); err != nil {
		return e, err
	}
	if e.item, err = idText(columnItem, fields[columnItem]); err != nil {
		return e, err
	}
	if raw := fields[columnWeight]; present(raw) {
		if e.weight, err = strconv.ParseFloat(string(raw), 64); err != nil {
			return e, fmt.Errorf("weight %.80s is not a number", raw)
		}
		e.hasWeight = true
	}
	if raw := fields[columnTime]; present(raw) {
		if e.time, err = parseTime(unquoteJSON(raw)); err != nil {
			return e, err
		}
		e.hasTime = true
	}
	if raw := fields[columnSeen]; present(raw) {
		if e.seen, err = parseSeen(unquoteJSON(raw)); err != nil {
			return e, err
		}
	}
	if raw := fields[columnPosition]; present(raw) {
		if e.position, err = parsePosition(unquoteJSON(raw)); err != nil {
			return e, err
		}
	}
	if raw := fields[columnAnswer]; present(raw) {
		if e.answer, err = idText(columnAnswer, raw); err != nil {
			return e, err
		}
	}
	for name := range fields {
		if !slices.Contains(columns(), name) {
			counts.ignoreColumn(name)
		}
	}
	return e, nil
}

// idText returns the text of an id: a string's content or a number's digits.
func idText(column string, raw json.RawMessage) (string, error) {
	if !present(raw) {
		return "", fmt.Errorf("the object has no %q; a line is {\"query\": …, \"item\": …}", column)
	}
	if raw[0] == '"' {
		return unquoteJSON(raw), nil
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return string(raw), nil
	}
	if _, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return string(raw), nil
	}
	return "", fmt.Errorf("%s is %.80s; an id is a string or an integer", column, raw)
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// unquoteJSON returns the content of a JSON string, and any other JSON value as it is
// written.
func unquoteJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
