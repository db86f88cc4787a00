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

// span is a part of a text, from byte offset from up to to.
type span struct{ from, to int }

// place holds the positions in a body of the parts of one search that rewriting replaces.
type place struct {
	vector    span
	threshold span // empty: the search has none
	// params is the search's object of parameters. It is empty if there is none. ef and quantization
	// are the values of its parameters of that name if they are null, and otherwise empty.
	params, ef, quantization span
	// end is the position of the brace that closes the search.
	end int
}

// edit replaces a part of a text.
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

// locatedJSON is the part of a body that rewriting needs.
type locatedJSON struct {
	searches []routing.Search
	places   []place // positions of the searches
	// queries holds the stages of each query of the body. nil means that each query is one search.
	queries []stage
}

// locateJSON finds the searches in a body, and skips everything else. In a query with prefetches it
// finds the searches of routed fields. It returns errOther for a body of another form. Skipped
// parts may be invalid JSON, because the database refuses the rewritten body as it refuses the
// original.
func (q request) locateJSON(body []byte, routed func(field string) bool) (found locatedJSON, err error) {
	s := jsonwalk.New(body)
	one := func() bool {
		l := locator{request: q, scanner: s, routed: routed, found: &found}
		first := len(found.searches)
		query, ok := l.read(maxPrefetchLevels + 1)
		for i := range found.searches[first:] {
			found.searches[first+i].Offset = l.search.Offset
		}
		found.queries = append(found.queries, query)
		return ok && len(found.searches) > first
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
		return locatedJSON{}, errOther
	}
	if !slices.ContainsFunc(found.searches, func(s routing.Search) bool { return s.Staged }) {
		found.queries = nil
	}
	return found, nil
}

// locator reads one search of a body or one stage of a query.
type locator struct {
	request
	scanner *jsonwalk.Scanner
	routed  func(field string) bool
	found   *locatedJSON // collects the searches

	search  routing.Search
	place   place
	seen    []string // keys that were read so far
	kind    queryKind
	params  searchParams
	staged  bool // it is a stage of a query, or has prefetches
	looksUp bool // its vector is looked up in another collection
}

// queryKind is the kind of a search's query.
type queryKind int

const (
	queryAbsent queryKind = iota
	queryDense            // a dense vector, which search has
	queryFused            // its rows depend on no vector field
	queryFormula
	queryOther
)

// value skips a value, and returns its text and its position.
func (l *locator) value() (text []byte, at span, ok bool) {
	l.scanner.Next()
	from := l.scanner.Offset()
	text, ok = l.scanner.Value()
	return text, span{from, l.scanner.Offset()}, ok
}

// read reads a search, or a query with at most the given number of levels of prefetches. It returns
// false for a search that is not by a dense vector, for a stage that uses a routed field in another
// way, and for a formula, whose terms are the scores of its prefetches.
func (l *locator) read(levels int) (s stage, ok bool) {
	s.search = passesAsIs
	if l.query {
		l.search.Limit = 10
	}
	l.staged = levels <= maxPrefetchLevels // a prefetch is always a stage
	whole := levels > 0 && l.scanner.Object(func(key string) bool {
		if !slices.Contains(locatedKeys, key) {
			return slices.Contains(passedKeys, key) && l.scanner.Skip()
		}
		if slices.Contains(l.seen, key) {
			return false // a repeated key is ambiguous
		}
		l.seen = append(l.seen, key)
		switch {
		case key == "vector" && !l.query, key == "query" && l.query && l.scanner.Next() != 'n':
			return l.readQuery()
		case key == "prefetch" && l.query && l.scanner.Next() != 'n':
			l.staged = true
			return l.readPrefetches(&s, levels)
		}
		return l.readSetting(key)
	})
	if !whole {
		return s, false
	}
	l.place.end = l.scanner.Offset() - 1
	l.search.Narrowed = l.search.Narrowed || l.groups || l.search.Threshold != nil || l.search.Offset > 0
	l.params.apply(&l.search)
	return s, l.addTo(&s)
}

// passedKeys are the other keys of a search that this version knows. A key that it does not know
// may mean that the rows are found or ordered otherwise.
var passedKeys = []string{"with_payload", "with_vector", "group_by", "group_size", "with_lookup"}

// locatedKeys are the keys of a search that read looks at.
var locatedKeys = []string{
	"vector", "query", "using", "prefetch", "lookup_from", "score_threshold", "limit", "offset", "params", "filter", "shard_key",
}

// readSetting reads the value of any key of locatedKeys but the query and its prefetches, which may
// only be null.
func (l *locator) readSetting(key string) bool {
	value, at, ok := l.value()
	if key == "params" {
		l.place.params = at
	}
	if !ok || string(value) == "null" {
		return ok
	}
	switch key {
	case "lookup_from":
		l.looksUp = true
	case "prefetch", "vector", "query":
		return false
	case "using":
		return l.readName(value)
	case "score_threshold":
		f, err := strconv.ParseFloat(string(value), 32)
		threshold := float32(f)
		l.search.Threshold, l.place.threshold = &threshold, at
		return isNumber(value) && err == nil
	case "limit":
		l.search.Limit, ok = readUint(value)
	case "offset":
		l.search.Offset, ok = readUint(value)
	case "params":
		ok = l.readParams(value)
	case "filter", "shard_key":
		l.search.Narrowed = true
	}
	return ok
}

// addTo adds the search that was read to the searches of the body, and its number to the stage. A
// stage that is sent as it came keeps passesAsIs. It returns false if the body cannot be rewritten.
func (l *locator) addTo(s *stage) bool {
	switch {
	case !l.staged && (l.kind != queryDense || l.looksUp), l.kind == queryFormula:
		return false
	case l.staged && (l.kind == queryAbsent || l.kind == queryFused || !l.routed(l.search.Vector)):
		return true
	case l.kind != queryDense || l.looksUp || len(l.found.searches) == routing.MaxRewrites:
		return false
	}
	if l.staged { // prefetches supply the rows, or a fusion takes them
		l.search.Staged, l.search.Narrowed, l.search.Exact = true, true, false
	}
	s.search = len(l.found.searches)
	l.found.searches, l.found.places = append(l.found.searches, l.search), append(l.found.places, l.place)
	return true
}

// readPrefetches reads the prefetches of a stage: one object, or an array of them.
func (l *locator) readPrefetches(s *stage, levels int) bool {
	one := func() bool {
		if len(s.legs) == maxPrefetches {
			return false
		}
		inner := locator{request: request{query: true}, scanner: l.scanner, routed: l.routed, found: l.found}
		leg, ok := inner.read(levels - 1)
		s.legs = append(s.legs, leg)
		return ok
	}
	if l.scanner.Next() == '{' {
		return one()
	}
	return l.scanner.Array(one)
}

// readQuery reads the vector of a search: an array, or an object that holds the array under the
// name of its field or, in a query, as nearest.
func (l *locator) readQuery() bool {
	switch c := l.scanner.Next(); {
	case c == '[':
		return l.readNumbers()
	case c != '{' && l.query: // an id of a point
		l.kind = queryOther
		return l.scanner.Skip()
	}
	keys := 0
	return l.scanner.Object(func(key string) bool {
		keys++
		switch {
		case l.query && keys > 1:
			l.kind = queryOther
		case l.query && key == "nearest", !l.query && key == "vector" && l.search.Query == nil:
			return l.readNumbers()
		case !l.query && key == "name" && l.search.Vector == "":
			value, _, ok := l.value()
			return ok && l.readName(value)
		case key == "fusion" || key == "rrf" || key == "order_by" || key == "sample":
			l.kind = queryFused
		case key == "formula":
			l.kind = queryFormula
		default:
			l.kind = queryOther
		}
		return l.query && l.scanner.Skip()
	})
}

// readNumbers reads a dense vector. It records any other value as another kind of query.
func (l *locator) readNumbers() (ok bool) {
	value, at, ok := l.value()
	if !ok {
		return false
	}
	l.place.vector, l.kind = at, queryOther
	if l.search.Query, ok = readVector(value); ok {
		l.kind = queryDense
	}
	return true
}

// readName reads the name of a vector field.
func (l *locator) readName(value []byte) (ok bool) {
	s := jsonwalk.New(value)
	l.search.Vector, ok = s.Text()
	return ok && s.AtEnd()
}

func readUint(value []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(value), 10, 64)
	return n, err == nil
}

// readParams reads the parameters of a search, which begin at place.params.
func (l *locator) readParams(text []byte) bool {
	s, p := jsonwalk.New(text), &l.params
	null := func(value []byte) span {
		return span{l.place.params.from + s.Offset() - len(value), l.place.params.from + s.Offset()}
	}
	return s.Object(func(key string) bool {
		value, ok := s.Value()
		isNull := string(value) == "null"
		switch key {
		case "hnsw_ef":
			if p.ef = !isNull; isNull {
				l.place.ef = null(value)
			}
		case "exact":
			p.exact, p.hasExact = string(value) == "true", true
		case "indexed_only":
			p.indexedOnly = string(value) != "false" && string(value) != "null"
		case "quantization":
			if p.hasQuantization = !isNull; isNull {
				l.place.quantization = null(value)
			}
			inner := jsonwalk.New(value)
			_ = isNull || inner.Object(func(key string) bool {
				value, ok := inner.Value()
				if key == "ignore" {
					p.ignoreQuantization = string(value) == "true"
				}
				return ok
			})
		}
		return ok
	})
}

// isNumber reports whether b is a JSON number.
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

// appendNumber appends the shortest decimal that parses as f.
func appendNumber(out []byte, f float32) []byte {
	return strconv.AppendFloat(out, float64(f), 'g', -1, 32)
}

// numberBytes is the usual length of a float32 in JSON, including a comma.
const numberBytes = 14

// rewriteJSON returns a body with the vector and the threshold of each search replaced, and its
// parameters added.
func rewriteJSON(body []byte, places []place, all []routing.Replacement) ([]byte, error) {
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
		edits = append(edits, edit{places[i].vector, append(text, ']')})
		if r.Threshold != nil {
			edits = append(edits, edit{places[i].threshold, appendNumber(nil, *r.Threshold)})
		}
		edits = append(edits, places[i].paramEdits(body, r)...)
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.from - b.from })
	return applyEdits(body, edits), nil
}

// paramEdits returns the edits that add parameters to a search. A parameter that is null gets its
// value in that place.
func (p place) paramEdits(body []byte, r routing.Replacement) (edits []edit) {
	var added []byte
	set := func(key, value string, null span) {
		if null.to > 0 {
			edits = append(edits, edit{null, []byte(value)})
			return
		}
		if len(added) > 0 {
			added = append(added, ',')
		}
		added = append(append(strconv.AppendQuote(added, key), ':'), value...)
	}
	if r.EF > 0 {
		set("hnsw_ef", strconv.FormatUint(r.EF, 10), p.ef)
	}
	if r.Exact {
		set("exact", "true", span{})
	}
	if r.Unquantized {
		set("quantization", `{"ignore":true}`, p.quantization)
	}
	if len(added) > 0 {
		edits = append(edits, p.addMembers(body, added))
	}
	return edits
}

// addMembers returns the edit that adds members to a search's object of parameters.
func (p place) addMembers(body, members []byte) edit {
	begin := p.params.from + 1
	switch {
	case p.params.to == 0:
		return edit{span{p.end, p.end}, append(append([]byte(`,"params":{`), members...), '}')}
	case body[p.params.from] != '{': // null
		return edit{p.params, append(append([]byte{'{'}, members...), '}')}
	}
	if jsonwalk.New(body[begin:p.params.to]).Next() != '}' {
		members = append(members, ',')
	}
	return edit{span{begin, begin}, members}
}

// mapScoresJSON returns the body of an answer with the scores of all rows mapped, and the rows of
// every search. It changes only the numbers of scores.
func (q request) mapScoresJSON(body []byte, all []routing.Replacement) (mapped []byte, hits [][]search.Hit, err error) {
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

// jsonScoreMapper reads an answer and records the edits that map its scores.
type jsonScoreMapper struct {
	request
	text    []byte
	scanner *jsonwalk.Scanner
	all     []routing.Replacement
	hits    [][]search.Hit
	edits   []edit
	err     error
}

// member reads an object and calls read at the value of key. It returns false if the object lacks
// the key or its value is null.
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

// list reads the rows of search i.
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

// point reads one row of search i.
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
		case key != "score" || string(value) == "null": // NaN is written as null
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
		c.located, err = c.locateJSON(c.body, c.routed)
		return err
	})
	asked.Searches = c.located.searches
	if err != nil && ctx.Err() != nil {
		return asked, ctx.Err()
	}
	if err != nil {
		return asked, routing.Pass("not-nearest")
	}
	args, _ := url.ParseQuery(c.in.URL.RawQuery) // malformed arguments are forwarded as they are
	if n, err := strconv.ParseUint(args.Get("timeout"), 10, 32); err == nil {
		asked.Timeout = seconds(n)
	}
	return asked, nil
}

// Rewrite implements routing.Exchange.
func (c *restCall) Rewrite(ctx context.Context, all []routing.Replacement) (answer rest.Answer, hits [][]search.Hit, err error) {
	queries := c.located.queries
	body, err := rewriteJSON(c.body, c.located.places, all)
	if err != nil {
		return answer, nil, errAnswer
	}
	answer = c.forward(ctx, "", body)
	if err := refusalREST(answer); err != nil {
		return answer, nil, err
	}
	answer.Body, hits, err = c.mapScoresJSON(answer.Body, lastStages(queries, all))
	if err != nil {
		return answer, nil, degradedBy(err)
	}
	return answer, hitsOfStages(queries, hits, len(all)), nil
}

// refusalREST is refusal for REST.
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
