package search

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Longer texts are left out of the log: searching them for the filter's words would take too long.
const (
	maxLoggedText   = 4 << 10
	maxLoggedFilter = 64 << 10
)

// searchError is the error of a search with a filter. Stores repeat the filter in their errors, but
// what callers search for must not be logged: see Redact.
type searchError struct {
	error
	filter string
}

// withFilter returns err with the filter, so that a log can remove the filter's words from the
// error's text.
func withFilter(err error, filter string) error {
	if err == nil || filter == "" {
		return err
	}
	return searchError{err, filter}
}

func (e searchError) Unwrap() error { return e.error }

// Redact returns the error's text without the names, strings and numbers of the filter. It
// implements telemetry.Redactor.
func (e searchError) Redact(text string) string {
	if len(text) > maxLoggedText || len(e.filter) > maxLoggedFilter {
		return fmt.Sprintf("%s (%d bytes of text left out: it may hold the filter)", ErrorType(e.error), len(text))
	}
	parts := append(filterStrings(e.filter), filterWords(e.filter)...)
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	for _, part := range slices.Compact(parts) {
		if len(part) >= 3 && !slices.Contains(filterGrammar, part) {
			text = strings.ReplaceAll(text, part, "[filter]")
		}
	}
	return text
}

// filterStrings returns the keys and the strings of a JSON filter.
func filterStrings(filter string) (parts []string) {
	d := json.NewDecoder(strings.NewReader(filter))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil {
			return parts
		}
		if s, ok := t.(string); ok {
			parts = append(parts, s)
		}
	}
}

// filterWords returns the words of a filter in any language, as they are written.
func filterWords(filter string) []string {
	return strings.FieldsFunc(filter, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune(`_-.\`, r)
	})
}

// filterGrammar holds the words of the filter languages themselves, which reveal nothing about a
// caller.
var filterGrammar = []string{
	"must", "must_not", "should", "min_should", "key", "match", "value", "any", "except", "text", "phrase", "range", "gt", "gte", "lt", "lte",
	"values_count", "is_empty", "is_null", "has_id", "has_vector", "nested", "filter", "geo_radius", "geo_bounding_box", "geo_polygon",
	"and", "or", "not", "in", "like", "true", "false", "null",
}
