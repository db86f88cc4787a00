package qdrant

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/journal"
)

// scanner walks over JSON without decoding what is not looked at: a body is mostly
// vectors. Of text that is no JSON it may find anything.
type scanner struct {
	b     []byte
	at    int
	tried int // numbers has looked up to here in vain
}

// next is the next character that is no white space; 0 behind the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.b); s.at++ {
		switch s.b[s.at] {
		case ' ', '\t', '\r', '\n':
		default:
			return s.b[s.at]
		}
	}
	return 0
}

// take goes over a character, if it is next.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// object calls f at the value of every key; f goes over it.
func (s *scanner) object(f func(key string) bool) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		key, ok := s.text()
		if !ok || !s.take(':') || !f(key) {
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

// array calls f at every element; f goes over it.
func (s *scanner) array(f func() bool) bool {
	if !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		if !f() {
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

// text reads a string.
func (s *scanner) text() (string, bool) {
	if s.next() != '"' {
		return "", false
	}
	from := s.at
	if !s.quoted() {
		return "", false
	}
	raw := s.b[from:s.at]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err == nil
}

// quoted goes over a string.
func (s *scanner) quoted() bool {
	for s.at++; s.at < len(s.b); {
		i := bytes.IndexByte(s.b[s.at:], '"')
		if i < 0 {
			break
		}
		end := s.at + i
		escapes := 0
		for s.b[end-1-escapes] == '\\' {
			escapes++
		}
		if s.at = end + 1; escapes%2 == 0 {
			return true
		}
	}
	s.at = len(s.b)
	return false
}

// skip goes over any value.
func (s *scanner) skip() bool {
	switch s.next() {
	case 0, ',', ':', ']', '}':
		return false
	case '"':
		return s.quoted()
	case '[', '{':
		return s.nested()
	}
	for s.at < len(s.b) && !delimiter[s.b[s.at]] {
		s.at++
	}
	return true
}

// delimiter ends a number or a word, structural opens, closes or quotes.
var delimiter, structural = func() (d, s [256]bool) {
	for _, c := range " \t\r\n,:]}[{\"" {
		d[c] = true
	}
	for _, c := range "[]{}\"" {
		s[c] = true
	}
	return d, s
}()

// nested goes over an array or an object.
func (s *scanner) nested() bool {
	depth := 0
	for s.at < len(s.b) {
		c := s.b[s.at]
		if !structural[c] {
			s.at++
			continue
		}
		switch c {
		case '"':
			if !s.quoted() {
				return false
			}
			continue
		case '[', '{':
			depth++
		default:
			depth--
		}
		if s.at++; depth == 0 {
			return true
		}
		if c == '[' {
			s.numbers()
		}
	}
	return false
}

// numbers goes up to the end of an array that holds nothing that nests, as vectors
// do, in the steps of a vector register. Bytes that it looked at in vain it does
// not look at again, so that it stays linear.
func (s *scanner) numbers() {
	const window = 256 << 10
	if s.at < s.tried {
		return
	}
	w := s.b[s.at:min(s.at+window, len(s.b))]
	end := bytes.IndexByte(w, ']')
	if end < 0 {
		s.tried = s.at + len(w)
		return
	}
	for _, c := range []byte(`"[{`) {
		if bytes.IndexByte(w[:end], c) >= 0 {
			s.tried = s.at + end
			return
		}
	}
	s.at += end
}

// raw goes over a value and returns it; null is nil.
func (s *scanner) raw() ([]byte, bool) {
	s.next()
	from := s.at
	ok := s.skip()
	raw := s.b[from:s.at]
	if string(raw) == "null" {
		raw = nil
	}
	return raw, ok
}

// id reads an id.
func (t *touched) jsonID(s *scanner) bool {
	if s.next() == '"' {
		text, ok := s.text()
		if ok {
			t.uuid(text)
		}
		return ok
	}
	raw, ok := s.raw()
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if !ok || err != nil {
		return false
	}
	t.ids = append(t.ids, rerank.UintID(n))
	return true
}

// body reads a request, or one that holds several operations. It reports whether
// everything in it was understood, within the time of ctx.
func (t *touched) body(ctx context.Context, s *scanner, batch bool) bool {
	if !batch {
		return t.jsonOperation(ctx, s)
	}
	t.kind = ""
	ok := s.object(func(key string) bool {
		return key == "operations" && s.array(func() bool {
			return s.object(func(operation string) bool {
				kind := jsonOperations[operation]
				t.also(kind)
				return kind != "" && t.jsonOperation(ctx, s)
			})
		})
	})
	if t.kind == "" {
		t.kind = journal.Upsert
	}
	return ok
}

// jsonOperations are those of a batch.
var jsonOperations = map[string]journal.Kind{
	"upsert": journal.Upsert, "delete": journal.Delete, "update_vectors": journal.Vectors, "delete_vectors": journal.Vectors,
	"set_payload": journal.Payload, "overwrite_payload": journal.Payload, "delete_payload": journal.Payload, "clear_payload": journal.Payload,
}

// harmless are keys that do not say which rows change.
var harmless = []string{"shard_key", "payload", "keys", "key", "vector", "update_filter", "update_mode"}

// jsonOperation reads the rows of an operation: points, as ids or with them, a
// batch of columns, or a filter.
func (t *touched) jsonOperation(ctx context.Context, s *scanner) bool {
	named := false
	ok := s.object(func(key string) bool {
		switch {
		case key == "filter":
			raw, ok := s.raw()
			if raw != nil {
				named = true
				t.filters = append(t.filters, string(raw))
			}
			return ok
		case s.next() == 'n': // null
			return s.skip()
		case key == "points":
			named = true
			return t.jsonPoints(ctx, s)
		case key == "batch":
			named = true
			return s.object(func(column string) bool {
				if column == "ids" {
					return t.jsonPoints(ctx, s)
				}
				return slices.Contains([]string{"vectors", "payloads"}, column) && s.skip()
			})
		}
		return slices.Contains(harmless, key) && s.skip()
	})
	return ok && named
}

// jsonPoints reads ids, or points that have one.
func (t *touched) jsonPoints(ctx context.Context, s *scanner) bool {
	return s.array(func() bool {
		if ctx.Err() != nil {
			return false
		}
		if s.next() != '{' {
			return t.jsonID(s)
		}
		found := false
		return s.object(func(key string) bool {
			if key == "id" {
				found = true
				return t.jsonID(s)
			}
			return s.skip()
		}) && found
	})
}
