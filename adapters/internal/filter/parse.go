package filter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Parse parses a filter. It returns adapters.ErrFilter with the place, the value and
// the expected form.
func Parse(text string) (*Filter, error) {
	n, err := parseDocument(text)
	if err != nil {
		return nil, err
	}
	return parseFilter(n)
}

// fields maps each key of an object to the function that parses its value. Any other
// key is an error.
type fields map[string]func(node) error

func (n node) read(f fields) error {
	members, err := n.members()
	if err != nil {
		return err
	}
	for _, m := range members {
		read, ok := f[m.key]
		if !ok {
			known := make([]string, 0, len(f))
			for k := range f {
				known = append(known, k)
			}
			slices.Sort(known)
			return n.errorf("unknown key %q; there are %s", m.key, strings.Join(known, ", "))
		}
		if err := read(m.node); err != nil {
			return err
		}
	}
	return nil
}

// storeIn returns a function that parses a node and stores the result in dst.
func storeIn[T any](dst *T, parse func(node) (T, error)) func(node) error {
	return func(n node) (err error) {
		*dst, err = parse(n)
		return err
	}
}

// storePointerIn works like into, for an optional value.
func storePointerIn[T any](dst **T, parse func(node) (T, error)) func(node) error {
	return func(n node) error {
		v, err := parse(n)
		*dst = &v
		return err
	}
}

func parseFilter(n node) (*Filter, error) {
	f := &Filter{}
	return f, n.read(fields{
		"must":       storeIn(&f.Must, parseConditions),
		"should":     storeIn(&f.Should, parseConditions),
		"must_not":   storeIn(&f.MustNot, parseConditions),
		"min_should": storeIn(&f.MinShould, parseMinShould),
	})
}

func parseMinShould(n node) (*MinShould, error) {
	m := &MinShould{}
	var count *uint64
	err := n.read(fields{
		"conditions": storeIn(&m.Conditions, parseConditions),
		"min_count":  storePointerIn(&count, node.unsigned),
	})
	if err != nil {
		return nil, err
	}
	if count == nil || m.Conditions == nil {
		return nil, n.errorf("conditions and min_count are both needed")
	}
	m.Count = *count
	return m, nil
}

// parseConditions parses an array of conditions, or a single condition.
func parseConditions(n node) ([]Condition, error) {
	if n.kind() == '{' {
		c, err := parseCondition(n)
		return []Condition{c}, err
	}
	return list(n, parseCondition)
}

func list[T any](n node, parse func(node) (T, error)) ([]T, error) {
	nodes, err := n.elements()
	if err != nil {
		return nil, err
	}
	out := make([]T, len(nodes))
	for i, e := range nodes {
		if out[i], err = parse(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parseCondition recognises the kind of a condition by its keys.
func parseCondition(n node) (Condition, error) {
	members, err := n.members()
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return &Filter{}, nil // an empty filter is always true
	}
	first := members[0]
	if len(members) > 1 {
		for _, m := range members {
			if slices.Contains([]string{"is_empty", "is_null", "has_id", "has_vector", "nested"}, m.key) && m.kind() != 't' && m.kind() != 'f' {
				return nil, n.errorf("%q stands alone in a condition", m.key)
			}
		}
		if slices.ContainsFunc(members, func(m member) bool { return m.key == "key" }) {
			return parseField(n)
		}
		return parseFilter(n)
	}
	switch first.key {
	case "is_empty":
		key, err := parseKey(first.node)
		return IsEmpty(key), err
	case "is_null":
		key, err := parseKey(first.node)
		return IsNull(key), err
	case "has_id":
		ids, err := list(first.node, parseID)
		return HasID(ids), err
	case "has_vector":
		name, err := first.text()
		return HasVector(name), err
	case "nested":
		return parseNested(first.node)
	case "must", "should", "must_not", "min_should":
		return parseFilter(n)
	case "key":
		return nil, n.errorf("key %s has no clause such as match or range", first.shorten())
	}
	return nil, n.errorf("unknown key %q; a condition is key with match, range, geo_bounding_box, geo_radius, geo_polygon or values_count, "+
		"is_empty, is_null, has_id, has_vector, nested, or a filter of must, should, must_not, min_should", first.key)
}

func parseKey(n node) (string, error) {
	var key *string
	if err := n.read(fields{"key": storePointerIn(&key, node.text)}); err != nil {
		return "", err
	}
	if key == nil {
		return "", n.errorf("key is missing")
	}
	return *key, nil
}

func parseNested(n node) (Condition, error) {
	var key *string
	var f *Filter
	err := n.read(fields{"key": storePointerIn(&key, node.text), "filter": storeIn(&f, parseFilter)})
	if err != nil {
		return nil, err
	}
	if key == nil || f == nil {
		return nil, n.errorf("key and filter are both needed")
	}
	return &Nested{Key: *key, Filter: f}, nil
}

func parseID(n node) (rerank.ID, error) {
	if n.kind() == '"' {
		s, err := n.text()
		return rerank.TextID(s), err
	}
	var id rerank.ID
	if err := id.UnmarshalJSON([]byte(strings.TrimSpace(string(n.raw)))); err != nil || id.IsZero() {
		return id, n.errorf("%s is not an id: a 64-bit integer or a string", n.shorten())
	}
	return id, nil
}

// parseField parses a key and its clauses. parseCondition has made sure that there is one.
func parseField(n node) (Condition, error) {
	f := &Field{}
	err := n.read(fields{
		"key":              storeIn(&f.Key, node.text),
		"match":            storeIn(&f.Match, parseMatch),
		"range":            f.parseRange,
		"geo_bounding_box": storePointerIn(&f.GeoBox, parseGeoBox),
		"geo_radius":       storePointerIn(&f.GeoRadius, parseGeoRadius),
		"geo_polygon":      storePointerIn(&f.GeoPolygon, parseGeoPolygon),
		"values_count":     storePointerIn(&f.ValuesCount, parseCount),
		"is_empty":         storePointerIn(&f.IsEmpty, node.boolean),
		"is_null":          storePointerIn(&f.IsNull, node.boolean),
	})
	return f, err
}

func parseMatch(n node) (*Match, error) {
	members, err := n.members()
	if err != nil {
		return nil, err
	}
	if len(members) != 1 {
		return nil, n.errorf("%d keys instead of one of value, any, except, text, text_any, phrase", len(members))
	}
	m := &Match{Kind: MatchKind(members[0].key)}
	switch v := members[0].node; m.Kind {
	case MatchValue:
		one, err := parseValue(v)
		m.Values = []any{one}
		return m, err
	case MatchAny, MatchExcept:
		if m.Values, err = list(v, parseValue); err != nil {
			return nil, err
		}
		return m, oneType(v, m.Values)
	case MatchText, MatchTextAny, MatchPhrase:
		s, err := v.text()
		m.Values = []any{s}
		return m, err
	}
	return nil, n.errorf("unknown key %q; there are value, any, except, text, text_any, phrase", members[0].key)
}

func parseValue(n node) (any, error) {
	switch k := n.kind(); {
	case k == '"':
		return n.text()
	case k == 't' || k == 'f':
		return n.boolean()
	case n.isNumber():
		x, err := n.number()
		if err == nil && !x.IsInt {
			err = n.errorf("%s is not a 64-bit integer; compare other numbers with range", n.shorten())
		}
		return x.Int, err
	}
	return nil, n.errorf("%s instead of a string, an integer or a boolean", n.shorten())
}

func oneType(n node, values []any) error {
	for _, v := range values {
		if _, is := v.(bool); is {
			return n.errorf("a boolean in a list; match it by value")
		}
		if fmt.Sprintf("%T", v) != fmt.Sprintf("%T", values[0]) {
			return n.errorf("strings and integers in one list; use two conditions under should")
		}
	}
	return nil
}

// parseRange parses bounds that are all numbers or all times.
func (f *Field) parseRange(n node) error {
	members, err := n.members()
	if err != nil {
		return err
	}
	if len(members) > 0 && members[0].kind() == '"' {
		f.Datetime = &Datetime{}
		return bounds(n, &f.Datetime.Gt, &f.Datetime.Gte, &f.Datetime.Lt, &f.Datetime.Lte, parseTime)
	}
	f.Range = &Range{}
	return bounds(n, &f.Range.Gt, &f.Range.Gte, &f.Range.Lt, &f.Range.Lte, node.number)
}

func bounds[T any](n node, gt, gte, lt, lte **T, parse func(node) (T, error)) error {
	return n.read(fields{"gt": storePointerIn(gt, parse), "gte": storePointerIn(gte, parse), "lt": storePointerIn(lt, parse), "lte": storePointerIn(lte, parse)})
}

func parseCount(n node) (Count, error) {
	var c Count
	err := bounds(n, &c.Gt, &c.Gte, &c.Lt, &c.Lte, node.unsigned)
	return c, err
}

// layouts lists the time formats that Qdrant accepts. A time without a zone is in UTC.
var layouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04", "2006-01-02"}

// ParseTime parses a time in the formats that Qdrant accepts.
func ParseTime(s string) (time.Time, bool) {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

func parseTime(n node) (time.Time, error) {
	s, err := n.text()
	if err != nil {
		return time.Time{}, err
	}
	t, ok := ParseTime(s)
	if !ok || t.Year() < 1 || t.Year() > 9999 {
		return t, n.errorf("%s is not a time such as 2026-01-31T12:00:00Z", n.shorten())
	}
	return t, nil
}

func parsePoint(n node) (GeoPoint, error) {
	var lon, lat *Number
	if err := n.read(fields{"lon": storePointerIn(&lon, node.number), "lat": storePointerIn(&lat, node.number)}); err != nil {
		return GeoPoint{}, err
	}
	if lon == nil || lat == nil {
		return GeoPoint{}, n.errorf("lon and lat are both needed")
	}
	return GeoPoint{Lon: lon.Float, Lat: lat.Float}, nil
}

func parseGeoBox(n node) (GeoBox, error) {
	var a, b *GeoPoint
	if err := n.read(fields{"top_left": storePointerIn(&a, parsePoint), "bottom_right": storePointerIn(&b, parsePoint)}); err != nil {
		return GeoBox{}, err
	}
	if a == nil || b == nil {
		return GeoBox{}, n.errorf("top_left and bottom_right are both needed")
	}
	return GeoBox{TopLeft: *a, BottomRight: *b}, nil
}

func parseGeoRadius(n node) (GeoRadius, error) {
	var centre *GeoPoint
	var radius *Number
	if err := n.read(fields{"center": storePointerIn(&centre, parsePoint), "radius": storePointerIn(&radius, node.number)}); err != nil {
		return GeoRadius{}, err
	}
	if centre == nil || radius == nil {
		return GeoRadius{}, n.errorf("center and radius are both needed")
	}
	return GeoRadius{Centre: *centre, Radius: radius.Float}, nil
}

func parseGeoPolygon(n node) (GeoPolygon, error) {
	var p GeoPolygon
	err := n.read(fields{
		"exterior":  storeIn(&p.Exterior, parseRing),
		"interiors": storeIn(&p.Interiors, func(n node) ([][]GeoPoint, error) { return list(n, parseRing) }),
	})
	if err == nil && p.Exterior == nil {
		err = n.errorf("exterior is missing")
	}
	return p, err
}

func parseRing(n node) ([]GeoPoint, error) {
	var points []GeoPoint
	err := n.read(fields{"points": storeIn(&points, func(n node) ([]GeoPoint, error) { return list(n, parsePoint) })})
	if err == nil && points == nil {
		err = n.errorf("points are missing")
	}
	return points, err
}
