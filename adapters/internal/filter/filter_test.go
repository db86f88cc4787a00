package filter_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/filter"
	"github.com/likenessdb/likeness/rerank"
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
		`{"must": [{"has_id": 7}]}`:                                                           `must[0].has_id: 7 instead of an array`,
		`{"must": [[]]}`:                                                                      `must[0]: [] instead of an object`,
		`{"must": [{"key": "` + "\xff" + `"}]}`:                                               `it is not UTF-8`,
		strings.Repeat(`{"must": `, 66) + "{}" + strings.Repeat("}", 66):                      `more than 64 levels`,
		strings.Repeat(`{"must": [`, 33) + "{}" + strings.Repeat("]}", 33):                    `more than 64 levels`,
		`{"must": [{"key": "g", "geo_polygon": {"exterior": {}}}]}`:                           `points are missing`,
		`{"must": [{"key": "g", "geo_polygon": {}}]}`:                                         `exterior is missing`,
		`{"must"`:                            `ends early`,
		`{"min_should": {"conditions": []}}`: `conditions and min_count are both needed`,
		`{"must": [{"key": "g", "geo_radius": {"center": {"lon": 1}, "radius": 5}}]}`: `lon and lat are both needed`,
		`{"must": [{"key": "a"}, {"key": "b"}]}`:                                      `must[0]: key "a" has no clause`,
		`{"must": [{"key": "a", "match": null}]}`:                                     `has no clause`,
		`{"must": [{"key": "a", "match": {"any": ["x", 1]}}]}`:                        `strings and integers in one list`,
		`{"must": [{"key": "a", "range": {"gt": "0000-01-01T00:00:00Z"}}]}`:           `is not a time`,
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

func ptr[T any](v T) *T { return &v }

func number(i int64) *filter.Number { return &filter.Number{Float: float64(i), Int: i, IsInt: true} }

// TestParse: every key of the language ends up in the field of its name. The geometry has
// other values in every place, so that none can be mistaken for another.
func TestParse(t *testing.T) {
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	noon := day.Add(12*time.Hour + 30*time.Minute)
	ring := []filter.GeoPoint{{Lon: 1, Lat: 2}, {Lon: 3, Lat: 4}}
	for text, want := range map[string]filter.Filter{
		`{"must": [{"is_null": {"key": "a"}}], "should": [{"is_empty": {"key": "b"}}], "must_not": {"has_vector": "c"}}`: {
			Must: []filter.Condition{filter.IsNull("a")}, Should: []filter.Condition{filter.IsEmpty("b")}, MustNot: []filter.Condition{filter.HasVector("c")}},
		`{"min_should": {"conditions": [{"is_null": {"key": "a"}}, {}], "min_count": 2}}`: {
			MinShould: &filter.MinShould{Conditions: []filter.Condition{filter.IsNull("a"), &filter.Filter{}}, Count: 2}},
		`{"must": {"has_id": [1, -2, "x"]}}`: {
			Must: []filter.Condition{filter.HasID{rerank.UintID(1), rerank.IntID(-2), rerank.TextID("x")}}},
		`{"must": {"nested": {"key": "n", "filter": {"must_not": {"is_null": {"key": "a"}}}}}}`: {
			Must: []filter.Condition{&filter.Nested{Key: "n", Filter: &filter.Filter{MustNot: []filter.Condition{filter.IsNull("a")}}}}},
		`{"must": [{"key": "k", "range": {"gt": 1, "gte": 2, "lt": 3, "lte": 4}}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", Range: &filter.Range{Gt: number(1), Gte: number(2), Lt: number(3), Lte: number(4)}}}},
		`{"must": [{"key": "k", "range": {"gt": "2026-01-31", "lte": "2026-01-31 12:30"}}, {"key": "k", "range": {"gte": "2026-01-31T12:30:00Z", "lt": "2026-01-31T12:30:00"}}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", Datetime: &filter.Datetime{Gt: &day, Lte: &noon}}, &filter.Field{Key: "k", Datetime: &filter.Datetime{Gte: &noon, Lt: &noon}}}},
		`{"must": [{"key": "k", "values_count": {"gt": 1, "gte": 2, "lt": 3, "lte": 4}}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", ValuesCount: &filter.Count{Gt: ptr[uint64](1), Gte: ptr[uint64](2), Lt: ptr[uint64](3), Lte: ptr[uint64](4)}}}},
		`{"must": [{"key": "k", "is_null": true}, {"key": "k", "is_empty": false}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", IsNull: ptr(true)}, &filter.Field{Key: "k", IsEmpty: ptr(false)}}},
		`{"must": [{"key": "k", "geo_bounding_box": {"top_left": {"lon": 1, "lat": 2}, "bottom_right": {"lon": 3, "lat": 4}}}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", GeoBox: &filter.GeoBox{TopLeft: ring[0], BottomRight: ring[1]}}}},
		`{"must": [{"key": "k", "geo_radius": {"center": {"lon": 1, "lat": 2}, "radius": 5.5}}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", GeoRadius: &filter.GeoRadius{Centre: ring[0], Radius: 5.5}}}},
		`{"must": [{"key": "k", "geo_polygon": {"exterior": {"points": [{"lon": 1, "lat": 2}]}, "interiors": [{"points": [{"lon": 1, "lat": 2}, {"lon": 3, "lat": 4}]}]}}]}`: {
			Must: []filter.Condition{&filter.Field{Key: "k", GeoPolygon: &filter.GeoPolygon{Exterior: ring[:1], Interiors: [][]filter.GeoPoint{ring}}}}},
		`{"must": [{"key": "k", "match": {"value": "1"}}, {"key": "k", "match": {"value": true}}, {"key": "k", "match": {"any": [1, 2]}}, {"key": "k", "match": {"except": ["a"]}}, {"key": "k", "match": {"text": "b c"}}, {"key": "k", "match": {"text_any": "d"}}, {"key": "k", "match": {"phrase": "e"}}]}`: {
			Must: []filter.Condition{
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchValue, Values: []any{"1"}}},
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchValue, Values: []any{true}}},
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchAny, Values: []any{int64(1), int64(2)}}},
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchExcept, Values: []any{"a"}}},
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchText, Values: []any{"b c"}}},
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchTextAny, Values: []any{"d"}}},
				&filter.Field{Key: "k", Match: &filter.Match{Kind: filter.MatchPhrase, Values: []any{"e"}}},
			}},
	} {
		got, err := filter.Parse(text)
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s is read as %+v, %v; want %+v", text, got, err, &want)
		}
	}
}

// TestTakeExcluded: only the has_id conditions of must_not exclude ids whatever else the filter
// says.
func TestTakeExcluded(t *testing.T) {
	for text, want := range map[string]struct {
		ids  []rerank.ID
		rest string
	}{
		"":                                {},
		`{"must_not":{"has_id":[1,"x"]}}`: {[]rerank.ID{rerank.UintID(1), rerank.TextID("x")}, ""},
		`{"must_not":[{"has_id":[1]},{"has_id":[2,-3]}]}`:                            {[]rerank.ID{rerank.UintID(1), rerank.UintID(2), rerank.IntID(-3)}, ""},
		`{"must_not":[{"has_id":[]}]}`:                                               {nil, ""},
		`{"must_not":[{"is_null":{"key":"a"}},{"has_id":[18446744073709551615]}]}`:   {[]rerank.ID{rerank.UintID(1<<64 - 1)}, `{"must_not":[{"is_null":{"key":"a"}}]}`},
		`{"must":{"has_id":[1]},"must_not":{"has_id":[2]},"should":[]}`:              {[]rerank.ID{rerank.UintID(2)}, `{"must":{"has_id":[1]},"should":[]}`},
		`{"must":[{"must_not":{"has_id":[1]}}]}`:                                     {nil, `{"must":[{"must_not":{"has_id":[1]}}]}`},
		`{"must_not":[{"must_not":[{"has_id":[1]}]}]}`:                               {nil, `{"must_not":[{"must_not":[{"has_id":[1]}]}]}`},
		`{"must_not":[{"key":"has_id","match":{"value":1}}]}`:                        {nil, `{"must_not":[{"key":"has_id","match":{"value":1}}]}`},
		`{"must_not":[{"nested":{"key":"n","filter":{"must_not":{"has_id":[1]}}}}]}`: {nil, `{"must_not":[{"nested":{"key":"n","filter":{"must_not":{"has_id":[1]}}}}]}`},
	} {
		ids, rest, err := filter.TakeExcluded(text)
		if err != nil || !slices.Equal(ids, want.ids) || rest != want.rest {
			t.Errorf("%s excludes %v and leaves %s, %v; want %v and %s", text, ids, rest, err, want.ids, want.rest)
		}
	}
	if _, _, err := filter.TakeExcluded(`{"must_not":[{"has_id":1}]}`); !errors.Is(err, adapters.ErrFilter) {
		t.Errorf("a bad filter: %v, want ErrFilter", err)
	}
}

// FuzzTakeExcluded: what is left is a filter, and excludes no more ids.
func FuzzTakeExcluded(f *testing.F) {
	f.Add(`{"must_not":[{"has_id":[1]},{"is_null":{"key":"a"}}],"must":null}`)
	f.Add(`{"must_not":{"has_id":["x"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, rest, err := filter.TakeExcluded(text)
		if err != nil || rest == text || rest == "" {
			return
		}
		ids, again, err := filter.TakeExcluded(rest)
		if err != nil || len(ids) > 0 || again != rest {
			t.Errorf("%s leaves %s, which excludes %v and leaves %s, %v", text, rest, ids, again, err)
		}
	})
}
