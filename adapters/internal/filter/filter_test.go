package filter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/filter"
)

// TestErrorsNameThePlace: the path, what stands there, what was expected.
func TestErrorsNameThePlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"mst": []}`: `filter: unknown key "mst"; there are min_should, must, must_not, should`,
		`{"must": [{"key": "a", "match": {"value": 1}}, {"key": "b", "match": {"vale": 1}}]}`: `must[1].match: unknown key "vale"`,
		`{"must": [{"key": "a", "mach": {"value": 1}}]}`:                                      `must[0]: unknown key "mach"`,
		`{"should": {"nested": {"key": "a"}}}`:                                                `should.nested: key and filter are both needed`,
		`{"must": [{"key": "a", "range": {"gt": true}}]}`:                                     `must[0].range.gt: true instead of a number`,
		`{"must": [{"key": "a", "range": {"gt": 1, "lt": "2026-01-01"}}]}`:                    `must[0].range.lt: "2026-01-01" instead of a number`,
		`{"must": [{"key": "a", "match": {"value": 1.5}}]}`:                                   `compare other numbers with range`,
		`{"must": [{"key": "a", "match": {"any": [true]}}]}`:                                  `match it by value`,
		`{"must": [{"key": "a", "key": "b", "match": {"value": 1}}]}`:                         `the key "key" occurs twice`,
		`{"must": [{"has_id": [18446744073709551616]}]}`:                                      `must[0].has_id[0]: 18446744073709551616 is not an id`,
		`{"must": [{"has_id": [1], "must": []}]}`:                                             `"has_id" stands alone`,
		`{"must": [{"key": "\ud800", "match": {"value": 1}}]}`:                                `half of a surrogate pair`,
		`{"must"`:                            `ends early`,
		`{"min_should": {"conditions": []}}`: `conditions and min_count are both needed`,
		`{"must": [{"key": "g", "geo_radius": {"center": {"lon": 1}, "radius": 5}}]}`: `lon and lat are both needed`,
	} {
		_, err := filter.Parse(text)
		if !errors.Is(err, adapters.ErrFilter) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want ErrFilter with %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"must": [{"key": "a", "match": {"value": "x"}}, {"key": "b.c", "range": {"gte": 1.5, "lt": null}}]}`)
	f.Add(`{"should": {"is_empty": {"key": "a"}}, "must_not": [{"has_id": [1, "f47ac10b-58cc-4372-a567-0e02b2c3d479"]}]}`)
	f.Add(`{"min_should": {"conditions": [{"nested": {"key": "a", "filter": {}}}], "min_count": 1}}`)
	f.Add(`{"must": [{"key": "g", "geo_polygon": {"exterior": {"points": [{"lon": 1, "lat": 2}]}}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, err := filter.Parse(text)
		if err != nil && !errors.Is(err, adapters.ErrFilter) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
