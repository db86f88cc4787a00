package qdrant

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// check returns "" for a JSON value that Qdrant accepts, and otherwise why its search passes. A
// search that Qdrant refuses must pass unchanged, because a route that answered it would hide the
// refusal.
type check func(value []byte) routing.Pass

// searchChecks maps the keys that no other reader looks at to checks of their values.
var searchChecks = map[string]check{
	"with_payload": optional(either(is(boolean), is(listOfStrings), checkSelector)),
	"with_vector":  optional(either(is(boolean), is(listOfStrings))),
	"filter":       optional(is(func(v []byte) bool { return len(v) > 0 && v[0] == '{' })),
	"using":        optional(is(isString)),
	"params": optional(objectOf(map[string]check{
		"hnsw_ef": optional(is(count)), "exact": is(boolean), "indexed_only": is(boolean),
		"quantization": optional(objectOf(map[string]check{
			"ignore": is(boolean), "rescore": optional(is(boolean)), "oversampling": optional(is(numberFrom(1, 1e308))),
		})),
		"acorn": optional(objectOf(map[string]check{"enable": is(boolean), "max_selectivity": optional(is(numberFrom(0, 1)))})),
	})),
}

// checkTypes returns the Pass of a search with a value that fails its check, or "".
func checkTypes(o object) routing.Pass {
	for key, check := range searchChecks {
		if v := o.get(key); v != nil {
			if why := check(v); why != "" {
				return why
			}
		}
	}
	return ""
}

func boolean(v []byte) bool { return string(v) == "true" || string(v) == "false" }

func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }

func count(v []byte) bool {
	_, err := strconv.ParseUint(string(v), 10, 64)
	return err == nil
}

func listOfStrings(v []byte) bool {
	all, err := readArray(v, maxSelected)
	return err == nil && !slices.ContainsFunc(all, func(e json.RawMessage) bool { return !isString(e) })
}

// maxSelected limits the payload fields or vectors that a search selects.
const maxSelected = 1 << 10

func numberFrom(least, most float64) func(v []byte) bool {
	return func(v []byte) bool {
		if !isNumber(v) {
			return false
		}
		f, err := strconv.ParseFloat(string(v), 64)
		return err == nil && f >= least && f <= most
	}
}

// checkSelector accepts an object that either includes or excludes payload fields.
func checkSelector(v []byte) routing.Pass {
	o, err := readObject(v)
	switch {
	case err != nil || len(o) != 1:
		return "malformed"
	case o.unknown("include", "exclude"):
		return "unknown-field"
	}
	return is(listOfStrings)(o[0].value)
}

// is returns a check that passes a request as malformed unless holds is true for the value.
func is(holds func(v []byte) bool) check {
	return func(v []byte) routing.Pass {
		if holds(v) {
			return ""
		}
		return "malformed"
	}
}

func optional(c check) check {
	return func(v []byte) routing.Pass {
		if string(v) == "null" {
			return ""
		}
		return c(v)
	}
}

// either returns a check that accepts a value which any of the checks accepts. For other values it
// returns the last check's result.
func either(all ...check) check {
	return func(v []byte) (why routing.Pass) {
		for _, c := range all {
			if why = c(v); why == "" {
				break
			}
		}
		return why
	}
}

// objectOf returns a check that accepts objects whose keys are all in values and pass their checks.
// Keys may be missing, but not repeated.
func objectOf(values map[string]check) check {
	return func(v []byte) routing.Pass {
		o, err := readObject(v)
		if err != nil {
			return "malformed"
		}
		for _, m := range o {
			c, known := values[m.key]
			if !known {
				return "unknown-field"
			}
			if why := c(m.value); why != "" {
				return why
			}
		}
		return ""
	}
}
