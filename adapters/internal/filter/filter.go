// Package filter parses Qdrant's JSON filter language strictly. An unknown key, a
// value of the wrong type or a duplicate key is an error that names its place. The
// embedded store evaluates the parsed filter; the Qdrant adapter sends it to the
// server.
package filter

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Filter is true if all of Must, at least one of Should (unless it is empty), none of
// MustNot, and MinShould are true.
type Filter struct {
	Must, Should, MustNot []Condition
	MinShould             *MinShould
}

// MinShould is true if at least Count of the conditions are true.
type MinShould struct {
	Conditions []Condition
	Count      uint64
}

// Condition is a *Filter, *Field, IsEmpty, IsNull, HasID, HasVector or *Nested.
type Condition interface{ condition() }

func (*Filter) condition()   {}
func (*Field) condition()    {}
func (IsEmpty) condition()   {}
func (IsNull) condition()    {}
func (HasID) condition()     {}
func (HasVector) condition() {}
func (*Nested) condition()   {}

// IsEmpty is a payload key. The condition is true if the key is absent, null or [].
type IsEmpty string

// IsNull is a payload key. The condition is true if its value is null.
type IsNull string

// HasID is a list of ids. The condition is true for the rows with these ids.
type HasID []rerank.ID

// HasVector is a vector's name. The condition is true for points that have the vector.
type HasVector string

// Nested is true if one element of an array satisfies the filter.
type Nested struct {
	Key    string
	Filter *Filter
}

// Field is a condition on a payload key, with one clause or more.
type Field struct {
	Key             string
	Match           *Match
	Range           *Range
	Datetime        *Datetime
	GeoBox          *GeoBox
	GeoRadius       *GeoRadius
	GeoPolygon      *GeoPolygon
	ValuesCount     *Count
	IsEmpty, IsNull *bool
}

// Clauses lists the JSON names of the clauses that the field has.
func (f *Field) Clauses() []string {
	var names []string
	add := func(has bool, name string) {
		if has {
			names = append(names, name)
		}
	}
	add(f.Match != nil, "match")
	add(f.Range != nil || f.Datetime != nil, "range")
	add(f.GeoBox != nil, "geo_bounding_box")
	add(f.GeoRadius != nil, "geo_radius")
	add(f.GeoPolygon != nil, "geo_polygon")
	add(f.ValuesCount != nil, "values_count")
	add(f.IsEmpty != nil, "is_empty")
	add(f.IsNull != nil, "is_null")
	return names
}

// MatchKind is the JSON key of a match.
type MatchKind string

// The kinds of match.
const (
	MatchValue   MatchKind = "value"
	MatchAny     MatchKind = "any"
	MatchExcept  MatchKind = "except"
	MatchText    MatchKind = "text"
	MatchTextAny MatchKind = "text_any"
	MatchPhrase  MatchKind = "phrase"
)

// Match compares a payload value with values that are all strings, all int64 or all
// bool. The text kinds have a single string.
type Match struct {
	Kind   MatchKind
	Values []any
}

// Number is a JSON number as a float and, if it is a 64-bit integer, also exactly.
type Number struct {
	Float float64
	Int   int64
	IsInt bool
}

// Range bounds a number. A nil bound is absent.
type Range struct{ Gt, Gte, Lt, Lte *Number }

// Datetime bounds a time. A nil bound is absent.
type Datetime struct{ Gt, Gte, Lt, Lte *time.Time }

// Count bounds the number of values of a key. A nil bound is absent.
type Count struct{ Gt, Gte, Lt, Lte *uint64 }

// GeoPoint is a point on the earth, in degrees.
type GeoPoint struct{ Lon, Lat float64 }

// GeoBox is a rectangle of the map.
type GeoBox struct{ TopLeft, BottomRight GeoPoint }

// GeoRadius is a circle; the radius is in metres.
type GeoRadius struct {
	Centre GeoPoint
	Radius float64
}

// GeoPolygon is a polygon with holes. The last point of each ring is its first one.
type GeoPolygon struct {
	Exterior  []GeoPoint
	Interiors [][]GeoPoint
}
