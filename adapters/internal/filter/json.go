package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/jsonwalk"
)

// node is a JSON value and its place in the filter. Its raw text is part of the filter's.
type node struct {
	raw    json.RawMessage
	depth  int
	parent *node  // nil: the filter
	key    string // in the parent, if that is an object
	index  int    // in the parent, if that is an array
}

// maxDepth is the greatest nesting depth of a filter, counting arrays and objects.
const maxDepth = 64

func (n node) errorf(format string, args ...any) error {
	where := n.path()
	if where == "" {
		where = "filter"
	}
	return fmt.Errorf("%w: %s: %s", adapters.ErrFilter, where, fmt.Sprintf(format, args...))
}

// path returns the node's place, as in must[0].key.
func (n node) path() string {
	switch {
	case n.parent == nil:
		return ""
	case n.parent.kind() == '[':
		return n.parent.path() + "[" + strconv.Itoa(n.index) + "]"
	}
	if above := n.parent.path(); above != "" {
		return above + "." + n.key
	}
	return n.key
}

// kind returns the value's first byte: { [ " t f n, a minus sign or a digit.
func (n node) kind() byte {
	if b := bytes.TrimLeft(n.raw, " \t\r\n"); len(b) > 0 {
		return b[0]
	}
	return 0
}

func (n node) isNull() bool { return n.kind() == 'n' }

// member is one key of an object and its value.
type member struct {
	key string
	node
}

// members decodes an object. Like Qdrant, it drops keys whose value is null.
func (n node) members() ([]member, error) {
	if n.depth > maxDepth {
		return nil, n.errorf("more than %d levels; flatten the filter", maxDepth)
	}
	var out []member
	var err error
	seen, s := map[string]bool{}, jsonwalk.New(n.raw)
	whole := s.Object(func(key string) bool {
		raw, ok := s.Value()
		if seen[key] {
			err = n.errorf("the key %q occurs twice", key)
			return false
		}
		seen[key] = true
		if m := (member{key, node{raw: raw, depth: n.depth + 1, parent: &n, key: key}}); !m.isNull() {
			out = append(out, m)
		}
		return ok
	})
	if err == nil && !whole {
		err = n.errorf("%s instead of an object", n.shorten())
	}
	return out, err
}

// elements decodes an array.
func (n node) elements() ([]node, error) {
	if n.depth > maxDepth {
		return nil, n.errorf("more than %d levels; flatten the filter", maxDepth)
	}
	count, s := 0, jsonwalk.New(n.raw)
	if !s.Array(func() bool { count++; return s.Skip() }) {
		return nil, n.errorf("%s instead of an array", n.shorten())
	}
	out := make([]node, 0, count)
	s = jsonwalk.New(n.raw)
	s.Array(func() bool {
		raw, ok := s.Value()
		out = append(out, node{raw: raw, depth: n.depth + 1, parent: &n, index: len(out)})
		return ok
	})
	return out, nil
}

func (n node) text() (string, error) {
	if n.kind() != '"' {
		return "", n.errorf("%s instead of a string", n.shorten())
	}
	var s string
	if err := json.Unmarshal(n.raw, &s); err != nil {
		return "", n.errorf("%v", err)
	}
	// The decoder silently replaces half of a surrogate pair by U+FFFD.
	if strings.ContainsRune(s, utf8.RuneError) && bytes.Contains(bytes.ToLower(n.raw), []byte(`\ud`)) {
		return "", n.errorf("%s holds half of a surrogate pair", n.shorten())
	}
	return s, nil
}

func (n node) boolean() (bool, error) {
	switch n.kind() {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, n.errorf("%s instead of true or false", n.shorten())
}

func (n node) isNumber() bool { k := n.kind(); return k == '-' || k >= '0' && k <= '9' }

func (n node) number() (Number, error) {
	if !n.isNumber() {
		return Number{}, n.errorf("%s instead of a number", n.shorten())
	}
	text := string(bytes.TrimSpace(n.raw))
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Number{}, n.errorf("%s is beyond a double", n.shorten())
	}
	i, err := strconv.ParseInt(text, 10, 64)
	return Number{Float: f, Int: i, IsInt: err == nil}, nil
}

func (n node) unsigned() (uint64, error) {
	u, err := strconv.ParseUint(string(bytes.TrimSpace(n.raw)), 10, 64)
	if err != nil {
		return 0, n.errorf("%s instead of a whole number from 0", n.shorten())
	}
	return u, nil
}

// shorten returns the value for an error message, shortened.
func (n node) shorten() string {
	s := strings.ToValidUTF8(string(bytes.TrimSpace(n.raw)), "�")
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return s
}

// parseDocument checks that text is a single JSON value in UTF-8.
func parseDocument(text string) (node, error) {
	n := node{raw: json.RawMessage(text)}
	if !utf8.ValidString(text) {
		return n, n.errorf("it is not UTF-8")
	}
	d := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, n.errorf("the JSON ends early")
		}
		return n, n.errorf(`%v; it is JSON, such as {"must": [{"key": "size", "match": {"value": 3}}]}`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return n, n.errorf("something follows the JSON value")
	}
	return n, nil
}
