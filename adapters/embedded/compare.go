package embedded

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/filter"
)

func compileMatch(m *filter.Match) (func(any) bool, error) {
	switch m.Kind {
	case filter.MatchValue, filter.MatchAny:
		return func(v any) bool { return slices.Contains(m.Values, comparableValue(v)) }, nil
	case filter.MatchExcept:
		return func(v any) bool { return v != nil && !slices.Contains(m.Values, comparableValue(v)) }, nil
	case filter.MatchText:
		return func(v any) bool {
			s, is := v.(string)
			return is && strings.Contains(s, m.Values[0].(string))
		}, nil
	default:
		return nil, unsupported("match " + string(m.Kind))
	}
}

// comparableValue returns v if it is a string, int64 or bool, which == compares without a
// panic, and nil for any other value.
func comparableValue(v any) any {
	switch v.(type) {
	case string, int64, bool:
		return v
	}
	return nil
}

func inRange(r *filter.Range, v any) bool {
	var x filter.Number
	switch v := v.(type) {
	case int64:
		x = filter.Number{Float: float64(v), Int: v, IsInt: true}
	case float64:
		x = filter.Number{Float: v}
	default:
		return false
	}
	return within(x, r.Gt, r.Gte, r.Lt, r.Lte, compareNumbers)
}

// compareNumbers compares integers exactly, including those beyond 2^53.
func compareNumbers(a, b filter.Number) int {
	if a.IsInt && b.IsInt {
		return cmp.Compare(a.Int, b.Int)
	}
	return cmp.Compare(a.Float, b.Float)
}

func inTimes(r *filter.Datetime, v any) bool {
	s, is := v.(string)
	if !is {
		return false
	}
	t, ok := filter.ParseTime(s)
	return ok && within(t, r.Gt, r.Gte, r.Lt, r.Lte, time.Time.Compare)
}

// inCount evaluates a values_count condition on an existing key. null counts as no
// value, and a value that is not an array as one.
func inCount(r *filter.Count, values []any) bool {
	return slices.ContainsFunc(values, func(v any) bool {
		n := uint64(1)
		if list, is := v.([]any); is {
			n = uint64(len(list))
		} else if v == nil {
			n = 0
		}
		return within(n, r.Gt, r.Gte, r.Lt, r.Lte, cmp.Compare[uint64])
	})
}

func within[T any](x T, gt, gte, lt, lte *T, compare func(a, b T) int) bool {
	return (gt == nil || compare(x, *gt) > 0) && (gte == nil || compare(x, *gte) >= 0) &&
		(lt == nil || compare(x, *lt) < 0) && (lte == nil || compare(x, *lte) <= 0)
}

// path is a parsed payload key: names, each optionally followed by "every element" or
// an element's index.
type path []step

type step struct {
	name  string
	every bool
	index int // index of an element, or -1
}

func parsePath(key string) (path, error) {
	var p path
	for part := range strings.SplitSeq(key, ".") {
		name, rest, indexed := strings.Cut(part, "[")
		if name == "" || strings.ContainsAny(part, `"\`) {
			return nil, fmt.Errorf("%w: key %q: the embedded store takes names, dots, [] and [0]", adapters.ErrFilter, key)
		}
		p = append(p, step{name: name, index: -1})
		for indexed {
			var inside string
			inside, rest, indexed = strings.Cut(rest, "]")
			n, err := strconv.Atoi(inside)
			if !indexed || inside != "" && (err != nil || n < 0) || rest != "" && rest[0] != '[' {
				return nil, fmt.Errorf("%w: key %q: [] or a number in brackets was expected", adapters.ErrFilter, key)
			}
			p = append(p, step{every: inside == "", index: n})
			rest, indexed = strings.CutPrefix(rest, "[")
		}
	}
	return p, nil
}

// valuesAt returns the values at the path. It returns none if a key is absent.
func (p path) valuesAt(object map[string]any) []any {
	at := []any{object}
	for _, s := range p {
		var next []any
		for _, v := range at {
			next = s.follow(next, v)
		}
		at = next
	}
	return at
}

func (s step) follow(out []any, v any) []any {
	switch v := v.(type) {
	case map[string]any:
		if x, ok := v[s.name]; ok && s.name != "" {
			return append(out, x)
		}
	case []any:
		switch {
		case s.every:
			return append(out, v...)
		case s.name == "" && s.index >= 0 && s.index < len(v):
			return append(out, v[s.index])
		}
	}
	return out
}
