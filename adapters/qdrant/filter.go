package qdrant

import (
	"fmt"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/internal/filter"
)

// parseFilter converts the JSON of Qdrant's REST interface to a gRPC filter. An empty
// text gives nil.
func parseFilter(text string) (*qdrant.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		return nil, err
	}
	return filterProto(f)
}

func filterProto(f *filter.Filter) (*qdrant.Filter, error) {
	out := &qdrant.Filter{}
	for _, part := range []struct {
		from []filter.Condition
		to   *[]*qdrant.Condition
	}{{f.Must, &out.Must}, {f.Should, &out.Should}, {f.MustNot, &out.MustNot}} {
		var err error
		if *part.to, err = conditions(part.from); err != nil {
			return nil, err
		}
	}
	if f.MinShould == nil {
		return out, nil
	}
	few, err := conditions(f.MinShould.Conditions)
	out.MinShould = &qdrant.MinShould{Conditions: few, MinCount: f.MinShould.Count}
	return out, err
}

func conditions(cs []filter.Condition) ([]*qdrant.Condition, error) {
	out := make([]*qdrant.Condition, len(cs))
	for i, c := range cs {
		var err error
		if out[i], err = condition(c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func condition(c filter.Condition) (*qdrant.Condition, error) {
	switch c := c.(type) {
	case *filter.Filter:
		f, err := filterProto(c)
		return qdrant.NewFilterAsCondition(f), err
	case *filter.Nested:
		f, err := filterProto(c.Filter)
		return qdrant.NewNestedFilter(c.Key, f), err
	case *filter.Field:
		return fieldCondition(c), nil
	case filter.HasID:
		ids := make([]*qdrant.PointId, len(c))
		for i, id := range c {
			var err error
			if ids[i], err = pointID(id); err != nil {
				return nil, fmt.Errorf("%w: has_id: %q is neither a number from 0 nor a UUID", adapters.ErrFilter, id)
			}
		}
		return qdrant.NewHasID(ids...), nil
	case filter.IsEmpty:
		return qdrant.NewIsEmpty(string(c)), nil
	case filter.IsNull:
		return qdrant.NewIsNull(string(c)), nil
	case filter.HasVector:
		return qdrant.NewHasVector(string(c)), nil
	}
	return nil, fmt.Errorf("%w: a condition of type %T", adapters.ErrFilter, c)
}

func fieldCondition(f *filter.Field) *qdrant.Condition {
	c := &qdrant.FieldCondition{Key: f.Key, IsEmpty: f.IsEmpty, IsNull: f.IsNull}
	if f.Match != nil {
		c.Match = convertMatch(f.Match)
	}
	if r := f.Range; r != nil {
		c.Range = &qdrant.Range{Gt: double(r.Gt), Gte: double(r.Gte), Lt: double(r.Lt), Lte: double(r.Lte)}
	}
	if r := f.Datetime; r != nil {
		c.DatetimeRange = &qdrant.DatetimeRange{Gt: stamp(r.Gt), Gte: stamp(r.Gte), Lt: stamp(r.Lt), Lte: stamp(r.Lte)}
	}
	if r := f.ValuesCount; r != nil {
		c.ValuesCount = &qdrant.ValuesCount{Gt: r.Gt, Gte: r.Gte, Lt: r.Lt, Lte: r.Lte}
	}
	if g := f.GeoBox; g != nil {
		c.GeoBoundingBox = &qdrant.GeoBoundingBox{TopLeft: point(g.TopLeft), BottomRight: point(g.BottomRight)}
	}
	if g := f.GeoRadius; g != nil {
		c.GeoRadius = &qdrant.GeoRadius{Center: point(g.Centre), Radius: float32(g.Radius)}
	}
	if g := f.GeoPolygon; g != nil {
		c.GeoPolygon = &qdrant.GeoPolygon{Exterior: ring(g.Exterior)}
		for _, in := range g.Interiors {
			c.GeoPolygon.Interiors = append(c.GeoPolygon.Interiors, ring(in))
		}
	}
	return &qdrant.Condition{ConditionOneOf: &qdrant.Condition_Field{Field: c}}
}

// convertMatch converts a match. The parser has ensured that its values have one type.
func convertMatch(m *filter.Match) *qdrant.Match {
	var texts []string
	var numbers []int64
	for _, v := range m.Values {
		switch v := v.(type) {
		case bool:
			return &qdrant.Match{MatchValue: &qdrant.Match_Boolean{Boolean: v}}
		case string:
			texts = append(texts, v)
		case int64:
			numbers = append(numbers, v)
		}
	}
	switch {
	case m.Kind == filter.MatchText:
		return &qdrant.Match{MatchValue: &qdrant.Match_Text{Text: texts[0]}}
	case m.Kind == filter.MatchTextAny:
		return &qdrant.Match{MatchValue: &qdrant.Match_TextAny{TextAny: texts[0]}}
	case m.Kind == filter.MatchPhrase:
		return &qdrant.Match{MatchValue: &qdrant.Match_Phrase{Phrase: texts[0]}}
	case m.Kind == filter.MatchExcept && numbers != nil:
		return &qdrant.Match{MatchValue: &qdrant.Match_ExceptIntegers{ExceptIntegers: &qdrant.RepeatedIntegers{Integers: numbers}}}
	case m.Kind == filter.MatchExcept:
		return &qdrant.Match{MatchValue: &qdrant.Match_ExceptKeywords{ExceptKeywords: &qdrant.RepeatedStrings{Strings: texts}}}
	case m.Kind == filter.MatchAny && numbers != nil:
		return &qdrant.Match{MatchValue: &qdrant.Match_Integers{Integers: &qdrant.RepeatedIntegers{Integers: numbers}}}
	case m.Kind == filter.MatchAny:
		return &qdrant.Match{MatchValue: &qdrant.Match_Keywords{Keywords: &qdrant.RepeatedStrings{Strings: texts}}}
	case numbers != nil:
		return &qdrant.Match{MatchValue: &qdrant.Match_Integer{Integer: numbers[0]}}
	default:
		return &qdrant.Match{MatchValue: &qdrant.Match_Keyword{Keyword: texts[0]}}
	}
}

func double(n *filter.Number) *float64 {
	if n == nil {
		return nil
	}
	return &n.Float
}

func stamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

func point(p filter.GeoPoint) *qdrant.GeoPoint { return &qdrant.GeoPoint{Lon: p.Lon, Lat: p.Lat} }

func ring(points []filter.GeoPoint) *qdrant.GeoLineString {
	out := &qdrant.GeoLineString{}
	for _, p := range points {
		out.Points = append(out.Points, point(p))
	}
	return out
}
