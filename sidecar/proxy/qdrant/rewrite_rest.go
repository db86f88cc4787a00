package qdrant

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/likenessdb/likeness/internal/jsonwalk"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

// span is a part of a text, from its first byte to the one behind its last.
type span struct{ from, to int }

// place is where the parts of one search that rewriting replaces are in a body.
type place struct {
	vector    span
	threshold span // empty: the search has none
}

// edit is a part of a text and what stands in its place.
type edit struct {
	span
	text []byte
}

// applyEdits returns text with the edits applied. The edits must be in order and must not
// overlap.
func applyEdits(text []byte, edits []edit) []byte {
	size := len(text)
	for _, e := range edits {
		size += len(e.text) - (e.to - e.from)
	}
	out, done := make([]byte, 0, size), 0
	for _, e := range edits {
		out = append(append(out, text[done:e.from]...), e.text...)
		done = e.to
	}
	return append(out, text[done:]...)
}

// locateJSON finds the searches in a body and skips everything else. It returns errOther
// for a body of another form. What it skips need not be valid JSON: the database refuses
// the body with replaced vectors as it refuses the original.
func (q request) locateJSON(body []byte) (searches []routing.Search, places []place, err error) {
	s := jsonwalk.New(body)
	one := func() bool {
		if len(searches) == routing.MaxRewrites {
			return false
		}
		l := locator{request: q, text: body, scanner: s}
		ok := l.search()
		searches, places = append(searches, l.found), append(places, l.place)
		return ok
	}
	whole := one
	if q.batch {
		keys := 0
		whole = func() bool {
			return s.Object(func(key string) bool {
				keys++
				return key == "searches" && keys == 1 && s.Array(one)
			})
		}
	}
	if !whole() || !s.AtEnd() {
		return nil, nil, errOther
	}
	return searches, places, nil
}

// locator reads one search of a body.
type locator struct {
	request
	text    []byte
	scanner *jsonwalk.Scanner

	found routing.Search
	place place
	seen  []string // keys that are read
}

// value moves over a value and returns it and where it is.
func (l *locator) value() (text []byte, at span, ok bool) {
	l.scanner.Next()
	from := l.scanner.Offset()
	text, ok = l.scanner.Value()
	return text, span{from, l.scanner.Offset()}, ok
}

// search reads a search. It returns false for one that is not a plain nearest-neighbour
// search by a dense vector.
func (l *locator) search() bool {
	if l.query {
		l.found.Limit = 10
	}
	var params searchParams
	whole := l.scanner.Object(func(key string) bool {
		switch key {
		case "vector", "query", "using", "prefetch", "lookup_from", "score_threshold", "limit", "offset", "params", "filter", "shard_key":
			if slices.Contains(l.seen, key) {
				return false // which counts?
			}
			l.seen = append(l.seen, key)
		default:
			return l.scanner.Skip()
		}
		if key == "vector" && !l.query || key == "query" && l.query {
			return l.readQuery()
		}
		value, at, ok := l.value()
		if !ok || string(value) == "null" {
			return ok
		}
		switch key {
		case "prefetch", "lookup_from", "vector", "query":
			return false
		case "using":
			return l.readName(value)
		case "score_threshold":
			f, err := strconv.ParseFloat(string(value), 32)
			threshold := float32(f)
			l.found.Threshold, l.place.threshold = &threshold, at
			return isNumber(value) && err == nil
		case "limit":
			l.found.Limit, ok = readUint(value)
		case "offset":
			l.found.Offset, ok = readUint(value)
		case "params":
			params, ok = readParamsJSON(value)
		case "filter", "shard_key":
			l.found.Narrowed = true
		}
		return ok
	})
	l.found.Narrowed = l.found.Narrowed || l.groups || l.found.Threshold != nil || l.found.Offset > 0
	params.apply(&l.found)
	return whole && l.found.Query != nil
}

// readQuery reads the vector of a search: an array, or an object that has the array with
// the name of its field or, of a query, as its nearest.
func (l *locator) readQuery() bool {
	if l.scanner.Next() == '[' {
		return l.readNumbers()
	}
	keys := 0
	whole := l.scanner.Object(func(key string) bool {
		keys++
		switch {
		case l.query && key == "nearest" && keys == 1, !l.query && key == "vector" && l.found.Query == nil:
			return l.readNumbers()
		case !l.query && key == "name" && l.found.Vector == "":
			value, _, ok := l.value()
			return ok && l.readName(value)
		}
		return false
	})
	return whole && l.found.Query != nil
}

func (l *locator) readNumbers() (ok bool) {
	value, at, ok := l.value()
	if !ok {
		return false
	}
	l.place.vector = at
	l.found.Query, ok = readVector(value)
	return ok
}

// readName reads the name of a vector field.
func (l *locator) readName(value []byte) (ok bool) {
	s := jsonwalk.New(value)
	l.found.Vector, ok = s.Text()
	return ok && s.AtEnd()
}

func readUint(value []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(value), 10, 64)
	return n, err == nil
}

// readParamsJSON reads the parameters of a search.
func readParamsJSON(text []byte) (p searchParams, ok bool) {
	s := jsonwalk.New(text)
	ok = s.Object(func(key string) bool {
		value, ok := s.Value()
		switch key {
		case "exact":
			p.exact = string(value) == "true"
		case "indexed_only":
			p.indexedOnly = string(value) != "false" && string(value) != "null"
		case "quantization":
			inner := jsonwalk.New(value)
			_ = string(value) == "null" || inner.Object(func(key string) bool {
				value, ok := inner.Value()
				if key == "ignore" {
					p.ignoreQuantization = string(value) == "true"
				}
				return ok
			})
		}
		return ok
	})
	return p, ok
}

// isNumber reports whether b is a number as JSON has them.
func isNumber(b []byte) bool {
	digits := func() (n int) {
		for n < len(b) && '0' <= b[n] && b[n] <= '9' {
			n++
		}
		return n
	}
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	n := digits()
	if n == 0 || n > 1 && b[0] == '0' {
		return false
	}
	if b = b[n:]; len(b) > 0 && b[0] == '.' {
		b = b[1:]
		if n = digits(); n == 0 {
			return false
		}
		b = b[n:]
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if n = digits(); n == 0 {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

// appendNumber appends the shortest decimal that is the float32 when it is read.
func appendNumber(out []byte, f float32) []byte {
	return strconv.AppendFloat(out, float64(f), 'g', -1, 32)
}

// numberBytes is the usual length of a float32 as JSON, with its comma.
const numberBytes = 14

// rewriteJSON returns a body with the vector and the threshold of each search replaced.
func rewriteJSON(body []byte, places []place, all []routing.Rewritten) ([]byte, error) {
	if len(places) != len(all) {
		return nil, fmt.Errorf("%d searches were rewritten in place of %d: %w", len(all), len(places), errAnswer)
	}
	var edits []edit
	for i, r := range all {
		text := append(make([]byte, 0, 2+numberBytes*len(r.Vector)), '[')
		for j, f := range r.Vector {
			if j > 0 {
				text = append(text, ',')
			}
			text = appendNumber(text, f)
		}
		of := []edit{{places[i].vector, append(text, ']')}}
		if r.Threshold != nil {
			of = append(of, edit{places[i].threshold, appendNumber(nil, *r.Threshold)})
			slices.SortFunc(of, func(a, b edit) int { return a.from - b.from })
		}
		edits = append(edits, of...)
	}
	return applyEdits(body, edits), nil
}

// mapScoresJSON returns the body of an answer with the score of every row mapped, and the
// rows of every search. Nothing but the numbers of scores changes.
func (q request) mapScoresJSON(body []byte, all []routing.Rewritten) (mapped []byte, hits [][]search.Hit, err error) {
	m := jsonScoreMapper{request: q, text: body, scanner: jsonwalk.New(body), all: all, hits: make([][]search.Hit, len(all))}
	ok := m.member("result", func() bool {
		if !q.batch {
			return m.list(0)
		}
		i := -1
		return m.scanner.Array(func() bool {
			i++
			return i < len(all) && m.list(i)
		}) && i == len(all)-1
	})
	if m.err != nil {
		return nil, nil, m.err
	}
	if !ok || !m.scanner.AtEnd() {
		return nil, nil, errAnswer
	}
	return applyEdits(body, m.edits), m.hits, nil
}

// jsonScoreMapper reads an answer and notes what changes in it.
type jsonScoreMapper struct {
	request
	text    []byte
	scanner *jsonwalk.Scanner
	all     []routing.Rewritten
	hits    [][]search.Hit
	edits   []edit
	err     error
}

// member reads an object, the value of the key by read. An object without that key, or
// with null, is another form.
func (m *jsonScoreMapper) member(key string, read func() bool) bool {
	found := false
	return m.scanner.Object(func(k string) bool {
		if k != key {
			return m.scanner.Skip()
		}
		found = true
		return read()
	}) && found
}

// list reads the rows of the search i.
func (m *jsonScoreMapper) list(i int) bool {
	points := func() bool { return m.scanner.Array(func() bool { return m.point(i) }) }
	switch {
	case m.groups:
		return m.member("groups", func() bool {
			return m.scanner.Array(func() bool { return m.member("hits", points) })
		})
	case m.query:
		return m.member("points", points)
	}
	return points()
}

// point reads one row of the search i.
func (m *jsonScoreMapper) point(i int) bool {
	var hit search.Hit
	whole := m.scanner.Object(func(key string) bool {
		m.scanner.Next()
		from := m.scanner.Offset()
		value, ok := m.scanner.Value()
		switch {
		case !ok:
			return false
		case key == "id":
			return hit.ID.UnmarshalJSON(value) == nil
		case key != "score" || string(value) == "null": // not a number is null
			return true
		}
		f, err := strconv.ParseFloat(string(value), 32)
		if err != nil {
			return false
		}
		if hit.Score, m.err = m.all[i].MapScore(float32(f)); m.err != nil {
			return false
		}
		if hit.Score != float32(f) {
			m.edits = append(m.edits, edit{span{from, from + len(value)}, scoreText(hit.Score)})
		}
		return true
	})
	m.hits[i] = append(m.hits[i], hit)
	return whole
}

// Locate implements routing.Exchange. A long body waits for its turn, as in Read.
func (c *restCall) Locate(ctx context.Context) (asked routing.Asked, err error) {
	if c.passes != "" {
		return asked, c.passes
	}
	if c.in.Header.Get("Content-Encoding") != "" {
		return asked, routing.Pass("encoding")
	}
	err = c.inTurn(ctx, len(c.body), func() (err error) {
		asked.Searches, c.places, err = c.locateJSON(c.body)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return asked, ctx.Err()
	}
	if err != nil {
		return asked, routing.Pass("not-nearest")
	}
	args, _ := url.ParseQuery(c.in.URL.RawQuery) // what is no argument crosses
	if n, err := strconv.ParseUint(args.Get("timeout"), 10, 32); err == nil {
		asked.Timeout = seconds(n)
	}
	return asked, nil
}

// Rewrite implements routing.Exchange.
func (c *restCall) Rewrite(ctx context.Context, all []routing.Rewritten) (answer rest.Answer, hits [][]search.Hit, err error) {
	body, err := rewriteJSON(c.body, c.places, all)
	if err != nil {
		return answer, nil, errAnswer
	}
	answer = c.forward(ctx, "", body)
	if err := refusalREST(answer); err != nil {
		return answer, nil, err
	}
	answer.Body, hits, err = c.mapScoresJSON(answer.Body, all)
	if err != nil {
		return answer, nil, degradedBy(err)
	}
	return answer, hits, nil
}

// refusalREST is refusal, of REST.
func refusalREST(a rest.Answer) error {
	switch {
	case a.Status == http.StatusOK && !a.Cut:
		return nil
	case rest.Denied(a.Status), a.Status == http.StatusTooManyRequests:
		return routing.ErrDenied
	case a.Status >= 400 && a.Status < 500:
		return routing.Pass("refused")
	}
	return routing.Degraded{Reason: "unavailable"}
}
