// Package filter reads Qdrant's JSON filter language strictly: an unknown key,
// a value of another type or a key that occurs twice is an error that names
// its place. The embedded store evaluates what it reads; the Qdrant adapter
// sends it on.
package filter

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Filter holds if all of Must, one of Should (if there are any), none of
// MustNot and MinShould hold.
type Filter struct {
	Must, Should, MustNot []Condition
	MinShould             *MinShould
}

// MinShould holds if at least Count of the conditions do.
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

// IsEmpty names a payload key that is absent, null or [].
type IsEmpty string

// IsNull names a payload key that is null.
type IsNull string

// HasID lists ids.
type HasID []rerank.ID

// HasVector names a vector that the point has.
type HasVector string

// Nested holds if one element of an array fulfils the filter.
type Nested struct {
	Key    string
	Filter *Filter
}

// Field is a condition on a payload key; it has one clause or more.
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

// Match compares values. Values are string, int64 or bool; those of one match
// are of one type. The text kinds have one string.
type Match struct {
	Kind   MatchKind
	Values []any
}

// Number is a JSON number: as a float, and exactly where it is a 64-bit integer.
type Number struct {
	Float float64
	Int   int64
	IsInt bool
}

// Range bounds a number; nil is no bound.
type Range struct{ Gt, Gte, Lt, Lte *Number }

// Datetime bounds a time; nil is no bound.
type Datetime struct{ Gt, Gte, Lt, Lte *time.Time }

// Count bounds the number of values of a key; nil is no bound.
type Count struct{ Gt, Gte, Lt, Lte *uint64 }

// GeoPoint is a place in degrees.
type GeoPoint struct{ Lon, Lat float64 }

// GeoBox is a rectangle of the map.
type GeoBox struct{ TopLeft, BottomRight GeoPoint }

// GeoRadius is a circle; the radius is in metres.
type GeoRadius struct {
	Centre GeoPoint
	Radius float64
}

// GeoPolygon is a polygon with holes; each ring ends where it begins.
type GeoPolygon struct {
	Exterior  []GeoPoint
	Interiors [][]GeoPoint
}
