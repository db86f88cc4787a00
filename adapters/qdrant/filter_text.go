package qdrant

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/likenessdb/likeness/adapters"
)

// FilterText converts a filter of Qdrant's gRPC interface to the JSON of its REST
// interface, which the requests of this package take. nil gives "". FilterText parses
// its result and compares, so that a filter keeps its meaning or is refused with
// adapters.ErrFilter.
func FilterText(f *qdrant.Filter) (string, error) {
	if f == nil {
		return "", nil
	}
	b, err := json.Marshal(filterObject(f))
	if err != nil {
		return "", fmt.Errorf("%w: %w", adapters.ErrFilter, err)
	}
	again, err := parseFilter(string(b))
	if err != nil {
		return "", err
	}
	if !proto.Equal(f, again) {
		return "", fmt.Errorf("%w: the filter of gRPC has no equal in JSON that is known here", adapters.ErrFilter)
	}
	return string(b), nil
}

// object is a JSON object under construction. Members with a nil value are omitted.
type object map[string]any

func filterObject(f *qdrant.Filter) object {
	o := object{}
	for name, cs := range map[string][]*qdrant.Condition{"must": f.GetMust(), "should": f.GetShould(), "must_not": f.GetMustNot()} {
		if len(cs) > 0 {
			o[name] = conditionObjects(cs)
		}
	}
	if m := f.GetMinShould(); m != nil {
		o["min_should"] = object{"conditions": conditionObjects(m.GetConditions()), "min_count": m.GetMinCount()}
	}
	return o
}

func conditionObjects(cs []*qdrant.Condition) []object {
	out := make([]object, len(cs))
	for i, c := range cs {
		out[i] = conditionObject(c)
	}
	return out
}

// conditionObject returns an empty object for an unknown condition, which the parser
// then refuses.
func conditionObject(c *qdrant.Condition) object {
	switch c := c.GetConditionOneOf().(type) {
	case *qdrant.Condition_Filter:
		return filterObject(c.Filter)
	case *qdrant.Condition_Nested:
		return object{"nested": object{"key": c.Nested.GetKey(), "filter": filterObject(c.Nested.GetFilter())}}
	case *qdrant.Condition_IsEmpty:
		return object{"is_empty": object{"key": c.IsEmpty.GetKey()}}
	case *qdrant.Condition_IsNull:
		return object{"is_null": object{"key": c.IsNull.GetKey()}}
	case *qdrant.Condition_HasVector:
		return object{"has_vector": c.HasVector.GetHasVector()}
	case *qdrant.Condition_HasId:
		ids := make([]any, len(c.HasId.GetHasId()))
		for i, id := range c.HasId.GetHasId() {
			ids[i] = idValue(id)
		}
		return object{"has_id": ids}
	case *qdrant.Condition_Field:
		return fieldObject(c.Field)
	}
	return object{}
}

func idValue(id *qdrant.PointId) any {
	if u, ok := id.GetPointIdOptions().(*qdrant.PointId_Uuid); ok {
		return u.Uuid
	}
	return id.GetNum()
}

func fieldObject(f *qdrant.FieldCondition) object {
	o := object{"key": f.GetKey()}
	if m := f.GetMatch(); m != nil {
		o["match"] = matchObject(m)
	}
	if r := f.GetRange(); r != nil {
		o["range"] = bounds(r.Gt, r.Gte, r.Lt, r.Lte, floatText)
	}
	if r := f.GetDatetimeRange(); r != nil {
		o["range"] = bounds(some(r.GetGt()), some(r.GetGte()), some(r.GetLt()), some(r.GetLte()), timeText)
	}
	if r := f.GetValuesCount(); r != nil {
		o["values_count"] = bounds(r.Gt, r.Gte, r.Lt, r.Lte, func(n uint64) any { return n })
	}
	if g := f.GetGeoBoundingBox(); g != nil {
		o["geo_bounding_box"] = object{"top_left": pointObject(g.GetTopLeft()), "bottom_right": pointObject(g.GetBottomRight())}
	}
	if g := f.GetGeoRadius(); g != nil {
		o["geo_radius"] = object{"center": pointObject(g.GetCenter()), "radius": floatText(float64(g.GetRadius()))}
	}
	if g := f.GetGeoPolygon(); g != nil {
		polygon := object{"exterior": ringObject(g.GetExterior())}
		if len(g.GetInteriors()) > 0 {
			holes := make([]object, len(g.GetInteriors()))
			for i, in := range g.GetInteriors() {
				holes[i] = ringObject(in)
			}
			polygon["interiors"] = holes
		}
		o["geo_polygon"] = polygon
	}
	if f.IsEmpty != nil {
		o["is_empty"] = f.GetIsEmpty()
	}
	if f.IsNull != nil {
		o["is_null"] = f.GetIsNull()
	}
	return o
}

func matchObject(m *qdrant.Match) object {
	switch v := m.GetMatchValue().(type) {
	case *qdrant.Match_Keyword:
		return object{"value": v.Keyword}
	case *qdrant.Match_Integer:
		return object{"value": v.Integer}
	case *qdrant.Match_Boolean:
		return object{"value": v.Boolean}
	case *qdrant.Match_Text:
		return object{"text": v.Text}
	case *qdrant.Match_TextAny:
		return object{"text_any": v.TextAny}
	case *qdrant.Match_Phrase:
		return object{"phrase": v.Phrase}
	case *qdrant.Match_Keywords:
		return object{"any": v.Keywords.GetStrings()}
	case *qdrant.Match_Integers:
		return object{"any": v.Integers.GetIntegers()}
	case *qdrant.Match_ExceptKeywords:
		return object{"except": v.ExceptKeywords.GetStrings()}
	case *qdrant.Match_ExceptIntegers:
		return object{"except": v.ExceptIntegers.GetIntegers()}
	}
	return object{}
}

func bounds[T any](gt, gte, lt, lte *T, text func(T) any) object {
	o := object{}
	for name, v := range map[string]*T{"gt": gt, "gte": gte, "lt": lt, "lte": lte} {
		if v != nil {
			o[name] = text(*v)
		}
	}
	return o
}

// floatText formats a float so that it is not parsed as an integer.
func floatText(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return json.Number(appendDouble(nil, f))
}

func some(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	v := t.AsTime()
	return &v
}

func timeText(t time.Time) any { return t.Format(time.RFC3339Nano) }

func pointObject(p *qdrant.GeoPoint) object {
	return object{"lon": floatText(p.GetLon()), "lat": floatText(p.GetLat())}
}

func ringObject(r *qdrant.GeoLineString) object {
	points := make([]object, len(r.GetPoints()))
	for i, p := range r.GetPoints() {
		points[i] = pointObject(p)
	}
	return object{"points": points}
}
