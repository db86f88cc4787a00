package embedded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/filter"
	"github.com/likenessdb/likeness/rerank"
)

// compileFilter compiles a filter to a function that reports whether a row passes. It returns
// nil for no filter.
//
// The filter is Qdrant's JSON: must, should, must_not, min_should; match value, any,
// except and text (a substring); range of numbers and of times; values_count;
// is_empty, is_null, has_id, nested; keys a.b, a[].b and a[0].b. Geographic
// conditions, has_vector, text_any and phrase are refused. As in Qdrant, an array
// satisfies a condition if one of its elements does.
func (c *collection) compileFilter(text string) (func(row int) bool, error) {
	if text == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		return nil, err
	}
	holds, err := compile(f)
	if err != nil {
		return nil, err
	}
	objects, err := c.objects()
	if err != nil {
		return nil, err
	}
	return func(row int) bool {
		r := jsonRecord{id: c.id(row)}
		if objects != nil {
			r.payload = objects[row]
		}
		return holds(r)
	}, nil
}

// discardObjects discards the decoded payloads.
func (c *collection) discardObjects() {
	c.objects = sync.OnceValues(func() ([]map[string]any, error) {
		if c.payloads == nil && c.owners == nil {
			return nil, nil
		}
		out := make([]map[string]any, c.rows)
		for row := range out {
			var err error
			if out[row], err = c.decodeRow(row); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// decodeRow decodes a row's payload and adds its owner.
func (c *collection) decodeRow(row int) (map[string]any, error) {
	out := map[string]any{}
	if c.payloads != nil {
		d := json.NewDecoder(bytes.NewReader(orObject(c.payloads[row])))
		d.UseNumber()
		if err := d.Decode(&out); err != nil {
			return nil, fmt.Errorf("%w: payload of row %s: %w", adapters.ErrStore, c.id(row), err)
		}
	}
	for k, v := range out {
		out[k] = exactNumber(v)
	}
	if c.owners != nil {
		out[c.owner] = idValue(c.owners[row])
	}
	return out, nil
}

func idValue(id rerank.ID) any {
	if n, ok := id.Int64(); ok {
		return n
	}
	if n, ok := id.Uint64(); ok {
		return float64(n)
	}
	return id.String()
}

// exactNumber converts numbers to int64 if they are integers in its range, otherwise to
// float64.
func exactNumber(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, _ := v.Float64() // out of range gives ±Inf, which compares correctly
		return f
	case []any:
		for i := range v {
			v[i] = exactNumber(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exactNumber(v[k])
		}
	}
	return v
}

// jsonRecord is the JSON object that a filter examines: a row's payload, or an element of
// a nested array.
type jsonRecord struct {
	id      rerank.ID
	payload map[string]any
}

type predicate func(jsonRecord) bool

func unsupported(what string) error {
	return fmt.Errorf("%w: the embedded store does not evaluate %s", adapters.ErrFilter, what)
}

func compile(f *filter.Filter) (predicate, error) {
	must, err := compileAll(f.Must)
	if err != nil {
		return nil, err
	}
	should, err := compileAll(f.Should)
	if err != nil {
		return nil, err
	}
	mustNot, err := compileAll(f.MustNot)
	if err != nil {
		return nil, err
	}
	var few []predicate
	least := 0
	if m := f.MinShould; m != nil {
		if few, err = compileAll(m.Conditions); err != nil {
			return nil, err
		}
		least = int(min(m.Count, uint64(len(few)+1)))
	}
	return func(r jsonRecord) bool {
		return count(must, r) == len(must) && (len(should) == 0 || count(should, r) > 0) &&
			count(mustNot, r) == 0 && count(few, r) >= least
	}, nil
}

func count(ps []predicate, r jsonRecord) int {
	n := 0
	for _, p := range ps {
		if p(r) {
			n++
		}
	}
	return n
}

func compileAll(cs []filter.Condition) ([]predicate, error) {
	out := make([]predicate, len(cs))
	for i, c := range cs {
		var err error
		if out[i], err = compileCondition(c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func compileCondition(c filter.Condition) (predicate, error) {
	switch c := c.(type) {
	case *filter.Filter:
		return compile(c)
	case *filter.Field:
		return compileField(c)
	case *filter.Nested:
		return compileNested(c)
	case filter.HasID:
		ids := map[rerank.ID]bool{}
		for _, id := range c {
			ids[id] = true
		}
		return func(r jsonRecord) bool { return ids[r.id] }, nil
	case filter.IsEmpty:
		return compilePath(string(c), isEmpty)
	case filter.IsNull:
		return compilePath(string(c), isNull)
	default:
		return nil, unsupported("has_vector")
	}
}

func compilePath(key string, holds func([]any) bool) (predicate, error) {
	p, err := parsePath(key)
	if err != nil {
		return nil, err
	}
	return func(r jsonRecord) bool { return holds(p.valuesAt(r.payload)) }, nil
}

func isEmpty(values []any) bool {
	return !slices.ContainsFunc(values, func(v any) bool {
		list, is := v.([]any)
		return v != nil && (!is || len(list) > 0)
	})
}

func isNull(values []any) bool {
	return slices.ContainsFunc(values, func(v any) bool { return v == nil })
}

func compileNested(n *filter.Nested) (predicate, error) {
	holds, err := compile(n.Filter)
	if err != nil {
		return nil, err
	}
	p, err := parsePath(strings.TrimSuffix(n.Key, "[]") + "[]")
	if err != nil {
		return nil, err
	}
	return func(r jsonRecord) bool {
		return slices.ContainsFunc(p.valuesAt(r.payload), func(v any) bool {
			object, is := v.(map[string]any)
			return is && holds(jsonRecord{id: r.id, payload: object})
		})
	}, nil
}

func compileField(f *filter.Field) (predicate, error) {
	clauses := f.Clauses()
	if len(clauses) != 1 {
		return nil, unsupported(fmt.Sprintf("%s together on key %q; give each its own condition", strings.Join(clauses, " and "), f.Key))
	}
	switch {
	case f.Match != nil:
		holds, err := compileMatch(f.Match)
		if err != nil {
			return nil, err
		}
		return compilePath(f.Key, anyElement(holds))
	case f.Range != nil:
		return compilePath(f.Key, anyElement(func(v any) bool { return inRange(f.Range, v) }))
	case f.Datetime != nil:
		return compilePath(f.Key, anyElement(func(v any) bool { return inTimes(f.Datetime, v) }))
	case f.ValuesCount != nil:
		return compilePath(f.Key, func(values []any) bool { return inCount(f.ValuesCount, values) })
	case f.IsEmpty != nil:
		return compilePath(f.Key, func(values []any) bool { return isEmpty(values) == *f.IsEmpty })
	case f.IsNull != nil:
		return compilePath(f.Key, func(values []any) bool { return isNull(values) == *f.IsNull })
	}
	return nil, unsupported(clauses[0])
}

// anyElement returns a condition that is true if holds is true for a value or for an
// element of an array value.
func anyElement(holds func(any) bool) func([]any) bool {
	return func(values []any) bool {
		return slices.ContainsFunc(values, func(v any) bool {
			if list, is := v.([]any); is {
				return slices.ContainsFunc(list, holds)
			}
			return holds(v)
		})
	}
}
