package qdrant

import (
	"encoding/json"
	"slices"
	"strconv"
)

// check reports whether a JSON value is one that Qdrant reads. What Qdrant refuses must
// pass as it came: a route that answered it would hide the refusal.
type check func(value []byte) bool

// searchChecks are the values of a search that no other reader looks at.
var searchChecks = map[string]check{
	"with_payload": optional(either(isBool, isStrings, isSelector)),
	"with_vector":  optional(either(isBool, isStrings)),
	"filter":       optional(func(v []byte) bool { return len(v) > 0 && v[0] == '{' }),
	"using":        optional(isString),
	"params": optional(objectOf(map[string]check{
		"hnsw_ef": optional(isCount), "exact": isBool, "indexed_only": isBool,
		"quantization": optional(objectOf(map[string]check{
			"ignore": isBool, "rescore": optional(isBool), "oversampling": optional(numberFrom(1, 1e308)),
		})),
		"acorn": optional(objectOf(map[string]check{"enable": isBool, "max_selectivity": optional(numberFrom(0, 1))})),
	})),
}

// isWellTyped reports whether Qdrant reads the values of searchChecks.
func isWellTyped(o object) bool {
	for key, check := range searchChecks {
		if v := o.get(key); v != nil && !check(v) {
			return false
		}
	}
	return true
}

func isBool(v []byte) bool { return string(v) == "true" || string(v) == "false" }

func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }

func isCount(v []byte) bool {
	_, err := strconv.ParseUint(string(v), 10, 64)
	return err == nil
}

func isStrings(v []byte) bool {
	all, err := readArray(v, maxSelected)
	return err == nil && !slices.ContainsFunc(all, func(e json.RawMessage) bool { return !isString(e) })
}

// maxSelected is the most fields of a payload, or vectors, that a search is read with.
const maxSelected = 1 << 10

// isSelector accepts either the one or the other list of payload fields.
func isSelector(v []byte) bool {
	o, err := readObject(v)
	return err == nil && len(o) == 1 && !o.unknown("include", "exclude") && isStrings(o[0].value)
}

func numberFrom(least, most float64) check {
	return func(v []byte) bool {
		if !isNumber(v) {
			return false
		}
		f, err := strconv.ParseFloat(string(v), 64)
		return err == nil && f >= least && f <= most
	}
}

func optional(c check) check {
	return func(v []byte) bool { return string(v) == "null" || c(v) }
}

func either(all ...check) check {
	return func(v []byte) bool {
		return slices.ContainsFunc(all, func(c check) bool { return c(v) })
	}
}

// objectOf accepts an object of such values, each at most once. Any may be missing.
func objectOf(values map[string]check) check {
	return func(v []byte) bool {
		o, err := readObject(v)
		if err != nil {
			return false
		}
		for _, m := range o {
			if c, known := values[m.key]; !known || !c(m.value) {
				return false
			}
		}
		return true
	}
}
