// Package jsonwalk reads JSON in place. A Scanner walks over a text once and hands out
// parts of it without decoding or copying them, so that reading costs time in proportion
// to the text and memory only for what the caller keeps.
package jsonwalk

import (
	"bytes"
	"encoding/json"
)

// Scanner walks over JSON. For a text that is not JSON its results are undefined: callers that need
// to know check the whole text once with json.Valid.
type Scanner struct {
	text   []byte
	offset int
	// scannedTo is how far skipNumbers has looked for the end of an array without finding it.
	scannedTo int
}

// New returns a scanner at the beginning of text.
func New(text []byte) *Scanner { return &Scanner{text: text} }

// Next returns the next byte that is not white space, or 0 at the end of the text.
func (s *Scanner) Next() byte {
	for ; s.offset < len(s.text); s.offset++ {
		switch s.text[s.offset] {
		case ' ', '\t', '\r', '\n':
		default:
			return s.text[s.offset]
		}
	}
	return 0
}

// Offset returns how many bytes of the text the scanner has moved over.
func (s *Scanner) Offset() int { return s.offset }

// AtEnd reports whether only white space is left.
func (s *Scanner) AtEnd() bool { return s.Next() == 0 && s.offset == len(s.text) }

// take moves over the byte c if c is next, and reports whether it was.
func (s *Scanner) take(c byte) bool {
	if s.Next() != c {
		return false
	}
	s.offset++
	return true
}

// Object calls member at the value of every key; member moves over the value. Object
// reports whether it read an object to its end and member never returned false.
func (s *Scanner) Object(member func(key string) bool) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		key, ok := s.Text()
		if !ok || !s.take(':') || !member(key) {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// Array calls element at every element; element moves over it. Array reports whether it
// read an array to its end and element never returned false.
func (s *Scanner) Array(element func() bool) bool {
	if !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// Text reads a string.
func (s *Scanner) Text() (string, bool) {
	if s.Next() != '"' {
		return "", false
	}
	start := s.offset
	if !s.skipText() {
		return "", false
	}
	quoted := s.text[start:s.offset]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err == nil
}

// skipText moves over a string.
func (s *Scanner) skipText() bool {
	for s.offset++; s.offset < len(s.text); {
		i := bytes.IndexByte(s.text[s.offset:], '"')
		if i < 0 {
			break
		}
		end := s.offset + i
		escapes := 0
		for s.text[end-1-escapes] == '\\' {
			escapes++
		}
		if s.offset = end + 1; escapes%2 == 0 {
			return true
		}
	}
	s.offset = len(s.text)
	return false
}

// Skip moves over any value.
func (s *Scanner) Skip() bool {
	switch s.Next() {
	case 0, ',', ':', ']', '}':
		return false
	case '"':
		return s.skipText()
	case '[', '{':
		return s.skipNested()
	}
	for s.offset < len(s.text) && !isDelimiter(s.text[s.offset]) {
		s.offset++
	}
	return true
}

// isDelimiter reports whether c ends a number or a word.
func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':', ']', '}', '[', '{', '"':
		return true
	}
	return false
}

// skipNested moves over an array or an object.
func (s *Scanner) skipNested() bool {
	depth := 0
	for s.offset < len(s.text) {
		c := s.text[s.offset]
		switch c {
		case '"':
			if !s.skipText() {
				return false
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		default:
			s.offset++
			continue
		}
		if s.offset++; depth == 0 {
			return true
		}
		if c == '[' {
			s.skipNumbers()
		}
	}
	return false
}

// skipNumbers moves to the end of an array without nested values, such as a vector, many bytes at a
// time. It never looks twice at bytes in which it found no end, so that a scan takes linear time.
func (s *Scanner) skipNumbers() {
	const window = 256 << 10
	if s.offset < s.scannedTo {
		return
	}
	ahead := s.text[s.offset:min(s.offset+window, len(s.text))]
	end := bytes.IndexByte(ahead, ']')
	if end < 0 {
		s.scannedTo = s.offset + len(ahead)
		return
	}
	for _, c := range []byte(`"[{`) {
		if bytes.IndexByte(ahead[:end], c) >= 0 {
			s.scannedTo = s.offset + end
			return
		}
	}
	s.offset += end
}

// Value moves over a value and returns its text, which is part of the scanned text.
func (s *Scanner) Value() ([]byte, bool) {
	s.Next()
	start := s.offset
	ok := s.Skip()
	return s.text[start:s.offset:s.offset], ok
}

// Counts says what is inside a JSON text.
type Counts struct {
	Objects, Arrays int
	// Texts is the number of strings, including keys.
	Texts int
	// Commas is the number of commas between elements and between members.
	Commas int
	// Depth is the number of levels of arrays and objects.
	Depth int
}

// Count counts what is inside a JSON text, in one pass.
func Count(text []byte) (c Counts) {
	s, depth := New(text), 0
	for s.offset < len(s.text) {
		switch s.text[s.offset] {
		case '"':
			c.Texts++
			s.skipText()
			continue
		case '{':
			c.Objects++
			depth++
		case '[':
			c.Arrays++
			depth++
		case '}', ']':
			depth--
		case ',':
			c.Commas++
		}
		c.Depth = max(c.Depth, depth)
		s.offset++
	}
	return c
}
